#!/usr/bin/env python3
"""Looks for register spills in the CPU kernels: vectors stored to the stack inside innermost loops of products, of every
object file of kernels/cpu. A tile whose accumulators live on the stack runs at a half or a third of its speed, and
compilers do that silently. A constant that is merely read from the stack is none: it comes from the first cache, as any
other operand in memory.

Usage: tools/check_spills.py [BUILD_FOLDER] [--all]      --all lists every loop of products, not only those that spill
Exit codes: 0 none but those accepted below, 1 others, 2 no object files. Needs objdump.
"""
import re
import subprocess
import sys
from pathlib import Path

JUMP = re.compile(r"^\s*([0-9a-f]+):\s+j\w+\s+([0-9a-f]+)\b")
LINE = re.compile(r"^\s*([0-9a-f]+):\s+(.*)$")
STORE = re.compile(r"%[yz]mm\d+(?:\{[^}]*\})*,-?(?:0x[0-9a-f]+)?\((?:%rsp|%rbp)[,)]")
PRODUCT = re.compile(r"^(?:\{\w+\}\s*)?(?:vpdpbusd|vpmaddubsw|vfmadd|vdpbf16ps|tdp)")


class Accepted:
    """Spills of the functions whose names begin so: at most so many loops with at most so many stores each, as GCC 12
    makes them."""

    def __init__(self, file, function, loops, stores, why):
        self.file, self.function, self.loops, self.stores, self.why = file, function, loops, stores, why
        self.seen = 0

    def takes(self, file, function, stores):
        if file != self.file or not function.startswith(self.function) or stores > self.stores or self.seen == self.loops:
            return False
        self.seen += 1
        return True


ACCEPTED = [
    Accepted("gathered_amx", "void run_blocks<Int8Rows,", 9, 10,
             "sums are added to once in two tile products; between those the next rows are moved through all registers"),
    Accepted("matmul_avx_vnni", "void Int4Tile<", 2, 3,
             "4 sums, 8 dot products in two chains, the weights and a mask are as many as there are registers"),
    Accepted("row_kernels_avx2", "RowKernelsOf<VecAvx2>::sum_exp", 16, 4,
             "four exponentials side by side and their constants take more than 16 registers"),
    Accepted("row_kernels_avx2", "RowKernelsOf<VecAvx2>::silu_mul", 2, 2, "as sum_exp: exponentials and a quotient"),
    Accepted("row_kernels_avx2", "RowKernelsOf<VecAvx2>::forward_kl", 4, 4, "as sum_exp: two exponentials, two sums"),
    Accepted("matmul_avx_vnni", "void Int8Tile::part<", 2, 6,
             "the sums of five and six rows stay in memory, and are added to once in a group of inputs"),
    Accepted("row_kernels_avx2", "void AttentionKernelsOf<VecAvx2>::mix_all<", 4, 2,
             "what is left of a head behind whole vectors is copied there on purpose"),
    Accepted("row_kernels_avx2", "AttentionKernelsOf<VecAvx2>::join_chunks", 2, 3,
             "sums of four vectors and their factors take more than 16 registers"),
    Accepted("row_kernels_avx2", "void AttentionKernelsOf<VecAvx2>::exp2_rows<4>", 1, 10, "as sum_exp, of four heads"),
    Accepted("row_kernels_avx2", "AttentionKernelsOf<VecAvx2>::exp2_scores", 2, 6, "as sum_exp, of up to three heads"),
]


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
    objects = sorted(folder.glob("kernels/**/cpu/**/*.cpp.o"))
    if not objects:
        print(f"check_spills: no object files of the kernels under {folder}; build first", file=sys.stderr)
        return 2
    looked_at = spilled = accepted = 0
    for path in objects:
        file = path.name.removesuffix(".cpp.o")
        for name, body in functions(path):
            short = re.sub(r"draftscope::kernels::|\(anonymous namespace\)::", "", name)
            for loop in loops(body):
                products = sum(bool(PRODUCT.match(code)) for code in loop)
                if products < 2:
                    continue
                looked_at += 1
                stores = [code for code in loop if STORE.search(code)]
                fine = not stores or any(one.takes(file, short, len(stores)) for one in ACCEPTED)
                accepted += bool(stores) and fine
                spilled += not fine
                if every or not fine:
                    print(f"{path.name}: {short[:90]}: {len(loop)} instructions, {products} products, "
                          f"{len(stores)} stores to the stack{', accepted' if stores and fine else ''}")
                    for code in stores[:4]:
                        print(f"    {code}")
    print(f"{looked_at} loops of products in {len(objects)} files: {spilled} spill, {accepted} more are accepted")
    return 1 if spilled else 0


if __name__ == "__main__":
    sys.exit(main())
