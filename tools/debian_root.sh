# Makes a bare Debian 12 by debootstrap and mounts what a chroot needs; tools/test_bare_debian.sh and tools/test_package.sh
# source this file with the folder, or nothing for a temporary one that is removed at the end. Needs root and network.
# Sets `folder` and `environment`, the beginning of a command there: "${environment[@]}" chroot "$folder" ...
folder=${1:-$(mktemp -d)}
kept=${1:-}
mirror=$(find /etc/apt \( -name '*.list' -o -name '*.sources' \) -exec cat {} + |
    sed -nE 's/^(URIs: |deb (\[[^]]*\] )?)(https?:\/\/[^ ]+).*/\3/p' | head -n 1)
leave() {
    umount -q "$folder/proc" "$folder/dev/shm" "$folder/dev" || true
    [ -n "$kept" ] || rm -rf --one-file-system "$folder"
}
trap leave EXIT
[ -x "$folder/bin/bash" ] || debootstrap --variant=minbase bookworm "$folder" "$mirror"
cp -L /etc/resolv.conf "$folder/etc/resolv.conf"
# The way to the network: mirrors, proxies and certificates of this machine.
for file in /etc/apt/sources.list /etc/apt/sources.list.d /etc/apt/apt.conf.d /etc/pip.conf /etc/hosts /usr/local/share/ca-certificates; do
    [ ! -e "$file" ] || cp -rT "$file" "$folder$file"
done
mount --bind /dev "$folder/dev"
mount -t tmpfs tmpfs "$folder/dev/shm"
mount -t proc proc "$folder/proc"
environment=(env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive)
for name in http_proxy https_proxy no_proxy PIP_INDEX_URL; do
    [ -z "${!name:-}" ] || environment+=("$name=${!name}")
done
