#!/usr/bin/env bash
# Fails when a source file is not formatted as .clang-format says (clang-format 14).
set -euo pipefail
cd "$(dirname "$0")/.."
tool=clang-format-14
command -v "$tool" >/dev/null || tool=clang-format
git ls-files -- '*.h' '*.hpp' '*.cpp' '*.cu' '*.cuh' | xargs "$tool" --dry-run --Werror
echo "format: clean"
