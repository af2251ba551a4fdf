#!/usr/bin/env python3
"""Checks tools/sass_budget.py and tools/gpu_estimate.py against values computed by hand. Needs neither nvcc nor a GPU."""
import json
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import gpu_estimate  # noqa: E402
import sass_budget  # noqa: E402

PTXAS = """ptxas info    : Compiling entry function '_ZN1a6kernelE' for 'sm_90'
ptxas info    : Function properties for _ZN1a6kernelE
    16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 1024 bytes smem
"""
# A product loop with two loads of weights ahead, of which one stands before the wait, and one of a row; a copy loop whose second
# load follows a store; and a ticket that is taken without a fence the second time.
SASS = """.text.product:
.L_x_0:
        /*0000*/                   LDG.E.NA.LTC128B.128 R4, desc[UR4][R2.64] ;
        /*0010*/                   ACQBULK ;
        /*0020*/              @!P0 LDG.E.NA.LTC128B.128 R8, desc[UR4][R2.64+0x10] ;
        /*0030*/                   LDG.E.128 R12, desc[UR4][R2.64+0x20] ;
        /*0040*/                   HMMA.16816.F32.BF16 R16, R4, R8, R16 ;
        /*0050*/               @P1 BRA `(.L_x_0) ;
        /*0060*/                   EXIT ;
.text.ticket:
        /*0000*/                   STG.E desc[UR4][R6.64], R4 ;
        /*0010*/                   MEMBAR.SC.GPU ;
        /*0020*/                   ATOMG.E.ADD.STRONG.GPU PT, R2, desc[UR4][R2.64], R5 ;
        /*0030*/                   STG.E desc[UR4][R6.64], R4 ;
        /*0040*/                   ATOMG.E.ADD.STRONG.GPU PT, R2, desc[UR4][R2.64], R5 ;
        /*0050*/                   EXIT ;
.text.copy:
.L_x_1:
        /*0000*/                   LDG.E R4, desc[UR4][R2.64] ;
        /*0010*/                   STG.E desc[UR4][R6.64], R4 ;
        /*0020*/                   LDG.E R4, desc[UR4][R2.64+0x4] ;
        /*0030*/                   STG.E desc[UR4][R6.64+0x4], R4 ;
        /*0040*/               @P1 BRA `(.L_x_1) ;
        /*0050*/                   EXIT ;
"""


class SassBudget(unittest.TestCase):
    def test_blocks_per_multiprocessor(self):
        # 64 registers: 2,048 a warp, 8 warps in each part, 32 in all, which is four blocks of eight.
        self.assertEqual(sass_budget.blocks_per_sm(64, 256, 0), 4)
        self.assertEqual(sass_budget.blocks_per_sm(80, 256, 0), 3)
        self.assertEqual(sass_budget.blocks_per_sm(129, 256, 0), 1)
        # 47 KB and the reserved KB: four of 48 KB fit into 228 KB.
        self.assertEqual(sass_budget.blocks_per_sm(48, 128, 47 * 1024), 4)
        self.assertEqual(sass_budget.blocks_per_sm(32, 1024, 0), 2)

    def test_reads_ptxas(self):
        self.assertEqual(sass_budget.parse_ptxas(PTXAS), {"_ZN1a6kernelE": {"registers": 40, "shared": 1024, "spills": 12}})

    def test_reads_the_disassembly(self):
        self.assertEqual(sass_budget.parse_sass(SASS), {"product": {"loads": 2, "early": 1, "turns": 0, "unfenced": 0},
                                                        "ticket": {"loads": 0, "early": 0, "turns": 0, "unfenced": 1},
                                                        "copy": {"loads": 1, "early": 0, "turns": 1, "unfenced": 0}})

    def test_names_what_is_over(self):
        budget = {"threads": 256, "registers": 64, "blocks": 4, "shared": 0, "dynamic": 0, "spills": 0, "loads": 8, "early": 8, "turns": 0, "unfenced": 0}
        fine = {key: budget[key] for key in ("registers", "shared", "spills", "loads", "early", "turns", "unfenced")}
        self.assertEqual(list(sass_budget.over_budget("k", fine, budget)), [])
        for key, value, words in (("registers", 72, "registers 72, budget 64"), ("spills", 4, "spills 4"), ("turns", 1, "turns 1"),
                                  ("loads", 4, "4 loads in flight"), ("early", 2, "2 loads before the wait"), ("unfenced", 1, "unfenced 1"),
                                  ("registers", 72, "3 blocks per multiprocessor")):
            self.assertIn(words, "; ".join(sass_budget.over_budget("k", {**fine, key: value}, budget)))


class GpuEstimate(unittest.TestCase):
    def near(self, value, by_hand, tolerance=0.001):
        self.assertLess(abs(value / by_hand - 1), tolerance, f"{value} instead of {by_hand}")

    def test_a_product_is_bound_by_bandwidth_or_by_its_blocks(self):
        e = gpu_estimate.Estimate(gpu_estimate.first_version())
        # 6,144 x 4,096 values in 384 blocks: 50.3 MB at 4.15 TB/s, ramp and boundary.
        self.near(e.product_op(6144, 4096), 50.331648 / 4.15 + 1.75 + 1.25)
        # 512 x 4,096 in 32 blocks: 32 x 256 threads x 8 loads of 16 bytes every 0.65 us.
        self.near(e.product_op(512, 4096), 4194304 / (32 * 256 * 8 * 16 / 0.65) + 1.75 + 1.25)

    def test_a_head_of_few_rows_has_small_blocks(self):
        chunks = {128256: 256, 61440: 256, 61439: 128, 32768: 128, 16384: 64, 8192: 32, 3072: 16, 1: 16}
        self.assertEqual({rows: gpu_estimate.head_chunk(rows) for rows in chunks}, chunks)

    def test_the_first_kernels_agree_with_an_estimate_by_hand(self):
        # Middles of ranges that were worked out by hand from the disassembly of the first kernels, in microseconds.
        by_hand = [282, 56, 97.5, 112.5, 83.5, 62.5, 13.5, 7.25, 177.5, 5190, 7300]
        e = gpu_estimate.Estimate(gpu_estimate.first_version())
        for row, middle in zip(gpu_estimate.ROWS, by_hand):
            self.near(row.total(e), middle, 0.15)

    def test_kernels_that_overlap_hide_boundaries_and_first_loads(self):
        e = gpu_estimate.Estimate(gpu_estimate.current())
        e.k.blocks["matmul1"], e.k.loads["matmul1"], e.k.early["matmul1"] = 4, 8, 8
        # 4,096 x 14,336 in 256 blocks: 2.02 us of its weights arrive while memory is idle, less if that is shorter.
        full = 117.440512 / 4.15 + 1.75 + 0.5
        self.near(e.product_op(4096, 14336, idle=5), full - 256 * 8 * 32 * 16 * 8 / 4.15e6)
        self.near(e.product_op(4096, 14336, idle=0.5), full - 1.0)
        # Loads behind the wait hide nothing.
        e.k.early["matmul1"] = 0
        self.near(e.product_op(4096, 14336, idle=5), full)

    def test_every_goal_is_met(self):
        self.assertEqual(gpu_estimate.missed(gpu_estimate.Estimate(gpu_estimate.current())), [])

    def test_an_h100_has_its_own_bandwidth_and_goals(self):
        kept, gpu_estimate.C["bandwidth"] = gpu_estimate.C["bandwidth"], gpu_estimate.BANDWIDTHS["h100"]
        self.addCleanup(gpu_estimate.C.__setitem__, "bandwidth", kept)
        e = gpu_estimate.Estimate(gpu_estimate.current())
        self.near(e.product_op(6144, 4096), 50.331648 / 2.95 + 1.75 + 0.5, 0.1)
        self.assertEqual(gpu_estimate.missed(e, "h100"), [])
        self.assertIn("full head, top 10", "; ".join(gpu_estimate.missed(e)), "the goals of an H200 are missed for its bandwidth alone")
        for row in gpu_estimate.ROWS:
            self.assertGreaterEqual(row.h100, row.goal)

    def test_document_has_this_table(self):
        self.assertIn(gpu_estimate.BEGIN + gpu_estimate.table() + gpu_estimate.END, gpu_estimate.DOCUMENT.read_text())

    def test_profile_is_the_estimate(self):
        self.assertEqual(gpu_estimate.PROFILE.read_text(), gpu_estimate.profile())
        curves = {(c["part"], c.get("head")): c["terms"] for c in json.loads(gpu_estimate.profile())["costs"]}
        ms = lambda part, head=None, **sizes: sum(cost * {"fixed": 1, **sizes}[term] for term, cost in curves[part, head].items())
        # EAGLE-3's round: a chain of six drafts and SlimSpec at d/8.
        steps = (ms("verify", row=7, cached=300) + ms("overhead") + ms("catch_up") + 5 * ms("level") + 6 * ms("head", "slimspec", size=512, row=1))
        self.assertAlmostEqual(1000 * steps / sum(gpu_estimate.Estimate(gpu_estimate.current()).round().values()), 1, delta=0.01)
        self.assertAlmostEqual(1000 * ms("head", "fr-spec", size=32768, row=1), 69.0, delta=0.5)


if __name__ == "__main__":
    unittest.main()
