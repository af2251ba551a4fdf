#!/usr/bin/env python3
"""The demo's token ranking from raw text, as FR-Spec counts it (arXiv 2502.14856, section 3.2): English documentation that
Debian 12 installs, in place of the paper's SlimPajama.

usage: tools/make_text_ranking.py collect CORPUS        writes the text of the packages below
       draftscope fit fr-spec --text CORPUS --out FULL  counts it with the demo model's tokenizer
       tools/make_text_ranking.py pack FULL OUT         names the corpus; ids take two bytes each

Packages: cmake-data (BSD-3-Clause); libpython3.11-stdlib and -minimal (PSF-2.0): language reference and docstrings; perl
(Artistic or GPL-1+): pods; the info manuals of bc, coreutils, diffutils, ed, findutils, gettext, gnupg, grep, gzip, sed, time
and wget (GFDL-1.3+). The ranking holds token ids only, none of their text.
"""
import ast
import glob
import gzip
import json
import re
import struct
import sys
from array import array

MANUALS = "bc coreutils diffutils ed find find-maint gettext gnupg grep gzip sed time wget".split()


def docstrings(path):
    try:
        tree = ast.parse(open(path, encoding="utf-8").read())
    except (SyntaxError, UnicodeDecodeError):
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield ast.get_docstring(node) or ""


def texts():
    for path in sorted(glob.glob("/usr/share/cmake-3.25/Help/**/*.rst", recursive=True)):
        yield open(path, encoding="utf-8").read()
    for path in sorted(glob.glob("/usr/share/perl/**/*.pod", recursive=True)):
        yield re.sub(r"[A-Z]<+ ?([^<>]*?) ?>+", r"\1", open(path, encoding="utf-8", errors="replace").read())
    for path in sorted(glob.glob("/usr/lib/python3.11/**/*.py", recursive=True)):
        if path.endswith("pydoc_data/topics.py"):
            for node in ast.walk(ast.parse(open(path, encoding="utf-8").read())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value
        else:
            yield from docstrings(path)
    for name in MANUALS:
        for path in sorted(glob.glob(f"/usr/share/info/{name}.info*.gz")):
            text = gzip.open(path, "rt", encoding="utf-8", errors="replace").read()
            yield re.split(r"\x1f\nTag Table:|\nConcept Index\n", text)[0].replace("\x1f", "\n")


def collect(path):
    size = 0
    with open(path, "w", encoding="utf-8") as out:
        for text in texts():
            text = text.strip()
            if text:
                size += out.write(text + "\n\n")
    print(f"{path}: {size} characters")


def pack(source, path):
    data = open(source, "rb").read()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])

    def values(name):
        begin, end = header[name]["data_offsets"]
        return array("i", data[8 + length + begin:8 + length + end])
    ids, counts = array("H", values("ids")), values("counts")
    metadata = dict(header["__metadata__"], source="raw text: English documentation of Debian 12 (tools/make_text_ranking.py)")
    end = 2 * len(ids)
    head = {"__metadata__": metadata, "ids": {"dtype": "U16", "shape": [len(ids)], "data_offsets": [0, end]},
            "counts": {"dtype": "I32", "shape": [len(ids)], "data_offsets": [end, end + 4 * len(ids)]}}
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + ids.tobytes() + counts.tobytes())
    print(f"{path}: {len(ids)} ids of {metadata.get('tokens')} tokens")


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "collect":
        collect(sys.argv[2])
    elif len(sys.argv) == 4 and sys.argv[1] == "pack":
        pack(sys.argv[2], sys.argv[3])
    else:
        sys.exit(__doc__)
