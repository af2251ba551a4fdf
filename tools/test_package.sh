#!/usr/bin/env bash
# Installs the .deb in a Debian 12 made by debootstrap, and uses it from another folder: help, man page, the demo model by
# the installed script, a run, a screenshot, a window on Xvfb. Needs root and network, dpkg-dev, and a build.
# usage: tools/test_package.sh [FOLDER]    default: a temporary folder, removed at the end
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-$(mktemp -d)}
(cd build/release && cpack -G DEB >/dev/null)
package=$(find build/release -maxdepth 1 -name 'draftscope_*.deb' -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d' ' -f2)
mirror=$(find /etc/apt \( -name '*.list' -o -name '*.sources' \) -exec cat {} + |
    sed -nE 's/^(URIs: |deb (\[[^]]*\] )?)(https?:\/\/[^ ]+).*/\3/p' | head -n 1)
leave() {
    umount -q "$folder/proc" "$folder/dev/shm" "$folder/dev" || true
    [ $# -gt 0 ] && [ -n "$1" ] || rm -rf --one-file-system "$folder"
}
trap 'leave "${1:-}"' EXIT
[ -x "$folder/bin/bash" ] || debootstrap --variant=minbase bookworm "$folder" "$mirror"
cp -L /etc/resolv.conf "$folder/etc/resolv.conf"
for file in /etc/apt/sources.list /etc/apt/sources.list.d /etc/apt/apt.conf.d /etc/pip.conf /etc/hosts /usr/local/share/ca-certificates; do
    [ ! -e "$file" ] || cp -rT "$file" "$folder$file"
done
mount --bind /dev "$folder/dev"
mount -t tmpfs tmpfs "$folder/dev/shm"
mount -t proc proc "$folder/proc"
cp "$package" "$folder/tmp/draftscope.deb"
environment=(env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive)
for name in http_proxy https_proxy no_proxy PIP_INDEX_URL; do
    [ -n "${!name:-}" ] && environment+=("$name=${!name}")
done
"${environment[@]}" chroot "$folder" bash -euc '
    apt-get update -qq
    apt-get install -y -qq --install-recommends /tmp/draftscope.deb xvfb xdotool man-db >/dev/null
    cd /srv
    draftscope --version
    man -P cat draftscope-run | head -n 5
    /usr/share/draftscope/tools/fetch_deps.sh model
    draftscope run --prompt "Say hello." --max-new 16 --quiet --json >run.json
    draftscope gui --screenshot window.png
    test -s window.png
    xvfb-run -a bash -c "draftscope gui & gui=\$!; for i in \$(seq 60); do xdotool search --name Draftscope >/dev/null 2>&1 && kill \$gui && exit 0; sleep 1; done; exit 1"
    echo "the package works"'
