#!/usr/bin/env bash
# usage: tools/with_torch.sh                       prints the path of a Python that has what docs/TRAINING.md installs
#        tools/with_torch.sh SCRIPT ARGUMENTS...   runs SCRIPT with `--python PYTHON` in front of its arguments
# The Python is made once, in the user's cache folder, where draftscope fit finds it (some GB are downloaded).
set -euo pipefail
export HOME="${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}"
folder="${XDG_CACHE_HOME:-$HOME/.cache}/draftscope/python"
python="$folder/bin/python"
if ! "$python" -c 'import torch, safetensors, tokenizers, gguf, jinja2' 2>/dev/null; then
    sudo=""; [ "$(id -u)" -eq 0 ] || sudo=sudo
    python3 -c 'import ensurepip, venv' 2>/dev/null || $sudo apt-get install -y -qq --no-install-recommends python3-venv >&2
    echo "Installing PyTorch in $folder (once) ..." >&2
    python3 -m venv "$folder"
    "$folder/bin/pip" install -q torch safetensors tokenizers gguf jinja2 >&2
fi
[ $# -gt 0 ] || { echo "$python"; exit 0; }
script=$1
shift
exec "$script" --python "$python" "$@"
