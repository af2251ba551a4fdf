#!/usr/bin/env python3
"""Estimates how long GPU kernels, heads and rounds take for the shape of Llama-3.1-8B on an H200, beside the goals of
docs/design/gpu.md. Nothing here was measured on a GPU: a time is the sum of bytes over bandwidth, chains of dependent
memory accesses, and launch boundaries. Occupancy and loads in flight come from tools/sass_budgets.json.

usage: tools/gpu_estimate.py                 prints the constants, the table and the parts of every row
       tools/gpu_estimate.py --write         writes the table of docs/design/gpu.md
       tools/gpu_estimate.py --check         exit code 1 if that table is another one
"""
import argparse
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUDGETS = ROOT / "tools/sass_budgets.json"
DOCUMENT = ROOT / "docs/design/gpu.md"
BEGIN, END = "<!-- gpu_estimate.py: begin -->\n", "<!-- gpu_estimate.py: end -->\n"

# name: value, unit, source
CONSTANTS = {
    "bandwidth": (4.15e6, "B/us", "reading weights; a device copy reaches 4.3 TB/s on an H200, the data sheet says 4.8"),
    "sms": (132, "", "data sheet"),
    "clock": (1800, "cycles/us", "between 1.8 and 1.98 GHz under load"),
    "boundary": (1.25, "us", "idle time between dependent kernels of a graph, published for an H100: 1.3"),
    "l2": (0.16, "us", "latency of a hit in L2, published micro-benchmarks"),
    "dram": (0.45, "us", "latency of memory, published micro-benchmarks: 0.4 to 0.7"),
    "turn": (0.65, "us", "a warp's loads, products and next loads under load: memory latency and 0.2"),
    "ramp": (1.75, "us", "first loads and last blocks of a product; a guess from published GEMV curves"),
    "group": (0.15, "us", "a block's barriers and sums between two groups of outputs; a guess"),
    "pick": (7.5, "us", "radix selection of 2,048 of 11,022 candidates: three digits, atomics in shared memory; a guess"),
    "union": (3.5, "us", "marks and lists of a union of tokens without boundaries; a guess"),
    "host": (50.0, "us", "uploads, downloads and the wait of a token; a guess"),
}
C = {name: value for name, (value, _, _) in CONSTANTS.items()}
HIDDEN, FFN, KV, VOCAB, LAYERS = 4096, 14336, 1024, 128256, 32
CONTEXT = 300


@dataclass
class Kernels:
    """What the code of the kernels does; the default is today's."""
    blocks: dict = field(default_factory=dict)  # blocks per multiprocessor
    loads: dict = field(default_factory=dict)   # 16-byte loads in flight per thread
    norm_turns: int = 1        # dependent turns of a thread over a row of 4,096
    rope_turns: int = 1
    attention_turns: int = 1   # of keys and values
    query_turns: int = 1
    last_block_once: bool = True
    round: int = 120           # cycles to find one more key in a warp
    sort: dict = field(default_factory=lambda: {1: 0, 4: 60, 8: 200, 16: 700})
    short_merge: bool = True   # a merge follows sorted lists
    chunk: object = None       # outputs per block of a head of so many rows

    def top(self, k, keys):
        """Selects the k largest of a warp's keys."""
        return (self.sort[keys] if k > 1 else 0) / C["clock"] + k * self.round / C["clock"]

    def block_top(self, k, keys):
        return 2 * self.top(k, keys) if not self.short_merge else self.top(k, keys) + self.top(k, 1)


def head_chunk(support):
    """As matmul_topk_outputs()."""
    outputs = 256
    while outputs > 16 and support < 240 * outputs:
        outputs //= 2
    return outputs


def current():
    files = json.loads(BUDGETS.read_text())["files"]
    # One load for each eight rows is of activations, which are in L2.
    named = {"matmul1": ("matmul.cu", "matmul_kernel<1,1,4>", 1), "matmul2": ("matmul.cu", "matmul_kernel<2,1,4>", 2),
             "head1": ("head.cu", "head_kernel<1,2>", 1), "head_small": ("head.cu", "head_kernel<1,1>", 1),
             "head2": ("head.cu", "head_kernel<2,2>", 2), "router1": ("router.cu", "router_kernel<1>", 1),
             "router2": ("router.cu", "router_kernel<2>", 2)}
    found = {key: (files[file][name], tiles) for key, (file, name, tiles) in named.items()}
    return Kernels(blocks={key: b["blocks"] for key, (b, _) in found.items()},
                   loads={key: b["loads"] - tiles for key, (b, tiles) in found.items()}, chunk=head_chunk)


def first_version():
    """The kernels before loads were moved in front of stores, as disassembled then."""
    return Kernels(blocks={"matmul1": 4, "matmul2": 3, "head1": 2, "head2": 2, "router1": 2, "router2": 2},
                   loads=dict.fromkeys(("matmul1", "matmul2", "head1", "head2", "router1", "router2"), 8),
                   norm_turns=16, rope_turns=14, attention_turns=8, query_turns=2, last_block_once=False, round=540,
                   sort={1: 0, 4: 0, 8: 0, 16: 0}, short_merge=False, chunk=lambda support: 256)


class Estimate:
    """Times in microseconds. A method that ends in `_op` contains the boundaries of its launches."""

    def __init__(self, kernels):
        self.k = kernels

    # Single kernels
    def stream(self, name, size, blocks, groups=1):
        """A product that reads `size` bytes of weights once, by `blocks` blocks of eight warps."""
        resident = min(blocks, C["sms"] * self.k.blocks[name])
        in_flight = resident * 8 * 32 * 16 * self.k.loads[name]
        waves = -(-blocks // resident)
        return size / min(C["bandwidth"], in_flight / C["turn"]) + C["ramp"] + (groups * waves * C["group"] if groups > 1 else 0)

    def product_op(self, outputs, columns, rows=1):
        name = "matmul1" if rows <= 8 else "matmul2"
        per_block = 64 if columns <= 1024 and outputs >= 8192 else 16
        return self.stream(name, 2 * outputs * columns, outputs // per_block) + C["boundary"]

    def norm_op(self):
        return self.k.norm_turns * C["dram"] + C["l2"] + 0.2 + C["boundary"]

    def rope_op(self):
        turns = 0.28 * self.k.rope_turns if self.k.rope_turns > 1 else C["dram"]
        return C["l2"] + turns + 0.15 + C["boundary"]

    def small_op(self):
        """One load, one store."""
        return C["l2"] + 0.5 + C["boundary"]

    def attention_op(self, rows=1):
        """Partial sums and their merge. A tile has up to four rows of four heads; the sums of a row take 1.4 us."""
        tile = min(rows, 4)
        load = self.k.attention_turns * C["dram"] + (0.2 if self.k.attention_turns == 1 else 0)
        start = 2 * C["l2"] + self.k.query_turns * C["l2"]
        sums = 0.9 if self.k.last_block_once else 1.4
        last = load + 0.5 + tile * sums if self.k.last_block_once else tile * (load + sums)
        partial = start + (last if tile > 1 else load + sums) + C["boundary"]
        return partial + 2.3

    def select_op(self, k):
        """Top k of the logits of a row, two kernels."""
        chunk = C["l2"] + 0.3 + self.k.block_top(k, 16)
        merge = C["l2"] + 0.1 + (self.k.top(k, 1) if self.k.short_merge else self.k.block_top(k, 16))
        return chunk + merge + 2 * C["boundary"]

    def head_op(self, support, columns=HIDDEN, k=10, rows=1):
        """A product with its selection, two kernels."""
        outputs = self.k.chunk(support)
        blocks = -(-support // outputs)
        name = "head2" if rows > 8 else "head_small" if outputs < 32 else "head1"
        groups = max(1, outputs // 32)
        select = self.k.top(k, 8 if outputs > 32 else 1) * (2 if rows > 8 else 1)
        product = self.stream(name, 2 * support * columns, blocks, groups) + select
        if self.k.short_merge:
            merge = 2 * C["l2"] + 0.2 + self.k.block_top(k, 4) + (self.k.top(k, 1) if k > 1 else 0)
        else:
            merge = C["l2"] + 0.2 + -(-blocks * k // 4096) * self.k.block_top(k, 16)
        return product + merge + 2 * C["boundary"]

    # Heads
    def low_rank(self, rank, k=10):
        return {"down": self.product_op(rank, HIDDEN), "round": self.small_op(), "head": self.head_op(VOCAB, rank, k)}

    def indexed_op(self, listed, rows=1):
        """A product of listed outputs; their numbers are read first."""
        name = "matmul1" if rows <= 8 else "matmul2"
        return 2 * C["l2"] + self.stream(name, 2 * listed * HIDDEN, -(-listed // 16)) + C["boundary"]

    def router_select(self, rows=1):
        """The router's selection without its product: 22 keys of each block, then the pick."""
        return self.k.top(22, 8) * (2 if rows > 8 else 1) + C["pick"] + C["boundary"]

    def specvocab(self, rows=1, union=2048):
        name = "router1" if rows <= 8 else "router2"
        return {"down": self.product_op(512, HIDDEN, rows), "round": self.small_op(),
                "router": self.stream(name, 2 * VOCAB * 512, -(-VOCAB // 256), 8) + C["boundary"],
                "selection": self.router_select(rows), "union": C["union"] + 2 * C["boundary"],
                "indexed": self.indexed_op(union, rows), "top 10": self.select_op(10)}

    # Layers and rounds
    def layer(self, rows=1, qkv_columns=HIDDEN, norms=2, copies=0):
        products = (self.product_op(HIDDEN + 2 * KV, qkv_columns, rows) + self.product_op(HIDDEN, HIDDEN, rows) +
                    self.product_op(2 * FFN, HIDDEN, rows) + self.product_op(HIDDEN, FFN, rows))
        return {"products": products, "norms": norms * self.norm_op(), "rope": self.rope_op(),
                "attention": self.attention_op(rows), "silu": self.small_op(), "copies": copies * self.small_op()}

    def draft_layer(self):
        return self.layer(qkv_columns=2 * HIDDEN, norms=3, copies=2)

    def token(self):
        layer = sum(self.layer().values())
        return {"layers": LAYERS * layer, "norm": self.norm_op(), "LM head": self.product_op(VOCAB, HIDDEN),
                "select": self.select_op(1), "host": C["host"]}

    def round(self, nodes=6):
        head, layer = sum(self.low_rank(512).values()), sum(self.draft_layer().values())
        rows = nodes + 1
        verify = LAYERS * sum(self.layer(rows).values()) + self.norm_op() + self.product_op(VOCAB, HIDDEN, rows)
        level = self.norm_op() + self.small_op() + C["boundary"] + C["l2"] + self.k.block_top(1, 16)
        return {"catch-up": self.product_op(HIDDEN, 3 * HIDDEN, rows) + layer, "heads": nodes * head,
                "draft layers": (nodes - 1) * layer, "levels": nodes * level, "verification": verify,
                "selection, acceptance, compaction": self.select_op(1) + 4 * self.small_op() + 20, "host": 2 * C["host"]}


@dataclass
class Row:
    name: str
    goal: float
    parts: object
    needed: str
    unit: str = "us"


GEMV = "a pipeline of bulk copies, so that the product reads at 4.3 TB/s, and no second launch"
ROWS = [
    Row("full head, top 10", 262, lambda e: {"head": e.head_op(VOCAB)}, GEMV),
    Row("SlimSpec d/8", 40, lambda e: e.low_rank(512), "k split over a cluster for the first factor, both factors in one launch"),
    Row("SpecVocab d/8, M = 1", 57, lambda e: e.specvocab(),
        "four launches in place of nine: threshold in place of the pick, union inside it, indexed product with its selection"),
    Row("SpecVocab d/8, M = 10, union of 4,096", 75, lambda e: e.specvocab(10, 4096), "as M = 1"),
    Row("VocabTrim 32k", 72, lambda e: {"head": e.head_op(32768)}, GEMV),
    Row("MicroSpec, 3,072 rows", 11, lambda e: {"head": e.head_op(3072)}, "merge by the last block in place of a second launch"),
    Row("selection of 2,048 beside the router", 6, lambda e: {"selection": e.router_select()},
        "a threshold from the last round in place of the radix pick"),
    Row("indexed product, 2,048 rows", 7, lambda e: {"product": e.indexed_op(2048)}, "launch before the previous kernel ends"),
    Row("draft layer", 135, lambda e: e.draft_layer(), "launches that overlap (PDL), and norm, rope and silu inside the products"),
    Row("autoregressive token, 8B", 1e6 / 240, lambda e: e.token(), "launches that overlap (PDL), six kernels a layer in place of ten"),
    Row("EAGLE-3 round, n = 6, d/8 head", 5400, lambda e: e.round(), "the same, and a round as one graph"),
]


def number(us):
    return f"{us:,.0f} us" if us >= 100 else f"{us:.1f} us"


def table():
    then, now = Estimate(first_version()), Estimate(current())
    lines = ["| what | goal | estimate, first kernels | estimate, now | what it would take |\n", "| --- | --: | --: | --: | --- |\n"]
    for row in ROWS:
        before, after = (sum(row.parts(e).values()) for e in (then, now))
        rate = [f" ({1e6 / t:.0f} tok/s)" if row.name.startswith("autoregressive") else "" for t in (row.goal, before, after)]
        lines.append(f"| {row.name} | {number(row.goal)}{rate[0]} | {number(before)}{rate[1]} | {number(after)}{rate[2]} | "
                     f"{row.needed if after > row.goal else ''} |\n")
    return "".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if not (arguments.write or arguments.check):
        for name, (value, unit, source) in CONSTANTS.items():
            print(f"{name:10} {value:>12,} {unit:10} {source}")
        print("\n" + table())
        for row in ROWS:
            for label, kernels in (("first", first_version()), ("now", current())):
                parts = ", ".join(f"{name} {us:.1f}" for name, us in row.parts(Estimate(kernels)).items())
                print(f"{row.name}, {label}: {parts}")
        return 0
    text = DOCUMENT.read_text()
    before, rest = text.split(BEGIN)
    wanted = before + BEGIN + table() + END + rest.split(END)[1]
    if arguments.write:
        DOCUMENT.write_text(wanted)
    elif wanted != text:
        print("gpu_estimate: the table of docs/design/gpu.md is out of date; run tools/gpu_estimate.py --write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
