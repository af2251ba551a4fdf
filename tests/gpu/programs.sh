# Finds the programs of tests/gpu/checklist.sh and defines how to call them; checklist.sh sources this file.

draftscope= tests= cupti_check= model=
loader=$(ls /lib64/ld-linux-x86-64.so.2 /lib/ld-linux-aarch64.so.1 2>/dev/null | head -n 1)
bench=()
programs=${DRAFTSCOPE_PROGRAMS:-}
prompts=assets/prompts/spec_bench_half.jsonl
text="Write a short story about a lighthouse keeper who finds a message in a bottle."
llama=synthetic:llama-3.1-8b
small=synthetic:llama-3.2-1b
export DRAFTSCOPE_SOURCE=$PWD DRAFTSCOPE_ASSETS=$PWD/assets
[ -d /usr/local/cuda/bin ] && PATH=$PATH:/usr/local/cuda/bin

# Command of the step `programs`: prints their folder; builds the kernel lab if there are none.
cat >"$work/find_programs.sh" <<EOF
set -e
if [ -n "$programs" ]; then
    folder=$programs
elif [ -f gpu-bundle.tar.xz ]; then
    folder=$work/bundle
    mkdir -p "\$folder"
    tar -xJf gpu-bundle.tar.xz -C "\$folder" --strip-components=1 || python3 - "\$folder" <<'PY'
import sys, tarfile
with tarfile.open("gpu-bundle.tar.xz") as archive:
    for member in archive:
        member.name = member.name.partition("/")[2]
        if member.name:
            archive.extract(member, sys.argv[1])
PY
elif [ -x build/cuda/tests/gpu_tests ]; then
    folder=build/cuda
else
    folder=$work/lab
    tests/gpu/lab.sh "\$folder" >&2
fi
test -x "\$folder/tests/gpu_tests" || { echo "\$folder/tests/gpu_tests does not exist" >&2; exit 1; }
for program in "\$folder/draftscope" "\$folder"/tests/*; do
    if [ -x "\$program" ] && ldd "\$program" 2>/dev/null | grep 'not found' >&2; then exit 1; fi
done
echo "\$folder"
EOF
find_programs=(bash "$work/find_programs.sh")

use_programs() {
    local folder
    folder=$(tail -n 1 "$logs/programs.log" 2>/dev/null)
    [ -n "$folder" ] || return 0
    tests=$folder/tests/gpu_tests
    if [ -x "$folder/draftscope" ]; then draftscope=$folder/draftscope; fi
    if [ -x "$folder/tests/gpu_cupti_graph_check" ]; then cupti_check=$folder/tests/gpu_cupti_graph_check; fi
    bench=("$folder/kernel_bench")
    if [ -n "$draftscope" ]; then bench=("$draftscope" kernels --backend cuda); fi
    run=("$draftscope" run --backend cuda --quiet --json)
    synthetic=("$draftscope" run --backend cuda --quiet --json --raw --ignore-eos)
}

# Suites of the test program: those that compare kernels with the reference device, and those of whole rounds.
suites() {
    [ -n "$tests" ] && "$tests" --gtest_list_tests 2>/dev/null | sed -n 's|^Devices/\(.*\)\.$|\1|p'
}
of_engine='^(DeviceEngine|DeviceTargets|DeviceNumerics|DeviceRounds|DeviceRoundDetails|DeviceWaits|DeviceShortlistsTest)$'
not_here='^(KernelRounds|DeviceDemo)$'
op_suites() { suites | grep -vE "$of_engine|$not_here"; }
engine_suites() { suites | grep -E "$of_engine"; }
