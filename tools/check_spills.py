#!/usr/bin/env python3
"""Looks for register spills in the matmul microkernels: vector stores to, and reloads from, the stack inside
innermost loops of the object files of kernels/cpu. A tile whose accumulators live on the stack runs at a half or a
third of its speed, and compilers do that silently.

Usage: tools/check_spills.py [BUILD_FOLDER] [--all]      --all lists every loop, not only those that spill
Exit codes: 0 none, 1 spills found, 2 no object files. Needs objdump.
"""
import re
import subprocess
import sys
from pathlib import Path

FILES = ("matmul_avx2", "matmul_avx512", "matmul_vnni", "matmul_bf16", "matmul_amx")
JUMP = re.compile(r"^\s*([0-9a-f]+):\s+j\w+\s+([0-9a-f]+)\b")
LINE = re.compile(r"^\s*([0-9a-f]+):\s+(.*)$")
STACK = re.compile(r"\((?:%rsp|%rbp)(?:,|\))")
WIDE = re.compile(r"%[yz]mm")
PRODUCT = re.compile(r"^(?:\{\w+\}\s*)?(?:vpdpbusd|vpmaddubsw|vfmadd|vdpbf16ps|tdp)")
# What tile kernels do on purpose: sums of a tile leave through memory.
ALLOWED = re.compile(r"tilestored|vcvtdq2ps|vpslld \$0x7,|vpaddd -?0x[0-9a-f]+\(%rsp,%r\w+,1\),|vmovaps.*\(%r[a-z0-9]+\),%zmm")


def functions(path):
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", "-C", path], check=True, capture_output=True,
                          text=True).stdout
    name, body = None, []
    for line in text.splitlines():
        if line.endswith(">:"):
            if name:
                yield name, body
            name, body = line.split("<", 1)[1][:-2], []
        elif name and (match := LINE.match(line)):
            body.append((int(match.group(1), 16), match.group(2), line))
    if name:
        yield name, body


def loops(body):
    """Innermost loops: the stretch between a backward jump and its target, holding no other such jump."""
    found = []
    for address, _, line in body:
        jump = JUMP.match(line)
        if jump and int(jump.group(2), 16) < address:
            found.append((int(jump.group(2), 16), address))
    for first, last in found:
        inner = any(first <= a and b <= last and (a, b) != (first, last) for a, b in found)
        if not inner:
            yield [code for address, code, _ in body if first <= address <= last]


def main():
    arguments = [a for a in sys.argv[1:] if a != "--all"]
    folder = Path(arguments[0] if arguments else "build/release")
    every = "--all" in sys.argv
    objects = [path for name in FILES for path in folder.glob(f"kernels/**/{name}.cpp.o")]
    if not objects:
        print(f"check_spills: no object files of the kernels under {folder}; build first", file=sys.stderr)
        return 2
    spilled = 0
    for path in objects:
        for name, body in functions(path):
            for loop in loops(body):
                products = sum(bool(PRODUCT.match(code)) for code in loop)
                if products < 2:
                    continue
                stack = [c for c in loop if STACK.search(c) and WIDE.search(c) and not ALLOWED.search(c)]
                if stack:
                    spilled += 1
                if stack or every:
                    short = re.sub(r"draftscope::kernels::|\(anonymous namespace\)::", "", name)
                    print(f"{path.name}: {short[:90]}: {len(loop)} instructions, {products} products, "
                          f"{len(stack)} through the stack")
                    for code in stack[:4]:
                        print(f"    {code}")
    print(f"{spilled} loops with spills")
    return 1 if spilled else 0


if __name__ == "__main__":
    sys.exit(main())
