#!/usr/bin/env bash
# Checks what is carried to a GPU machine before it goes there: size, commit and headers of the bundle, the exact commands.
#
# usage: tests/gpu/preflight.sh [--limit MIB] [--seconds N] [--results FOLDER]
#
#   --limit MIB        what may travel: the checkout without heads and drafters, the bundle and the headers (default: 64)
#   --seconds N        of the checklist's call, printed (default: 480)
#   --results FOLDER   of the checklist's call, printed (default: gpu-results)
# Exit codes: 0 ready, 1 something is missing, too large or of another commit (each is named), 2 wrong usage.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
limit=64 seconds=480 results=gpu-results
usage="usage: tests/gpu/preflight.sh [--limit MIB] [--seconds N] [--results FOLDER]"
while [ $# -gt 0 ]; do
    [ $# -gt 1 ] || { echo "$usage" >&2; exit 2; }
    case $1 in
        --limit) limit=$2 ;;
        --seconds) seconds=$2 ;;
        --results) results=$2 ;;
        *) echo "$usage" >&2; exit 2 ;;
    esac
    shift 2
done
[[ $limit =~ ^[0-9]+$ && $seconds =~ ^[0-9]+$ ]] || { echo "preflight: --limit and --seconds are whole numbers" >&2; exit 2; }
wrong=0
fault() { echo "preflight: $*" >&2; wrong=1; }

# Tracked files, as they are now, without what the first call does not need.
tree=$(git ls-files -z -- . ':!assets/heads' ':!assets/drafters' | xargs -0 -r stat -c %s 2>/dev/null | awk '{sum += $1} END {print sum + 0}')
carried=$tree
for archive in gpu-bundle.tar.xz gpu-headers.tar.xz; do
    if [ -f "$archive" ]; then
        carried=$((carried + $(stat -c %s "$archive")))
    else
        fault "$archive: not found; tests/gpu/bundle.sh makes it"
    fi
done
[ "$carried" -le $((limit << 20)) ] || fault "$((carried >> 20)) MiB would travel, more than the limit of $limit MiB"
[ -z "$(git status --porcelain --untracked-files=no)" ] || fault "the checkout has changes that are not committed"
head=$(git describe --always --dirty)
if [ -f gpu-bundle.tar.xz ]; then
    bundled=$(tar -xJOf gpu-bundle.tar.xz gpu-bundle/commit 2>/dev/null)
    [ "$bundled" = "$head" ] || fault "gpu-bundle.tar.xz is of commit ${bundled:-unknown}, the checkout of $head: run tests/gpu/bundle.sh again"
    programs=$(tar -tJf gpu-bundle.tar.xz 2>/dev/null)
    for program in draftscope tests/gpu_tests tests/gpu_cupti_graph_check; do
        grep -qx "gpu-bundle/$program" <<<"$programs" || fault "gpu-bundle.tar.xz has no $program"
    done
fi
echo "commit $head; $((tree >> 20)) MiB of files, $((carried >> 20)) MiB in all, limit $limit MiB"
echo "there: git sparse-checkout set --no-cone '/*' '!/assets/heads' '!/assets/drafters'"
echo "there: tests/gpu/checklist.sh --results $results --seconds $seconds"
echo "again: tests/gpu/checklist.sh --results $results --seconds $((seconds / 2)) --passed $results/summary.md"
[ $wrong -eq 0 ] && echo "ready"
exit $wrong
