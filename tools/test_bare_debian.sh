#!/usr/bin/env bash
# Builds and tests this commit in a Debian 12 made by debootstrap, where nothing was installed by hand. Needs root and network.
# usage: tools/test_bare_debian.sh [FOLDER]    default: a temporary folder, removed at the end
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-$(mktemp -d)}
mirror=$(find /etc/apt \( -name '*.list' -o -name '*.sources' \) -exec cat {} + |
    sed -nE 's/^(URIs: |deb (\[[^]]*\] )?)(https?:\/\/[^ ]+).*/\3/p' | head -n 1)
leave() {
    umount -q "$folder/proc" "$folder/dev/shm" "$folder/dev" || true
    [ $# -gt 0 ] && [ -n "$1" ] || rm -rf --one-file-system "$folder"
}
trap 'leave "${1:-}"' EXIT
[ -x "$folder/bin/bash" ] || debootstrap --variant=minbase bookworm "$folder" "$mirror"
cp -L /etc/resolv.conf "$folder/etc/resolv.conf"
# The way to the network: mirrors, proxies and certificates of this machine.
for file in /etc/apt/sources.list /etc/apt/sources.list.d /etc/apt/apt.conf.d /etc/pip.conf /etc/hosts /usr/local/share/ca-certificates; do
    [ ! -e "$file" ] || cp -rT "$file" "$folder$file"
done
mount --bind /dev "$folder/dev"
mount -t tmpfs tmpfs "$folder/dev/shm"
mount -t proc proc "$folder/proc"
mkdir -p "$folder/draftscope"
git archive HEAD | tar -x -C "$folder/draftscope"
environment=(env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive)
for name in http_proxy https_proxy no_proxy PIP_INDEX_URL; do
    [ -n "${!name:-}" ] && environment+=("$name=${!name}")
done
"${environment[@]}" chroot "$folder" bash -c "cd /draftscope && ./run build && ./run test"
