#!/usr/bin/env python3
"""Looks for functions that objects of several instruction sets define weakly (inline functions, templates). The linker keeps
one of them, perhaps the one with AVX-512 code, and runs it on every machine.

Usage: tools/check_weak_symbols.py [BUILD_FOLDER]
Exit codes: 0 none, 1 some, 2 no compile_commands.json or no object files. Needs nm.
"""
import json
import shlex
import subprocess
import sys
from pathlib import Path


def instruction_set(words):
    """The flags of a compiler's command that choose instructions."""
    return " ".join(sorted(word for word in words if word.startswith("-m") and not word.startswith("-mtune")))


def weak_functions(path):
    lines = subprocess.run(["nm", "--defined-only", path], check=True, capture_output=True, text=True).stdout.splitlines()
    return {line.split()[2] for line in lines if len(line.split()) == 3 and line.split()[1] == "W"}


def main():
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/release")
    try:
        entries = json.loads((folder / "compile_commands.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        print(f"check_weak_symbols: {folder}/compile_commands.json: {error}", file=sys.stderr)
        return 2
    sets = {}
    for entry in entries:
        words = shlex.split(entry["command"])
        path = Path(entry["directory"]) / words[words.index("-o") + 1]
        if path.suffix == ".o" and path.exists():
            sets[path] = instruction_set(words)
    special = {path: flags for path, flags in sets.items() if flags}
    if not special:
        print(f"check_weak_symbols: no object file of an instruction set under {folder}; build first", file=sys.stderr)
        return 2
    theirs = {path: weak_functions(path) for path in special}
    suspects = set().union(*theirs.values())
    others = {path: suspects & weak_functions(path) for path in sets if path not in special} if suspects else {}
    found = 0
    for name in sorted(suspects):
        where = [path for path, names in {**theirs, **others}.items() if name in names]
        if len({sets[path] for path in where}) > 1:
            found += 1
            shown = subprocess.run(["c++filt", name], capture_output=True, text=True).stdout.strip()
            print(f"{shown}: in {', '.join(sorted(path.name for path in where))}")
    print(f"{len(special)} objects of {len(set(special.values()))} instruction sets: {found} functions are defined in several")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
