#!/usr/bin/env python3
"""Checks the results of assets/published without the papers, and that tools/check_published.py finds what is wrong.

usage: tests/docs/published_test.py [unittest arguments]
"""
import copy
import json
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check_published  # noqa: E402

FILES = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "assets/published").glob("*.json"))}

# A paper as its converters write it: a footnote before the table, LaTeX, tags, a caption below.
TEXT = """We use Llama-3-8B, see footnote
1
Method\tMT\tMath\tAverage
Vanilla\t10.0 <sub>0.1</sub>\t20.0 <sub>0.2</sub>\t15.0 (1.00 $\\times$ )
<b>EAGLE-2</b>\t20.0 <sub>0.3</sub>\t30.0 <sub>0.4</sub>\t25.0 (1.67×\\times×)
+FR 32k\t24.0 <sub>0.5</sub>\t36.0 <sub>0.6</sub>\t30.0 (2.00 $\\times$ )
Table 2: Speed (token/s) on Llama-3-8B using temperature=0.
The LM head takes 49% of the time, in 4 \\times 10^{-5} seconds."""


def speed(head, config, values, mean, ratio, **more):
    tasks = {task: {"tokens_per_second": v, "tokens_per_second_sd": sd} for task, (v, sd) in zip(("MT", "Math"), values)}
    return {"head": head, "config": config, "target": "Llama-3-8B-Instruct", "setup": "s", "kind": "measured",
            "tokens_per_second": mean, "speedup_vs_ar": ratio, "tasks": tasks,
            "source": "Table 2: tokens_per_second, speedup_vs_ar", **more}


def made():
    """A file that agrees with TEXT."""
    setup = dict.fromkeys(check_published.SETUP_KEYS) | {"text": "T=0", "label": "", "temperature": 0}
    return dict.fromkeys(check_published.FILE_KEYS, "") | {
        "version": "v1", "tasks": {"MT": "", "Math": ""}, "setups": {"s": setup},
        "names": {"none": ["Vanilla"], "full": ["EAGLE-2"], "fr-spec": ["+FR"]},
        "results": [speed("none", "", [(10.0, 0.1), (20.0, 0.2)], 15.0, 1.0), speed("full", "", [(20.0, 0.3), (30.0, 0.4)], 25.0, 1.67),
                    speed("fr-spec", "V=32k", [(24.0, 0.5), (36.0, 0.6)], 30.0, 2.0, speedup_vs_full=1.2,
                          derived=["speedup_vs_full = ratio of the tokens per second"])],
        "tables": [{"table": "Table 2", "title": "Speed (token/s) on Llama-3-8B using temperature=0", "columns": ["MT", "Math"],
                    "cells": ["tokens_per_second", "tokens_per_second_sd"], "average": ["tokens_per_second", "speedup_vs_ar"]},
                   {"table": "Text", "title": "", "columns": ["what", "value", "unit", "where", "quote"],
                    "rows": [["LM head", 49, "%", "Section 1", "LM head takes 49% of"], ["time", 4e-5, "s", "Section 1", "in 4e-5 seconds"]]}]}


class Shipped(unittest.TestCase):
    def test_files_are_consistent(self):
        self.assertEqual(sorted(FILES), ["dynaspec", "fr-spec", "microspec", "slimspec", "specvocab"])
        for name, data in FILES.items():
            self.assertEqual(check_published.check_file(data), [], name)

    def test_every_table_of_results_has_rows(self):
        for name, data in FILES.items():
            for table in data["tables"]:
                self.assertTrue(any(values for _, values in check_published.rows_of(data, table)), f"{name}, {table['table']}")

    def test_every_wrong_average_is_found(self):
        """Each mean of tasks, off by two of its last decimals."""
        tried = 0
        for name, data in FILES.items():
            for result in data["results"]:
                for quantity in ("tau", "tokens_per_second"):
                    if quantity not in result or not all(quantity in cells for cells in result.get("tasks", {0: {}}).values()):
                        continue
                    kept = result[quantity]
                    result[quantity] = kept + (0.02 if quantity == "tau" else 0.3)
                    found = [f[1] for f in check_published.check_averages(data) if f[0] is result]
                    result[quantity] = kept
                    if name != "slimspec":
                        self.assertIn(quantity, found, f"{name}, {check_published.name_of(result)}")
                        tried += 1
        self.assertGreater(tried, 70)

    def test_microspec_marks_what_it_did_not_measure(self):
        for result in FILES["microspec"]["results"]:
            from_another = result["head"] in ("coral", "dynaspec")
            self.assertEqual(result["kind"] != "measured", from_another, result["head"])
            if from_another and "tau" in result:
                self.assertEqual(result.get("tau_kind", result["kind"]), "copied")


class Findings(unittest.TestCase):
    def findings(self, change):
        data = copy.deepcopy(made())
        change(data)
        return "\n".join(check_published.check_file(data) or check_published.check_text(data, TEXT)[0])

    def test_agreement(self):
        self.assertEqual(self.findings(lambda data: None), "")
        self.assertIn("1 tables with 18 numbers and 2 quotes compared", check_published.check_text(made(), TEXT)[1])

    def test_what_is_wrong_in_the_file_alone(self):
        def row(key, value):
            return lambda data: data["results"][2].__setitem__(key, value)
        for change, text in [
                (row("kind", "guessed"), "unknown kind guessed"), (row("setup", "t"), "unknown setup t"),
                (row("source", "Table 2: tokens_per_second"), "speedup_vs_ar has neither a source nor a derivation"),
                (row("source", "Table 9: tokens_per_second, speedup_vs_ar"), "Table 9 is not among the tables"),
                (row("nu", 0.5), "nu has neither"), (row("tokens_per_second", 30.3), "30.3, but 30.000 as mean of the tasks"),
                (row("speedup_vs_full", 1.21), "1.21, but 1.200 as ratio"), (row("target", "Qwen-2-7B"), "its table's Llama-3-8B-Instruct"),
                (lambda data: data["setups"]["s"].__setitem__("temperature", 1), "temperature 1, its table's 0"),
                (lambda data: data["setups"]["s"].pop("hardware"), "no hardware"),
                (lambda data: data.pop("version"), "no version"),
                (lambda data: data.__setitem__("discrepancies", [
                    {"target": "Llama-3-8B-Instruct", "row": "full", "setup": "s", "quantity": "tau", "recomputed": 3}]), "but agrees")]:
            self.assertIn(text, self.findings(change))

    def test_each_number_that_the_text_does_not_have(self):
        """Each cell, changed so that the file alone stays consistent, or at least the text check is asked alone."""
        changed = 0
        for i, result in enumerate(made()["results"]):
            for task, cells in result["tasks"].items():
                for cell, value in cells.items():
                    data = made()
                    data["results"][i]["tasks"][task][cell] = value + 0.1
                    found = "\n".join(check_published.check_text(data, TEXT)[0])
                    self.assertIn(f"{task} {cell}: {value + 0.1}, the text has {value:g}", found)
                    changed += 1
        self.assertEqual(changed, 12)

    def test_rows_of_other_methods_columns_and_tables(self):
        def swap_methods(data):
            first, second = data["results"][1:]
            first["head"], second["head"] = second["head"], first["head"]
        def swap_columns(data):
            for task in data["results"]:
                task["tasks"] = {"MT": task["tasks"]["Math"], "Math": task["tasks"]["MT"]}
            data["tables"][0]["columns"] = ["Math", "MT"]
        for change, text in [
                (swap_methods, "the text has these numbers for full"), (swap_columns, "no column MT at its place"),
                (lambda data: data["results"][2].__setitem__("config", "V=64k"), "these numbers for '+FR 32k'"),
                (lambda data: data["tables"][0].__setitem__("title", "Speed on Llama-3-8B"), "the text has no 'Table 2 Speed on"),
                (lambda data: data["tables"][1]["rows"][0].__setitem__(1, 48), "48 is not in"),
                (lambda data: data["tables"][1]["rows"][0].__setitem__(4, "LM head takes 48% of"), "the text has no 'LM head takes 48%")]:
            data = made()
            change(data)
            self.assertIn(text, "\n".join(check_published.check_text(data, TEXT)[0]))


if __name__ == "__main__":
    unittest.main()
