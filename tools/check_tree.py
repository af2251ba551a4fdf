#!/usr/bin/env python3
"""Checks the house rules that a compiler does not: which folder may include what (docs/ARCHITECTURE.md), how large
files, functions, folders and the whole tree may get, the language (check_language.py), and what the text of the
repository may not contain.

usage: tools/check_tree.py [--root FOLDER]    exit code 1 and one line per finding when a rule is broken
"""
import argparse
import re
import subprocess
import sys
from pathlib import Path

import check_language

# room -> rooms and folders of ours that it may include
ROOMS = {
    "base": set(),
    "capture": {"base"},
    "kernels/ops": {"base"},
    "kernels": {"base", "kernels/ops"},
    "kernels/backend": {"base", "kernels", "kernels/ops"},
    "kernels/cpu/threads": {"base", "kernels", "kernels/ops"},
    "kernels/cpu/vector": {"base", "kernels", "kernels/ops", "kernels/cpu/threads"},
    "kernels/cpu/matmul": {"base", "kernels", "kernels/ops", "kernels/backend", "kernels/cpu/threads", "kernels/cpu/vector"},
    "kernels/cpu": {"base", "kernels", "kernels/ops", "kernels/backend", "kernels/cpu/threads", "kernels/cpu/vector", "kernels/cpu/matmul"},
    "kernels/cuda": {"base", "kernels", "kernels/ops", "kernels/backend"},
    "stats": {"base", "capture"},
    "profiler": {"base", "capture"},
    "engine": {"base", "capture", "kernels", "kernels/ops"},
    "storage": {"base", "capture"},
    # jobs/kernels measures the kernels of the CPU backend.
    "app/jobs": {"base", "capture", "kernels", "kernels/ops", "kernels/cpu", "kernels/cpu/matmul", "stats", "profiler", "engine", "storage"},
    "app/cli": {"base", "capture", "kernels", "kernels/ops", "stats", "profiler", "engine", "storage", "app/jobs", "app/gui"},
    "app/gui/models": {"base", "capture", "stats", "app/jobs/commands"},
    "app/gui/panels": {"base", "capture", "stats", "app/gui/models", "app/jobs/commands"},
    "app/gui/shell": {"base", "capture", "app/gui", "app/gui/models", "app/gui/panels", "app/jobs/commands", "app/jobs/controller"},
    "app/gui": {"base", "app/jobs/commands"},
}
# folder of a room -> folders of that room that it may include. A row names folders of rows above it.
INNER = {
    "profiler/nvtx": set(),
    "profiler/cupti": set(),
    "profiler/machine": {"profiler/cupti", "profiler/nvtx"},
    "engine/tokenizer": set(),
    "engine/chat_template": {"engine/tokenizer"},
    "engine/formats": {"engine/chat_template", "engine/tokenizer"},
    "engine/weights": {"engine/formats"},
    "engine/tree": set(),
    "engine/round": {"engine/tree"},
    "engine/transformer": {"engine/formats", "engine/round", "engine/tree", "engine/weights"},
    "engine/verify": {"engine/round", "engine/tree"},
    "engine/heads": {"engine/formats", "engine/round", "engine/tree"},
    "engine/draft": {"engine/formats", "engine/heads", "engine/round", "engine/tokenizer", "engine/transformer", "engine/tree", "engine/weights"},
    "engine/control": set(),
    "engine/record": {"engine/control"},
    "engine/sequence": {"engine/control", "engine/draft", "engine/heads", "engine/record", "engine/verify"},
    "engine/shadow": {"engine/draft", "engine/heads", "engine/sequence", "engine/verify"},
    "engine/decode": {"engine/draft", "engine/heads", "engine/sequence", "engine/shadow", "engine/transformer", "engine/verify"},
    "engine/recording": {"engine/formats", "engine/sequence", "engine/transformer", "engine/verify"},
    "engine/fit": {"engine/draft", "engine/formats", "engine/heads", "engine/recording", "engine/verify"},
    "engine/replay": {"engine/draft", "engine/heads", "engine/recording", "engine/shadow", "engine/transformer", "engine/verify"},
    "storage": set(),
    "storage/export": {"storage"},
    "storage/import": {"storage"},
    "app/jobs/commands": set(),
    "app/jobs/machine": set(),
    "app/jobs/resolve": {"app/jobs/commands"},
    "app/jobs/inspect": {"app/jobs/resolve"},
    "app/jobs/kernels": {"app/jobs/commands", "app/jobs/resolve"},
    "app/jobs/run": {"app/jobs/commands", "app/jobs/machine", "app/jobs/resolve"},
    "app/jobs/replay": {"app/jobs/commands", "app/jobs/resolve", "app/jobs/run"},
    "app/jobs/diagnose": {"app/jobs/commands", "app/jobs/replay", "app/jobs/resolve"},
    "app/jobs/fit": {"app/jobs/commands", "app/jobs/replay", "app/jobs/resolve"},
    "app/jobs/bench": {"app/jobs/commands", "app/jobs/resolve", "app/jobs/run"},
    "app/jobs/profile": {"app/jobs/bench", "app/jobs/commands", "app/jobs/resolve", "app/jobs/run"},
    "app/jobs/reproduce": {"app/jobs/bench", "app/jobs/commands", "app/jobs/replay", "app/jobs/resolve", "app/jobs/run"},
    "app/jobs/sweep": {"app/jobs/bench", "app/jobs/commands", "app/jobs/profile", "app/jobs/replay", "app/jobs/resolve", "app/jobs/run"},
    "app/jobs/watch": {"app/jobs/commands", "app/jobs/run", "storage/import"},
    "app/jobs/controller": {"app/jobs/commands", "app/jobs/kernels", "app/jobs/machine", "app/jobs/replay", "app/jobs/resolve", "app/jobs/run", "app/jobs/sweep", "app/jobs/watch"},
}


def folders_of(room):
    """The rows of a room in INNER, or the room itself if it has none; an inner folder is its own."""
    return [folder for folder in INNER if folder == room or folder.startswith(room + "/")] or [room]


# folder -> folders of ours that it may include, besides itself
ALLOWED = {folder: {one for other in below for one in folders_of(other)} | INNER.get(folder, set())
           for room, below in ROOMS.items() for folder in folders_of(room)}
# third party -> folders that may include it
THIRD_PARTY = {
    r"sqlite3\.h": {"storage"},
    r"zlib\.h": {"storage", "app/gui"},
    r"cuda|cublas|cub/|nv_": {"kernels"},
    r"cupti": {"profiler"},
    r"nvtx3": {"profiler"},
    r"imgui|implot": {"app/gui"},
    r"GLFW|GL/|EGL/": {"app/gui"},
    r"pcre2|utf8proc": {"engine"},
    r"CLI/": {"app/cli"},
    r"nlohmann": {"base", "capture", "stats", "profiler", "engine", "storage", "app/jobs", "app/cli", "app/gui"},
    r"Eigen/": {"engine"},
    r"spdlog": {"base"},
}
MAX_FILE_LINES = 600
P90_FILE_LINES = 330
MAX_FUNCTION_LINES = 100
P90_FUNCTION_LINES = 35
# Files of one folder; a header and its source count once.
MAX_FOLDER_STEMS = 40
# A checkout travels whole to machines without network (docs/TESTING.md).
MAX_TREE_MIB = 54
FORBIDDEN_TEXT = [
    (re.compile(r"(^|[\s\"'(=])/(work|root|home/\w+)/"), "a path of one machine"),
    (re.compile(r"\b(files\.)?pythonhosted\.|\bpypi\.org|deb\.debian\.org"), "a package registry's host name"),
    (re.compile(r"\b(TODO|FIXME|XXX)\b"), "an unfinished mark"),
]
SOURCE = {".h", ".hpp", ".cpp", ".cu", ".cuh"}


def folder_of(path):
    best = ""
    for folder in ALLOWED:
        if path.startswith(folder + "/") and len(folder) > len(best):
            best = folder
    return best


def check_rows():
    """Rows of INNER that name folders below them, which could make a circle."""
    seen = set()
    for folder, below in INNER.items():
        seen.add(folder)
        for other in sorted(below - seen):
            yield f"tools/check_tree.py: {folder} names {other}, whose row is below its own"


def check_includes(path, text):
    folder = folder_of(path)
    if not folder:
        if any(path.startswith(room + "/") for room in ROOMS):
            yield f"{path}: this folder has no row in tools/check_tree.py"
        return
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r'\s*#\s*include\s+(["<])([^">]+)[">]', line)
        if not match:
            continue
        quoted, name = match.group(1) == '"', match.group(2)
        if quoted and (folder_of(name) or name.startswith("app/")):
            if folder_of(name) != folder and folder_of(name) not in ALLOWED[folder]:
                yield f"{path}:{number}: {folder} may not include {name}"
        for pattern, folders in THIRD_PARTY.items():
            if folder_of(name) or name.startswith("cmake/"):
                continue
            if re.match(pattern, name) and not any(folder == f or folder.startswith(f + "/") for f in folders):
                yield f"{path}:{number}: {folder} may not include <{name}>"


def functions(text):
    """(line, length) of top-level brace blocks that open after a parameter list: near enough to function bodies in
    code that clang-format has laid out (the body's closing brace stands at the column of its first line)."""
    start = None
    for number, line in enumerate(text.splitlines(), 1):
        if start is None:
            if re.match(r"\S.*\)\s*(const|noexcept|override|\s)*\{$", line) and not re.match(r"(namespace|#)", line):
                start = number
        elif line.startswith("}"):
            yield start, number - start
            start = None


def p90(values):
    return sorted(values)[int(0.9 * (len(values) - 1))] if values else 0


def check_folders(names):
    """Folders of C++ sources with more files than a reader can overlook."""
    stems = {}
    for name in names:
        if Path(name).suffix in SOURCE:
            stems.setdefault(str(Path(name).parent), set()).add(Path(name).stem)
    for folder, found in sorted(stems.items()):
        if len(found) > MAX_FOLDER_STEMS:
            yield f"{folder}: {len(found)} files (max {MAX_FOLDER_STEMS}; a header and its source count once)"


def defined_types(text):
    """(namespace, name) of the classes that a header defines at the top level of a namespace."""
    namespace = ""
    for line in text.splitlines():
        opened = re.match(r"namespace ([\w:]+) \{", line)
        namespace = opened.group(1) if opened else namespace
        defined = re.match(r"(?:class|struct|enum class) (\w+)(?: final)?(?: *:[^:].*)? *\{", line)
        if defined:
            yield namespace, defined.group(1)


def check_tree_size(root, names):
    """Size of all tracked files; names the largest ones when it is above the limit."""
    sizes = sorted(((root / name).lstat().st_size, name) for name in filter(None, names) if (root / name).exists())
    mib = sum(size for size, _ in sizes) / 2**20
    if mib > MAX_TREE_MIB:
        largest = ", ".join(f"{name} ({size / 2**20:.1f})" for size, name in reversed(sizes[-3:]))
        yield f"{mib:.1f} MiB of tracked files (max {MAX_TREE_MIB}); largest: {largest}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", default=str(Path(__file__).resolve().parent.parent))
    root = Path(parser.parse_args().root)
    names = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True).stdout.split("\n")
    findings, sizes, lengths, types = [], [], [], {}
    findings += check_tree_size(root, names)
    findings += check_rows()
    findings += check_folders(names)
    for name in filter(None, names):
        path = root / name
        if not path.is_file() or path.stat().st_size > 2_000_000:
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        is_data = path.suffix not in SOURCE and (name.startswith(("assets/", "tests/golden/")) or path.suffix in {".json", ".jsonl"})
        if path.suffix in SOURCE:
            count = text.count("\n")
            sizes.append((count, name))
            if count > MAX_FILE_LINES:
                findings.append(f"{name}: {count} lines (max {MAX_FILE_LINES})")
            findings += check_includes(name, text)
            for line, length in functions(text):
                lengths.append(length)
                if length > MAX_FUNCTION_LINES:
                    findings.append(f"{name}:{line}: function of {length} lines (max {MAX_FUNCTION_LINES})")
            if path.suffix == ".h" and folder_of(name):
                for one in defined_types(text):
                    types.setdefault(one, []).append(name)
        if not is_data:
            findings += check_language.check_file(name, text)
        if not is_data and name != "tools/check_tree.py":
            for number, line in enumerate(text.splitlines(), 1):
                for pattern, what in FORBIDDEN_TEXT:
                    if pattern.search(line):
                        findings.append(f"{name}:{number}: contains {what}")
    for (namespace, one), where in types.items():
        if len(where) > 1:
            # The linker keeps one of their templates and inline functions without a word.
            findings.append(f"{where[1]}: {namespace}::{one} is another type in {where[0]}")
    sizes.sort()
    for what, found, limit in [("file", p90([count for count, _ in sizes]), P90_FILE_LINES), ("function", p90(lengths), P90_FUNCTION_LINES)]:
        if found > limit:
            findings.append(f"p90 of {what} length is {found} lines (max {limit})")
    print(f"tree: {len(sizes)} source files, p90 {p90([count for count, _ in sizes])} lines, longest {sizes[-1][1]} ({sizes[-1][0]})")
    for finding in findings:
        print(finding)
    print("tree: clean" if not findings else f"tree: {len(findings)} finding(s)")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
