#!/usr/bin/env bash
# Installs the .deb in a Debian 12 made by debootstrap, and uses it from another folder: help, man page, the demo model by
# the installed script, a run, a screenshot, a window on Xvfb. Needs root and network, dpkg-dev, and a build.
# usage: tools/test_package.sh [FOLDER]    default: a temporary folder, removed at the end
set -euo pipefail
cd "$(dirname "$0")/.."
(cd build/release && cpack -G DEB >/dev/null)
package=$(find build/release -maxdepth 1 -name 'draftscope_*.deb' -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d' ' -f2)
. tools/debian_root.sh
cp "$package" "$folder/tmp/draftscope.deb"
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
