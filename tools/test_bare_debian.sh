#!/usr/bin/env bash
# Builds and tests this commit in a Debian 12 made by debootstrap, where nothing was installed by hand. Needs root and network.
# usage: tools/test_bare_debian.sh [FOLDER]    default: a temporary folder, removed at the end
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/debian_root.sh
mkdir -p "$folder/draftscope"
git archive HEAD | tar -x -C "$folder/draftscope"
"${environment[@]}" chroot "$folder" bash -c "cd /draftscope && ./run build && ./run test"
