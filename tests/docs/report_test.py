#!/usr/bin/env python3
"""Checks tests/bench/report.py: what is kept, what is measured again, and the pages that kept results make.

usage: tests/docs/report_test.py [unittest arguments]
"""
import json
import stat
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/bench"), str(ROOT / "tools")]
import check_language  # noqa: E402
import report  # noqa: E402
import report_measurements  # noqa: E402
import report_reproduced  # noqa: E402

# Stands for draftscope: `doctor` says the machine, everything else counts its calls and fails if a file "fail" is there.
PROGRAM = """#!/usr/bin/env python3
import json, pathlib, sys
here = pathlib.Path(__file__).parent
if sys.argv[1] == "doctor":
    print(json.dumps({"cpu": "a CPU", "cores": 2, "isa": "avx2", "other_load_cpus": 0.0}))
    sys.exit(0)
calls = here / "calls"
calls.write_text((calls.read_text() if calls.exists() else "") + " ".join(sys.argv[1:]) + "\\n")
if (here / "fail").exists():
    print("no tokenizer", file=sys.stderr)
    sys.exit(2)
print(json.dumps({"said": sys.argv[1]}))
"""


def value(column, quantity, ours, published, interval=None):
    return {"column": column, "quantity": quantity, "ours": ours, "ours_interval": interval, "ours_sd": None, "published": published,
            "published_sd": None}


def row(name, taus, paper, rho=None, missing=None):
    ours = [None] * 3 if missing else [*taus, sum(taus) / 2]
    values = [value(column, "tau", tau, p, [tau - 0.1, tau + 0.1] if tau and column == "Average" else None)
              for column, tau, p in zip(("MT", "Code", "Average"), ours, paper)]
    return {"row": name, "kind": "measured", "method": None if missing else "eagle3 x " + name, "missing": missing, "notes": [],
            "speedup_vs_full": None, "speedup_vs_full_interval": None, "rho_tau": rho, "rho_tau_interval": [rho - 0.02, rho + 0.02] if rho else None, "values": values}


def reproduced(rows, **block):
    return {"paper": "FR-Spec", "title": "Average accepted length", "target": "SmolLM2", "vocabulary": 49152, "paper_vocabulary": 128256,
            "conversations": {"MT": 6, "Code": 6}, "tasks_left_out": [], "differences": ["prompts here: many", "tree: 60 in the paper, 60 here"],
            "blocks": [{"setup": "", "temperature": 0, "verify": "match", "verified": None, "rows": rows, **block}]}


ROWS = [row("full V=128k", (2.0, 3.0), (3.5, 4.0, 3.8), 1.0), row("fr-spec V=32k", (1.9, 2.6), (3.3, 3.9, 3.6), 0.9),
        row("fr-spec V=8k", (1.7, 2.4), (2.9, 3.2, 3.06), 0.82),
        row("dynaspec", (0, 0), (3.4, 3.9, 3.7), missing="/somewhere/else/assets/heads/d.safetensors: not found; fit one")]


class Folder(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = Path(self.temporary.name)
        self.addCleanup(self.temporary.cleanup)
        self.program = self.folder / "program"
        self.program.write_text(PROGRAM)
        self.program.chmod(self.program.stat().st_mode | stat.S_IXUSR)
        self.paths = {"raw": str(self.folder), "program": str(self.program), "build": str(self.folder)}

    def calls(self):
        calls = self.folder / "calls"
        return calls.read_text().splitlines() if calls.exists() else []

    def keep(self, measurement, result, **more):
        kept = {"name": measurement.name, "commit": "abc", "commands": measurement.commands, "machine": {"cpu": "a CPU", "cores": 2},
                "date": "2026-11-29", "seconds": 130, "result": result, **more}
        measurement.file(self.folder).write_text(json.dumps(kept))


class Measuring(Folder):
    def test_a_kept_result_of_the_same_commit_and_command_is_not_measured_again(self):
        one, two = (report.Measurement(name, [["{program}", name]]) for name in ("one", "two"))
        self.assertEqual(report.measure_all([one, two], self.paths, "abc"), [])
        self.assertEqual(self.calls(), ["one", "two"])
        self.assertEqual(report.stored(one, self.folder)["result"], {"said": "one"})
        two.file(self.folder).unlink()
        report.measure_all([one, two], self.paths, "abc")
        self.assertEqual(self.calls(), ["one", "two", "two"], "it goes on where it stopped")
        report.measure_all([one], self.paths, "abd")
        report.measure_all([report.Measurement("one", [["{program}", "one", "--limit", "7"]])], self.paths, "abd")
        self.assertEqual(self.calls()[3:], ["one", "one --limit 7"], "another commit, another setting")

    def test_a_failed_command_keeps_the_earlier_result_and_says_why(self):
        one = report.Measurement("one", [["{program}", "one"]])
        report.measure_all([one], self.paths, "abc")
        (self.folder / "fail").touch()
        problems = report.measure_all([one], self.paths, "abd")
        self.assertEqual(len(problems), 1)
        self.assertIn("no tokenizer", problems[0])
        self.assertEqual(report.stored(one, self.folder)["commit"], "abc")
        self.assertEqual([path for path in self.folder.iterdir() if path.suffix == ".part"], [])

    def test_what_is_missing_is_named_and_the_others_are_measured(self):
        lacks = report.Measurement("lacks", [["{program}", "lacks"]], [("{raw}/model.gguf", "make fetches it")])
        other = report.Measurement("other", [["{program}", "other"]])
        problems = report.measure_all([lacks, other], self.paths, "abc")
        self.assertEqual(problems, [f"lacks: needs {self.folder}/model.gguf: make fetches it"])
        self.assertEqual(self.calls(), ["other"])

    def test_a_page_is_written_whole_or_not_at_all(self):
        page = self.folder / "page.md"
        report.write_whole(page, "first\n")
        with self.assertRaises(UnicodeEncodeError):
            report.write_whole(page, "half\n\ud800")
        self.assertEqual(page.read_text(), "first\n")

    def test_cells_have_at_most_60_characters(self):
        self.assertIn("a" * 60, report.table(["what"], [["a" * 60]]))
        with self.assertRaisesRegex(ValueError, "61 characters"):
            report.table(["what"], [["a" * 61]])
        with self.assertRaisesRegex(ValueError, "2 cells for 1"):
            report.table(["what"], [["a", "b"]])


class Reproduced(Folder):
    def page(self):
        return report_reproduced.page(report_reproduced.measurements(), self.paths)

    def test_without_results_every_part_says_so(self):
        text = self.page()
        self.assertTrue(text.startswith("# "))
        self.assertLess(text.index("three engines"), text.index("fr-spec/table-1"))
        for paper in ("vLLM", "llama.cpp", "slimspec/table-2", "slimspec/table-3", "specvocab/figure-4", "dynaspec/table-1",
                      "microspec/table-2", "MicroSpec, Figure 1"):
            self.assertIn(paper, text)
        self.assertEqual(text.count("Not measured"), len(report_reproduced.measurements()))

    def test_a_table_has_ours_and_the_papers_with_intervals(self):
        self.keep(report_reproduced.measurements()[0], reproduced(ROWS))
        text = self.page()
        self.assertIn("| tau | MT | Code | Average | rho_tau |", text)
        self.assertIn("| fr-spec V=32k | 1.90 / 3.30 | 2.60 / 3.90 | 2.25 [2.15, 2.35] / 3.60 | 0.900 [0.880, 0.920] / 0.947 |", text)
        self.assertIn("- not run: dynaspec: assets/heads/d.safetensors: not found; fit one", text)
        self.assertIn("- prompts: 6 of each of MT, Code", text)
        self.assertIn("- tree: 60 in the paper, 60 here", text)
        self.assertIn("Measured on a CPU, 2 cores, at abc, on 2026-11-29, in 2 minutes.", text)
        self.assertIn("`draftscope reproduce fr-spec/table-1 ", text)

    def test_the_finding_follows_from_the_figures(self):
        self.keep(report_reproduced.measurements()[0], reproduced(ROWS))
        text = self.page()
        self.assertIn("The median difference in rho_tau is 0.047 over 2 rows, the largest that of fr-spec V=32k: 0.900 [0.880, 0.920] here, "
                      "0.947 there.", text)
        self.assertIn("It does not hold here: fr-spec V=32k keeps 90.0 %.", text)
        self.assertIn("The rows are in the paper's order.", text)
        self.keep(report_reproduced.measurements()[0], reproduced(ROWS[:2]))
        self.assertIn("fr-spec V=32k has rho_tau 0.900 [0.880, 0.920] here, 0.947 there.", self.page())
        swapped = json.loads(json.dumps(ROWS))
        swapped[2]["rho_tau"] = 0.95
        self.keep(report_reproduced.measurements()[0], reproduced(swapped))
        self.assertIn("The rows are in the other order than the paper's.", self.page())
        copied = reproduced(ROWS)
        copied["differences"].append("tau copied by the paper's authors: fr-spec V=32k")
        self.keep(report_reproduced.measurements()[0], copied)
        self.assertIn("Not compared: fr-spec V=32k, whose values", self.page())
        self.assertIn("fr-spec V=8k has rho_tau 0.820", self.page())

    def test_the_check_of_drafts_is_said_at_a_temperature(self):
        self.keep(report_reproduced.measurements()[0], reproduced(ROWS, temperature=1, verify="pq", verified="by rejection sampling"))
        self.assertIn("Drafts are checked by rejection sampling (`--verify pq`).", self.page())

    def test_figure_1_has_the_oracle_and_the_coverage_by_task(self):
        by_name = {one.name: one for one in report_reproduced.measurements()}
        cost = {"rho_tau": 0.5, "nu": 0.1, "kappa": 0.5, "measured_speedup": 0.8, "intervals": {"rho_tau": [0.4, 0.6]}}
        self.keep(by_name["microspec/figure-1a"], {"methods": [{"head": "fr-spec:v=785", "row_tokens": 785.0, "against_full": cost}]})
        heads = [{"head": "microspec", "row_tokens": 900.0}]
        prompts = [{"id": str(i), "category": "qa" if i < 6 else "HumanEval", "heads": [{"coverage": 0.9 if i < 6 else 0.5, "committed": 10}]}
                   for i in range(12)]
        self.keep(by_name["microspec/figure-1b"], {"heads": heads, "prompts": prompts})
        text = self.page()
        self.assertIn("| 2k | 785 | 0.500 [0.400, 0.600] | 0.800 | 1.429 |", text)
        self.assertRegex(text, r"\| MicroSpec \| 900 \| 90\.0 \| 50\.0 \| 70\.0 \[\d\d\.\d, \d\d\.\d\] \|")


class Measurements(Folder):
    def page(self):
        return report_measurements.page(report_measurements.measurements(), self.paths)

    def test_figures_of_other_machines_are_kept_and_the_rest_is_named(self):
        text = self.page()
        self.assertIn("Qwen2.5-Coder-1.5B", text)
        self.assertIn("Measured on 2 cores of an AMD EPYC", text)
        self.assertEqual(text.count("Not measured"), len(report_measurements.measurements()))

    def test_heads_have_tasks_and_their_mean(self):
        cells = [{"task": task, "tau_unclipped": tau} for task, tau in (("MT", 1.5), ("QA", 2.5))]
        method = {"drafter": "eagle3", "head": "slimspec", "tasks": cells, "row_tokens": 49152.0, "against_full": {"nu": 0.25},
                  "mean_of_tasks": {"tau_unclipped": 2.0, "tau_unclipped_interval": [1.9, 2.1], "rho_tau": 0.92,
                                    "rho_tau_interval": [0.9, 0.94], "speedup": 1.4, "speedup_interval": None}}
        plain = {"drafter": "none", "head": "full"}
        by_name = {one.name: one for one in report_measurements.measurements()}
        self.keep(by_name["heads-t1"], {"methods": [plain, method]})
        self.assertIn("| slimspec | 1.50 | 2.50 | 2.00 [1.90, 2.10] | 0.920 [0.900, 0.940] | 49,152 | 0.250 | 1.40 |", self.page())
        self.assertIn("--verify pq", by_name["heads-t1"].text())
        self.keep(by_name["verification"], "| M | ms |\n| --- | --: |\n| 1 | 9 |\n")
        self.keep(by_name["storage"], "sink 1.2 M rows/s\n")
        text = self.page()
        self.assertIn("\n| 1 | 9 |\n", text)
        self.assertIn("```text\nsink 1.2 M rows/s\n```", text)


class Command(Folder):
    def run_report(self, *words):
        return subprocess.run([sys.executable, ROOT / "tests/bench/report.py", *words], capture_output=True, text=True)

    def test_the_command_writes_the_page_and_names_mistakes(self):
        page = self.folder / "R.md"
        done = self.run_report("reproduced", "--no-run", "--raw", str(self.folder), "--out", str(page))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("# The papers' experiments", page.read_text())
        done = self.run_report("reproduced", "--only", "fr-spec/tabel-1", "--raw", str(self.folder))
        self.assertEqual(done.returncode, 2)
        self.assertIn("unknown; known: fr-spec/table-1", done.stderr)
        done = self.run_report("reproduced", "--program", str(self.folder / "none"), "--raw", str(self.folder))
        self.assertIn("./run build makes it", done.stderr)

    def test_the_pages_language_is_that_of_the_documents(self):
        self.keep(report_reproduced.measurements()[0], reproduced(ROWS))
        for module in (report_reproduced, report_measurements):
            text = module.page(module.measurements(), self.paths)
            self.assertEqual(list(check_language.check_file(module.PAGE, text)), [])


if __name__ == "__main__":
    unittest.main()
