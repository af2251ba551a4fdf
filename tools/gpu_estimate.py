#!/usr/bin/env python3
"""Estimates how long GPU kernels, heads and rounds take for the shape of Llama-3.1-8B on an H200 or H100, beside the goals of
docs/design/gpu.md. Nothing here was measured on a GPU: a time is the sum of bytes over bandwidth, chains of dependent
memory accesses, and launch boundaries. Occupancy, loads in flight and loads before the wait come from tools/sass_budgets.json.

usage: tools/gpu_estimate.py [--card h100|h200]    prints the constants, the table and the parts of every row
       tools/gpu_estimate.py --write         writes it, and the machine profile of the same times in assets/profiles
       tools/gpu_estimate.py --check         exit code 1 if one of the two is another one
"""
import argparse
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUDGETS = ROOT / "tools/sass_budgets.json"
DOCUMENT = ROOT / "docs/design/gpu.md"
PROFILE = ROOT / "assets/profiles/h200-llama-3.1-8b-estimate.json"
BEGIN, END = "<!-- gpu_estimate.py: begin -->\n", "<!-- gpu_estimate.py: end -->\n"

# name: value, unit, source
CONSTANTS = {
    "bandwidth": (4.15e6, "B/us", "reading weights; a device copy reaches 4.3 TB/s on an H200, the data sheet says 4.8"),
    "sms": (132, "", "data sheet"),
    "clock": (1800, "cycles/us", "between 1.8 and 1.98 GHz under load"),
    "boundary": (1.25, "us", "idle time between dependent kernels of a graph, published for an H100: 1.3"),
    "overlapped": (0.5, "us", "what is left of it if a kernel starts early and waits inside: three accesses of L2; a guess"),
    "l2": (0.16, "us", "latency of a hit in L2, published micro-benchmarks"),
    "dram": (0.45, "us", "latency of memory, published micro-benchmarks: 0.4 to 0.7"),
    "turn": (0.65, "us", "a warp's loads, products and next loads under load: memory latency and 0.2"),
    "ramp": (1.75, "us", "first loads and last blocks of a product; a guess from published GEMV curves"),
    "group": (0.15, "us", "a block's four barriers and two passes of sums between two groups of outputs; a third with one of each; a guess"),
    "pick": (3.8, "us", "2,048 of 11,022 candidates: 88 KB read by a block 1.1, counts 1.0, places 0.8, marks and list 0.9; a guess"),
    "pick_first": (7.5, "us", "the same by three digits, most keys in few bins; a guess"),
    "union": (2.0, "us", "union of up to 32,768 tokens by one block in shared memory; a guess"),
    "union_first": (6.0, "us", "the same by two kernels with marks in L2, boundaries included; a guess"),
    "host": (50.0, "us", "uploads, downloads and the wait of a token; a guess"),
}
C = {name: value for name, (value, _, _) in CONSTANTS.items()}
# An H100 SXM reads weights at 2.95 TB/s of 3.35 of its data sheet, by the share of the H200. The rest is alike.
BANDWIDTHS = {"h200": C["bandwidth"], "h100": 2.95e6}
HIDDEN, FFN, KV, VOCAB, LAYERS = 4096, 14336, 1024, 128256, 32
CONTEXT = 300


@dataclass
class Kernels:
    """What the code of the kernels does; the default is today's."""
    blocks: dict = field(default_factory=dict)  # blocks per multiprocessor
    loads: dict = field(default_factory=dict)   # 16-byte loads of weights in flight per thread
    early: dict = field(default_factory=dict)   # those of them that a thread asks for before it waits
    norm_turns: int = 1        # dependent turns of a thread over a row of 4,096
    rope_turns: int = 1
    attention_turns: int = 1   # of keys and values
    query_turns: int = 1
    last_block_once: bool = True
    round: int = 120           # cycles to find one more key in a warp
    sort: dict = field(default_factory=lambda: {1: 0, 4: 60, 8: 200, 16: 700})
    short_merge: bool = True   # a merge follows sorted lists
    overlap: bool = True       # kernels start early; products ask for weights before they wait
    one_launch: bool = True    # selections and unions take one launch; few keys are ranked by counting
    one_barrier: bool = True   # between two groups of outputs, with few rows
    chunk: object = None       # outputs per block of a head of so many rows

    @property
    def boundary(self):
        return C["overlapped" if self.overlap else "boundary"]

    @staticmethod
    def rank(keys):
        """Counts the larger ones of up to 128 keys for each of them: four instructions a key."""
        return (4 * keys + 60) / C["clock"]

    def top(self, k, keys):
        """Selects the k largest of a warp's keys."""
        return (self.sort[keys] if k > 1 else 0) / C["clock"] + k * self.round / C["clock"]

    def block_top(self, k, keys):
        if self.one_launch and 8 * k <= 128:
            return (self.rank(32) if keys == 1 and k > 1 else self.top(k, keys)) + self.rank(8 * k)
        return 2 * self.top(k, keys) if not self.short_merge else self.top(k, keys) + self.top(k, 1)


def head_chunk(support):
    """As matmul_topk_outputs()."""
    outputs = 256
    while outputs > 16 and support < 240 * outputs:
        outputs //= 2
    return outputs


def current():
    files = json.loads(BUDGETS.read_text())["files"]
    named = {"few": ("matmul.cu", "matmul_kernel<1,1,16>"), "matmul1": ("matmul.cu", "matmul_kernel<1,1,4>"),
             "matmul2": ("matmul.cu", "matmul_kernel<2,1,4>"), "head1": ("head.cu", "head_kernel<1,2>"),
             "head_small": ("head.cu", "head_kernel<1,1>"), "head2": ("head.cu", "head_kernel<2,2>"),
             "router1": ("router.cu", "router_kernel<1>"), "router2": ("router.cu", "router_kernel<2>")}
    found = {key: files[file][name] for key, (file, name) in named.items()}
    return Kernels(blocks={key: b["blocks"] for key, b in found.items()}, loads={key: b["loads"] for key, b in found.items()},
                   early={key: b["early"] for key, b in found.items()}, chunk=head_chunk)


def first_version():
    """The kernels before loads were moved in front of stores, as disassembled then."""
    return Kernels(blocks={"few": 4, "matmul1": 4, "matmul2": 3, "head1": 2, "head2": 2, "router1": 2, "router2": 2},
                   loads=dict.fromkeys(("few", "matmul1", "matmul2", "head1", "head2", "router1", "router2"), 8),
                   norm_turns=16, rope_turns=14, attention_turns=8, query_turns=2, last_block_once=False, round=540,
                   sort={1: 0, 4: 0, 8: 0, 16: 0}, short_merge=False, overlap=False, one_launch=False, one_barrier=False,
                   chunk=lambda support: 256)


def product_kernel(outputs, rows):
    """The kernel of a product, as kernels/cuda/matmul.cu chooses it."""
    return "matmul2" if rows > 8 else "few" if outputs <= 2048 else "matmul1"


class Estimate:
    """Times in microseconds. A method that ends in `_op` contains the boundaries of its launches."""

    def __init__(self, kernels):
        self.k = kernels

    # Single kernels
    def stream(self, name, size, blocks, groups=1, idle=None):
        """A product that reads `size` bytes of weights once, by `blocks` blocks of eight warps. `idle` is the time before it in
        which memory is idle; None = weights are not known then. A kernel that overlaps asks for its first weights in that time."""
        resident = min(blocks, C["sms"] * self.k.blocks[name])
        load = resident * 8 * 32 * 16  # bytes of one load of all threads
        in_flight = min(load * self.k.loads[name], size)
        waves = -(-blocks // resident)
        early = 0
        if self.k.overlap and idle is not None:
            early = min(min(load * self.k.early[name], size) / C["bandwidth"], idle + self.k.boundary)
        group = C["group"] / (3 if self.k.one_barrier and not name.endswith("2") else 1)
        return size / min(C["bandwidth"], in_flight / C["turn"]) - early + C["ramp"] + (groups * waves * group if groups > 1 else 0)

    def product_op(self, outputs, columns, rows=1, idle=0.0):
        name = product_kernel(outputs, rows)
        per_block = 64 if columns <= 1024 and outputs >= 8192 else 16
        return self.stream(name, 2 * outputs * columns, outputs // per_block, idle=idle) + self.k.boundary

    def norm_op(self):
        """A kernel that overlaps has read the norm's weights before it waits; the row is in L2."""
        return (C["l2"] if self.k.overlap else self.k.norm_turns * C["dram"]) + C["l2"] + 0.2 + self.k.boundary

    def rope_op(self):
        turns = 0.28 * self.k.rope_turns if self.k.rope_turns > 1 else C["dram"]
        return C["l2"] + turns + 0.15 + self.k.boundary

    def small_op(self):
        """One load, one store."""
        return C["l2"] + 0.5 + self.k.boundary

    def attention_op(self, rows=1):
        """Partial sums and their merge. A tile has up to four rows of four heads; the sums of a row take 1.4 us."""
        tile = min(rows, 4)
        load = self.k.attention_turns * C["dram"] + (0.2 if self.k.attention_turns == 1 else 0)
        start = 2 * C["l2"] + self.k.query_turns * C["l2"]
        sums = 0.9 if self.k.last_block_once else 1.4
        last = load + 0.5 + tile * sums if self.k.last_block_once else tile * (load + sums)
        partial = start + (last if tile > 1 else load + sums) + self.k.boundary
        return partial + 1.05 + self.k.boundary

    def last_block(self):
        """Two fences and a ticket."""
        return 3 * C["l2"]

    def select_op(self, k, chunks=1):
        """Top k of the logits of a row."""
        chunk = C["l2"] + 0.3 + self.k.block_top(k, 16)
        if self.k.one_launch:
            lists = self.k.rank(chunks * k) if chunks * k <= 128 else self.k.top(k, 1)
            return chunk + self.last_block() + C["l2"] + 0.1 + lists + self.k.boundary
        merge = C["l2"] + 0.1 + (self.k.top(k, 1) if self.k.short_merge else self.k.block_top(k, 16))
        return chunk + merge + 2 * self.k.boundary

    def head_op(self, support, columns=HIDDEN, k=10, rows=1, idle=0.0):
        """A product with its selection."""
        outputs = self.k.chunk(support)
        blocks = -(-support // outputs)
        name = "head2" if rows > 8 else "head_small" if outputs < 32 else "head1"
        groups = max(1, outputs // 32)
        select = self.k.top(k, 8) if outputs >= 32 else self.k.rank(32)
        product = self.stream(name, 2 * support * columns, blocks, groups, idle) + select * (2 if rows > 8 else 1)
        if not self.k.short_merge:
            return product + C["l2"] + 0.2 + -(-blocks * k // 4096) * self.k.block_top(k, 16) + 2 * self.k.boundary
        merge = 2 * C["l2"] + 0.2 + self.k.block_top(k, 1 if blocks <= 256 else 4)
        if k > 1:
            merge += self.k.rank(k * k) if self.k.one_launch and k * k <= 128 else self.k.top(k, 1)
        return product + merge + self.k.boundary + (self.last_block() if self.k.one_launch and rows == 1 else self.k.boundary)

    # Heads
    def low_rank(self, rank, k=10, rows=1):
        down, cast = self.product_op(rank, HIDDEN, rows), self.small_op()
        return {"down": down, "cast": cast, "head": self.head_op(VOCAB, rank, k, rows, cast)}

    def indexed_op(self, listed, rows=1):
        """A product of listed outputs; their numbers are read first."""
        name = product_kernel(listed, rows)
        return 2 * C["l2"] + self.stream(name, 2 * listed * HIDDEN, -(-listed // 16)) + self.k.boundary

    def router_select(self, rows=1):
        """The router's selection without its product: 22 keys of each block, then the pick."""
        pick = C["pick" if self.k.one_launch else "pick_first"]
        return self.k.top(22, 8) * (2 if rows > 8 else 1) + pick + self.k.boundary

    def specvocab(self, rows=1, union=2048):
        name = "router1" if rows <= 8 else "router2"
        cast = self.small_op()
        return {"down": self.product_op(512, HIDDEN, rows), "cast": cast,
                "router": self.stream(name, 2 * VOCAB * 512, -(-VOCAB // 256), 8, cast) + self.k.boundary,
                "selection": self.router_select(rows),
                "union": C["union"] + self.k.boundary if self.k.one_launch else C["union_first"],
                "indexed": self.indexed_op(union, rows), "top 10": self.select_op(10)}

    # Layers and rounds
    def layer(self, rows=1, qkv_columns=HIDDEN, norms=2, copies=0):
        norm, rope, attention, silu = self.norm_op(), self.rope_op(), self.attention_op(rows), self.small_op()
        copied = copies * self.small_op()
        products = (self.product_op(HIDDEN + 2 * KV, qkv_columns, rows, (norms - 1) * norm + copied) +
                    self.product_op(HIDDEN, HIDDEN, rows, rope + attention) + self.product_op(2 * FFN, HIDDEN, rows, norm) +
                    self.product_op(HIDDEN, FFN, rows, silu))
        return {"products": products, "norms": norms * norm, "rope": rope, "attention": attention, "silu": silu, "copies": copied}

    def layer_of_six_kernels(self, prologue):
        """A layer whose norms, RoPE and SiLU are parts of its products, so that nothing is asked for in their time; each of two
        products waits `prologue` for its norm (docs/decisions/0035-ten-kernels-a-layer.md)."""
        attention = self.attention_op()
        products = (self.product_op(HIDDEN + 2 * KV, HIDDEN) + self.product_op(HIDDEN, HIDDEN, idle=attention) +
                    self.product_op(2 * FFN, HIDDEN) + self.product_op(HIDDEN, FFN))
        return {"products": products + 2 * prologue, "attention": attention}

    def draft_layer(self):
        return self.layer(qkv_columns=2 * HIDDEN, norms=3, copies=2)

    def token(self):
        layer, norm = sum(self.layer().values()), self.norm_op()
        return {"layers": LAYERS * layer, "norm": norm, "LM head": self.product_op(VOCAB, HIDDEN, idle=norm),
                "select": self.select_op(1, 32), "host": C["host"]}

    def round(self, nodes=6):
        head, layer = sum(self.low_rank(512).values()), sum(self.draft_layer().values())
        rows, norm = nodes + 1, self.norm_op()
        verify = LAYERS * sum(self.layer(rows).values()) + norm + self.product_op(VOCAB, HIDDEN, rows, norm)
        level = norm + self.small_op() + self.k.boundary + C["l2"] + self.k.block_top(1, 16)
        return {"catch-up": self.product_op(HIDDEN, 3 * HIDDEN, rows) + layer, "heads": nodes * head,
                "draft layers": (nodes - 1) * layer, "levels": nodes * level, "verification": verify,
                "selection, acceptance, compaction": self.select_op(1, 32) + 4 * self.small_op() + 20, "host": 2 * C["host"]}


@dataclass
class Row:
    """`goal` is that of an H200 in microseconds, `h100` that of an H100: the same share of its bandwidth."""
    name: str
    goal: float
    h100: float
    parts: object

    def goal_of(self, card):
        return self.h100 if card == "h100" else self.goal

    def total(self, estimate):
        return sum(self.parts(estimate).values())


ROWS = [
    Row("full head, top 10", 262, 365, lambda e: {"head": e.head_op(VOCAB)}),
    Row("SlimSpec d/8", 40, 54, lambda e: e.low_rank(512)),
    Row("SpecVocab d/8, M = 1", 57, 72, lambda e: e.specvocab()),
    Row("SpecVocab d/8, M = 10, union of 4,096", 75, 84, lambda e: e.specvocab(10, 4096)),
    Row("VocabTrim 32k", 72, 98, lambda e: {"head": e.head_op(32768)}),
    Row("MicroSpec, 3,072 rows", 11, 13.5, lambda e: {"head": e.head_op(3072)}),
    Row("selection of 2,048 beside the router", 6, 6, lambda e: {"selection": e.router_select()}),
    Row("indexed product, 2,048 rows", 7, 8.8, lambda e: {"product": e.indexed_op(2048)}),
    Row("draft layer", 135, 180, lambda e: e.draft_layer()),
    Row("autoregressive token, 8B", 1e6 / 240, 1e6 / 178, lambda e: e.token()),
    Row("EAGLE-3 round, n = 6, d/8 head", 5400, 7300, lambda e: e.round()),
]
# What the guesses may turn out to be.
WORSE = {"bandwidth": 4.0e6, "overlapped": 0.9, "turn": 0.8, "ramp": 2.25, "group": 0.25, "pick": 5.0, "union": 3.5, "host": 100.0}


def number(us):
    return f"{us:,.0f} us" if us >= 100 else f"{us:.1f} us"


def missed(estimate, card="h200"):
    return [f"{row.name} ({number(row.total(estimate))})" for row in ROWS if row.total(estimate) > row.goal_of(card)]


def table(card="h200"):
    """The estimate beside a card's goals. The constants are those of the card that was set last."""
    then, now = Estimate(first_version()), Estimate(current())
    lines = ["| what | goal | estimate, first kernels | estimate, now |\n", "| --- | --: | --: | --: |\n"]
    for row in ROWS:
        times = (row.goal_of(card), row.total(then), row.total(now))
        rates = [f" ({1e6 / t:.0f} tok/s)" if row.name.startswith("autoregressive") else "" for t in times]
        lines.append(f"| {row.name} | " + " | ".join(number(t) + rate for t, rate in zip(times, rates)) + " |\n")
    lines += ["\n", "| a constant, and a worse one | goals that are missed then |\n", "| --- | --- |\n"]
    for name, worse in WORSE.items():
        worse *= BANDWIDTHS[card] / BANDWIDTHS["h200"] if name == "bandwidth" else 1
        kept, C[name] = C[name], worse
        lines.append(f"| {name}, {kept:,} and {worse:,} {CONSTANTS[name][1]} | {'; '.join(missed(now, card)) or 'none'} |\n")
        C[name] = kept
    return "".join(lines)


def curve(part, points, terms, head=None, size_parameter=None):
    """A cost curve of a machine profile through `points`, with `terms` in milliseconds. Its error is unknown. Without points it
    holds for all sizes."""
    made = {"part": part, **({"drafter": "eagle3"} if part not in ("verify", "overhead") else {}), **({"head": head} if head else {}),
            **({"size_parameter": size_parameter} if size_parameter else {})}
    return {**made, "terms": {name: float(f"{ms:.6g}") for name, ms in terms.items() if ms > 0},
            "points": [{key: float(f"{value:.6g}") for key, value in point.items()} for point in points]}


def line(points, x, term):
    """Least squares of a straight line through the points' times, against their field `x`."""
    n = len(points)
    mean_x, mean_y = sum(p[x] for p in points) / n, sum(p["ms"] for p in points) / n
    slope = sum((p[x] - mean_x) * (p["ms"] - mean_y) for p in points) / sum((p[x] - mean_x) ** 2 for p in points)
    return {"fixed": mean_y - slope * mean_x, term: slope}


def profile():
    """The estimate as a machine profile, from which `draftscope sweep` and `advise` predict."""
    e = Estimate(current())
    total = lambda parts: sum(parts.values())
    norm, nodes = e.norm_op(), 6
    cached = LAYERS * 2 * KV * 2 / C["bandwidth"] / 1000  # keys and values of a token
    verified = [{"rows": rows, "context": CONTEXT, "ms": (LAYERS * total(e.layer(rows)) + norm + e.product_op(VOCAB, HIDDEN, rows, norm)) / 1000}
                for rows in (1, 2, 4, 7, 8, 12, 16)]
    verify = line(verified, "rows", "row")
    verify["fixed"] -= CONTEXT * cached
    verified += [{**point, "context": long, "ms": point["ms"] + (long - CONTEXT) * cached} for long in (1, 32768) for point in verified[:1]]
    round_ = e.round(nodes)
    level = (round_["levels"] / nodes + total(e.draft_layer())) / 1000
    overhead = (round_["selection, acceptance, compaction"] + round_["host"]) / 1000
    read = (e.product_op(HIDDEN, 3 * HIDDEN, 2) + round_["levels"] / nodes + total(e.draft_layer())) / 1000
    costs = [curve("verify", verified, {**verify, "cached": cached}), curve("overhead", [], {"fixed": overhead}),
             curve("catch_up", [], {"fixed": read}), curve("level", [], {"fixed": level})]
    def head(name, us, parameter=None, sizes=(None,)):
        """One row and ten rows, as in a chain and in EAGLE-2's trees. The rows' time is the same for all sizes."""
        points = [{"rows": rows, **({"size": size} if size else {}), "ms": us(size, rows) / 1000} for size in sizes for rows in (1, 10)]
        one = points[::2]
        row = sum(ten["ms"] - first["ms"] for first, ten in zip(one, points[1::2])) / len(one) / 9
        terms = line(one, "size", "size") if parameter else {"fixed": one[0]["ms"]}
        return curve("head", points, {**terms, "fixed": terms["fixed"] - row, "row": row}, name, parameter)

    costs += [head("full", lambda _, rows: e.head_op(VOCAB, rows=rows))]
    costs += [head(name, lambda v, rows: e.head_op(v, rows=rows), "v", (4096, 8192, 16384, 32768, 65536)) for name in ("fr-spec", "vocabtrim", "vocabtrim-t")]
    costs += [head("slimspec", lambda rank, rows: total(e.low_rank(rank, rows=rows)), "rank", (256, 512, 1024)),
              head("specvocab", lambda k, rows: total(e.specvocab(rows, k * min(rows, 2))), "k", (1024, 2048, 4096)),
              head("microspec", lambda wmax, rows: e.head_op(wmax, rows=rows), "wmax", (1024, 2048, 3072, 4096))]
    made = {"format": "draftscope-profile", "version": 1, "kind": "estimate", "source": "tools/gpu_estimate.py",
            "note": "Nothing of this was measured: times follow from bytes, bandwidth, latencies and the compiled kernels (docs/design/gpu.md). Trees of "
                    "more than 16 rows and batches are extrapolated.",
            "machine": "NVIDIA H200", "gpu": "NVIDIA H200", "backend": "cuda", "precision": "bf16", "model": "Llama-3.1-8B", "vocab": VOCAB,
            "hidden": HIDDEN, "layers": LAYERS}
    lines = ",\n".join("  " + json.dumps(one) for one in costs)
    return json.dumps(made, indent=1)[:-2] + ',\n "costs": [\n' + lines + "\n ]\n}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--card", choices=BANDWIDTHS, default="h200")
    arguments = parser.parse_args()
    if arguments.card != "h200" and (arguments.write or arguments.check):
        parser.error("--write and --check are of the H200, for which the document and the profile are")
    C["bandwidth"] = BANDWIDTHS[arguments.card]
    if not (arguments.write or arguments.check):
        for name, (value, unit, source) in CONSTANTS.items():
            print(f"{name:10} {value:>12,} {unit:10} {source}")
        print("\n" + table(arguments.card))
        for row in ROWS:
            for label, kernels in (("first", first_version()), ("now", current())):
                parts = ", ".join(f"{name} {us:.1f}" for name, us in row.parts(Estimate(kernels)).items())
                print(f"{row.name}, {label}: {parts}")
        e = Estimate(current())
        for name, prologue in (("free", 0), ("of two accesses of L2 and a sum", 2 * C["l2"] + 0.2)):
            saved = LAYERS * (sum(e.layer().values()) - sum(e.layer_of_six_kernels(prologue).values()))
            print(f"autoregressive token, six kernels a layer, norms {name}: {number(sum(e.token().values()) - saved)}")
        return 0
    text = DOCUMENT.read_text()
    before, rest = text.split(BEGIN)
    wanted = before + BEGIN + table() + END + rest.split(END)[1]
    if arguments.write:
        DOCUMENT.write_text(wanted)
        PROFILE.write_text(profile())
    elif profile() != PROFILE.read_text():
        print(f"gpu_estimate: {PROFILE.relative_to(ROOT)} is out of date; run tools/gpu_estimate.py --write", file=sys.stderr)
        return 1
    elif wanted != text:
        print("gpu_estimate: the table of docs/design/gpu.md is out of date; run tools/gpu_estimate.py --write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
