#!/usr/bin/env python3
"""Checks assets/published/*.json: keys, sources, averages and ratios; with the papers' texts also every number.

usage: tools/check_published.py [PAPERS_FOLDER] [--data FOLDER]    exit code 1 and one line per finding

PAPERS_FOLDER holds the papers as plain text, NAME.txt for NAME.json, in the version that the file names. A table's
rows must follow one another in the text, next to the table's caption: each row the numbers of the file, in order and
without another number between them, behind the name of its method. docs/FORMATS.md describes the files.
"""
import argparse
import bisect
import json
import re
import sys
import unicodedata
from pathlib import Path

KINDS = {"measured", "computed", "copied"}
NUMBERS = ("tau", "rho_tau", "nu", "speedup_vs_ar", "speedup_vs_full", "tokens_per_second", "tokens_per_second_sd", "active_tokens")
RESULT_KEYS = {"head", "config", "target", "setup", "version", "kind", "tau_kind", "kappa", "tasks", "source", "computed_from", "derived",
               "note", *NUMBERS}
TASK_KEYS = {"tau", "tau_sd", "speedup_vs_ar", "speedup_vs_ar_sd", "tokens_per_second", "tokens_per_second_sd", "active_tokens"}
FILE_KEYS = ("paper", "short", "citation", "arxiv", "version", "version_note", "note", "checked", "tasks", "names", "setups", "results", "tables")
SETUP_KEYS = ("text", "label", "framework", "hardware", "drafter", "tree", "batch", "temperature", "average")
NEAR = 1500  # characters between a table and its caption
GAP = 4      # numbers between two rows of a table, such as the sizes in a method's name


def name_of(result):
    return f"{result['head']} {result['config']}".strip()


def sources(result):
    """Quantity -> table, from "Table 1: tau, rho_tau; Table 2: tokens_per_second"."""
    found = {}
    for part in result["source"].split("; "):
        table, _, quantities = part.partition(": ")
        for quantity in filter(None, quantities.split(", ")):
            found[quantity] = table
    return found


def unit(values):
    """The last printed decimal of these numbers."""
    return 10.0 ** -max(len(repr(float(value)).split(".")[1].rstrip("0")) for value in values)


class Paper:
    """A paper's text, as numbers and as letters without the rest."""

    def __init__(self, text):
        self.text = plain(text)
        self.numbers = []  # (value, begin, end)
        for match in re.finditer(r"(?<![\w.])\d{1,3}(?:,\d{3})+(?![\d,])|(?<![\w.])\d+(?:\.\d+)?(?:e-\d+)?", self.text):
            self.numbers.append((float(match.group().replace(",", "")), match.start(), match.end()))
        self.begins = [begin for _, begin, _ in self.numbers]
        self.places = [i for i, c in enumerate(self.text) if is_letter(self.text, i)]
        self.letters = "".join(self.text[i].lower() for i in self.places)

    def find(self, words):
        """Places of these words in the text, with any marks between the letters."""
        wanted, at = letters(words), 0
        while (at := self.letters.find(wanted, at)) >= 0:
            yield self.places[at]
            at += 1

    def between(self, begin, end):
        """The letters of this part of the text."""
        return self.letters[bisect.bisect_left(self.places, begin):bisect.bisect_left(self.places, end)]


def plain(text):
    """Removes what converters leave around numbers and names: tags, LaTeX, mathematical alphabets."""
    text = unicodedata.normalize("NFKC", text)
    text = text.replace("×\\times×", "x").replace("×", "x")
    for command, letter in (("times", "x"), ("beta", "β"), ("epsilon", "ε"), ("lambda", "λ")):
        text = text.replace("\\" + command, letter)
    text = re.sub(r"</?[a-z]+>|\\[a-zA-Z]+|\$", " ", text)
    # 4 x 10^{-4} and 10 − 8 with U+2212
    return re.sub(r"(?:(\d+(?:\.\d+)?)\s*x\s*)?\b10\s*(?:\^\{-|−\s*)(\d+)\}?", lambda m: f"{m.group(1) or 1}e-{m.group(2)}", text)


def is_letter(text, i):
    return text[i].isalnum() or (text[i] == "." and text[i + 1:i + 2].isdigit())


def letters(text):
    text = plain(text)
    return "".join(text[i].lower() for i in range(len(text)) if is_letter(text, i))


# ---- the file alone

def check_keys(data):
    missing = [f"no {key}" for key in FILE_KEYS if key not in data]
    yield from missing
    if missing:
        return
    for key, setup in data["setups"].items():
        for field in SETUP_KEYS:
            if field not in setup:
                yield f"setup {key}: no {field} (null = the paper does not say)"
    tables = {table["table"] for table in data["tables"]}
    for result in data["results"]:
        where = f"{result.get('target')}, {name_of(result)}"
        for key in ("head", "config", "target", "setup", "kind", "source"):
            if key not in result:
                yield f"{where}: no {key}"
        for key in set(result) - RESULT_KEYS:
            yield f"{where}: unknown key {key}"
        if result["setup"] not in data["setups"]:
            yield f"{where}: unknown setup {result['setup']}"
        for kind in (result["kind"], result.get("tau_kind", "measured")):
            if kind not in KINDS:
                yield f"{where}: unknown kind {kind}; use {', '.join(sorted(KINDS))}"
        stated, derived = sources(result), {text.split(" = ")[0] for text in result.get("derived", [])}
        for quantity in NUMBERS:
            if quantity in result and quantity not in stated and quantity not in derived and not quantity.endswith("_sd"):
                yield f"{where}: {quantity} has neither a source nor a derivation"
            if quantity not in result and quantity in stated:
                yield f"{where}: {quantity} is absent, but has a source"
        for quantity, table in stated.items():
            if table.startswith("Table") and table not in tables:
                yield f"{where}: {table} is not among the tables"
        for task, cells in result.get("tasks", {}).items():
            if task not in data["tasks"] or set(cells) - TASK_KEYS:
                yield f"{where}: unknown task or key in {task}: {', '.join(cells)}"
        if "computed" == result["kind"] and "computed_from" not in result:
            yield f"{where}: computed, but no computed_from"
    for table in data["tables"]:
        for row in table.get("rows", []):
            if len(row) != len(table["columns"]):
                yield f"{table['table']}, {row[0]}: {len(row)} cells for {len(table['columns'])} columns"


def check_captions(data):
    """A table's results have the target, temperature and batch of its caption."""
    targets = {letters(r["target"]).removesuffix("instruct"): r["target"] for r in data["results"]}
    for table in data["tables"]:
        for result in (r for r in data["results"] if "cells" in table and table["table"] in sources(r).values()):
            where, setup = f"{table['table']}, {name_of(result)}", data["setups"][result["setup"]]
            for field, words in (("temperature", "temperature"), ("batch", "batch size")):
                stated = re.search(words + r"\s*=?\s*(\d+)", table["title"])
                if stated and setup[field] != int(stated.group(1)):
                    yield f"{where}: {field} {setup[field]}, its table's {stated.group(1)}"
            named = [target for short, target in targets.items() if short in letters(table["title"])]
            if named and result["target"] not in named:
                yield f"{where}: target {result['target']}, its table's {named[0]}"


def check_averages(data):
    """A result's values are the means of its tasks', up to rounding."""
    for result in data["results"]:
        for quantity in ("tau", "tokens_per_second", "speedup_vs_ar", "active_tokens"):
            cells = [cells.get(quantity) for cells in result.get("tasks", {}).values()]
            if not cells or None in cells or quantity not in result:
                continue
            mean, printed = sum(cells) / len(cells), result[quantity]
            # The speed-up of a mean speed is not the mean of the speed-ups.
            if quantity == "speedup_vs_ar" and "tokens_per_second" in result:
                mean = printed
            allowed = 1 if quantity == "active_tokens" else unit(cells + [printed])
            if abs(mean - printed) > 1.001 * allowed:
                yield result, quantity, printed, mean, "mean of the tasks"


def check_ratios(data):
    groups = {}
    for result in data["results"]:
        groups.setdefault((result["target"], result["setup"]), {}).setdefault(result["head"], result)
    for result in data["results"]:
        group = groups[(result["target"], result["setup"])]
        full, plain_decoding = group.get("full", {}), group.get("none", {})
        derived = {text.split(" = ")[0] for text in result.get("derived", [])}
        speed = "tokens_per_second" if "tokens_per_second" in result else "speedup_vs_ar"
        rules = [("rho_tau", "tau", full), ("speedup_vs_full", speed, full), ("speedup_vs_ar", "tokens_per_second", plain_decoding)]
        for quantity, of, base in rules:
            if quantity not in result or of not in result or of not in base:
                continue
            ratio = result[of] / base[of]
            # Printed ratios are of numbers before rounding; derived ones of those in the file.
            error = ratio * (unit([result[of]]) / result[of] + unit([base[of]]) / base[of]) / 2
            allowed = 0.00051 if quantity in derived else 0.0051 + error
            if abs(ratio - result[quantity]) > allowed:
                yield result, quantity, result[quantity], ratio, f"ratio of {of}"


def check_computed(data):
    """Speeds that the authors computed from another row of their table."""
    rows = {row[0]: dict(zip(table["columns"], row)) for table in data["tables"] for row in table.get("rows", [])}
    for result in data["results"]:
        rule = result.get("computed_from")
        if not rule:
            continue
        base = next(r for r in data["results"] if (r["head"], r["target"], r["setup"]) == (rule["head"], result["target"], result["setup"]))
        for task, cells in result["tasks"].items():
            factor = rows[rule["times"][0]][task] / (rows[rule["times"][1]][task] if len(rule["times"]) > 1 else 1)
            value = base["tasks"][task]["tokens_per_second"] * factor
            if abs(value - cells["tokens_per_second"]) > 0.051 + 0.051 * factor:
                yield result, f"{task} tokens_per_second", cells["tokens_per_second"], value, f"from {rule['head']}"


def check_file(data):
    findings = list(check_keys(data)) or list(check_captions(data))
    if findings:
        return findings
    known = {(d["target"], d["row"], d["setup"], d["quantity"]): d for d in data.get("discrepancies", [])}
    for check in (check_averages, check_ratios, check_computed):
        for result, quantity, printed, value, what in check(data):
            key = (result["target"], name_of(result), result["setup"], quantity)
            if known.pop(key, {}).get("recomputed") != round(value, 3):
                findings.append(f"{', '.join(key)}: {printed}, but {value:.3f} as {what}; correct it or name it under discrepancies")
    return findings + [f"{', '.join(key)}: named under discrepancies, but agrees" for key in known]


# ---- the file against the paper

def results_of(data, table):
    return [r for r in data["results"] if table["table"] in sources(r).values() and r.get("version", data["version"]) == data["version"]]


def rows_of(data, table):
    """(label, [(what, value)]) of the table's rows, in the paper's order."""
    if "rows" in table:
        for row in table["rows"]:
            yield str(row[0]), [(column, value) for column, value in zip(table["columns"], row) if isinstance(value, (int, float))]
        return
    results = results_of(data, table)

    def average(result):
        for quantity in table["average"]:
            value = result.get(quantity.rstrip("%"))
            printed = sources(result).get(quantity.rstrip("%"), table["table"]) == table["table"] and value is not None
            if printed and not any(text.startswith(quantity + " =") for text in result.get("derived", [])):
                yield quantity, round(100 * value, 1) if quantity.endswith("%") else value

    def cells(result, task):
        for cell in table["cells"]:
            if cell in result.get("tasks", {}).get(task, {}):
                yield f"{task} {cell}", result["tasks"][task][cell]

    if table.get("transposed"):
        for task in table["columns"] + ["Average"]:
            values = [v for r in results for v in (average(r) if task == "Average" else cells(r, task))]
            yield task, values
        return
    for result in results:
        yield name_of(result), [v for task in table["columns"] for v in cells(result, task)] + list(average(result))


def align(paper, rows, begin, end):
    """Indices of each row's first number for the best match of all rows in this part of the text, and its score."""
    numbers = [value for value, _, _ in paper.numbers]
    low, high = bisect.bisect_left(paper.begins, begin), bisect.bisect_left(paper.begins, end)

    def score(row, at):
        return sum(at + i < len(numbers) and numbers[at + i] == value for i, (_, value) in enumerate(row))

    best, best_score = [], -1
    for start in range(low, high):
        if 2 * score(rows[0], start) < len(rows[0]):
            continue
        places, total, at = [], 0, start
        for i, row in enumerate(rows):
            gaps = range(GAP + 1) if i else range(1)
            at = max((at + gap for gap in gaps), key=lambda place: (score(row, place), -place))
            places.append(at)
            total += score(row, at)
            at += len(row)
        if total >= best_score:  # of several the last: a row of ones may match a 1 before it
            best, best_score = places, total
    return best


def last_name(text, names):
    """The method whose name comes last in the text, and its place; of several at one place, the longest."""
    found = (0, 0, None)
    for key, aliases in names.items():
        for alias in aliases:
            for match in re.finditer(r"(?<!\w)" + re.escape(alias).replace(r"\ ", r"\s+") + r"(?!\w)", text):
                found = max(found, (match.start(), len(alias), key), key=lambda one: one[:2])
    return found[2], found[0]


def check_labels(paper, data, table, rows, places):
    """Each row stands behind its method's (or task's) name, and the columns have the file's order."""
    first = paper.numbers[places[0]][1]
    if "cells" in table and not table.get("transposed"):
        header, at = paper.between(first - 700, first), 0
        header = header[max(header.rfind(letters(table["columns"][0])), 0):] if table["columns"] else ""
        for column in table["columns"]:
            at = header.find(letters(column), at)
            if at < 0:
                yield f"the text has no column {column} at its place"
                break
    if table.get("transposed"):
        header = paper.text[max(first - 200, 0):first]
        for result in results_of(data, table):
            found = [re.search(re.escape(alias), header) for alias in data["names"].get(name_of(result), data["names"].get(result["head"]))]
            if not any(found):
                yield f"{name_of(result)}: the text has no such column at its place"
                break
            header = header[min(match.end() for match in found if match):]
    begin, name = max(first - 120, 0), None
    for (label, values), place in zip(rows, places):
        end = paper.numbers[place][1]
        part = paper.text[begin:end]
        if "cells" in table and not table.get("transposed"):
            found, at = last_name(part, data["names"])
            name = found or name
            head = label.split(" ")[0]
            wanted = label if label in data["names"] else head
            if name != wanted:
                yield f"{label}: the text has these numbers for {name}"
            for size in re.findall(r"([\d.]+)\s*[kK]\b|d\s*/\s*(\d+)", part[at:]):
                if (size[0] or size[1]) not in re.findall(r"[\d.]+", label):
                    yield f"{label}: the text has these numbers for {part[at:].strip()!r}"
        elif letters(label) not in paper.between(first - 700 if "rows" in table else begin, end):
            yield f"{label}: the text has no such label before these numbers"
        begin = paper.numbers[place + len(values) - 1][2]


def check_table(paper, data, table):
    """Findings, and how many numbers were compared."""
    rows = [row for row in rows_of(data, table) if row[1]]
    title = table.get("anchor", f"{table['table']} {table['title']}")
    captions = list(paper.find(title))
    if not captions:
        return [f"the text has no {title!r}"], 0
    if not rows:
        return ["no rows"], 0
    size = sum(len(row) for _, row in rows)
    found = [align(paper, [row for _, row in rows], c - 60 * size - NEAR, c + NEAR) for c in captions]
    places = max(found, key=lambda places: sum(
        paper.numbers[p + i][0] == v for (_, row), p in zip(rows, places) for i, (_, v) in enumerate(row)) if places else -1)
    if not places:
        return [f"{rows[0][0]}: no row like {[value for _, value in rows[0][1]]} near the caption"], size
    findings = []
    for (label, row), place in zip(rows, places):
        for i, (what, value) in enumerate(row):
            if paper.numbers[place + i][0] != value:
                findings.append(f"{label}, {what}: {value}, the text has {paper.numbers[place + i][0]:g}")
    begin, end = paper.numbers[places[0]][1], paper.numbers[places[-1] + len(rows[-1][1]) - 1][2]
    if not findings and not any(abs(c - begin) < NEAR or abs(c - end) < NEAR for c in captions):
        findings.append("the caption is not next to the rows")
    return findings or list(check_labels(paper, data, table, rows, places)), size


def check_quotes(paper, table):
    for what, value, _, _, quote in table["rows"]:
        if not any(paper.find(quote)):
            yield f"{what}: the text has no {quote!r}"
        elif value not in [number for number, _, _ in Paper(quote).numbers]:
            yield f"{what}: {value} is not in {quote!r}"


def check_text(data, text):
    """Findings, and a summary."""
    paper, findings, tables, numbers, quotes = Paper(text), [], 0, 0, 0
    for table in data["tables"]:
        if table.get("in_text") is False:
            continue
        if table["columns"][-1:] == ["quote"]:
            found, quotes = list(check_quotes(paper, table)), quotes + len(table["rows"])
        else:
            found, size = check_table(paper, data, table)
            tables, numbers = tables + 1, numbers + size
        findings += [f"{table['table']}: {finding}" for finding in found]
    other = [f"{name_of(r)} of {r['version']}" for r in data["results"] if r.get("version", data["version"]) != data["version"]]
    outside = [table["table"] for table in data["tables"] if table.get("in_text") is False]
    summary = f"{tables} tables with {numbers} numbers and {quotes} quotes compared"
    return findings, summary + (f"; not in this text: {', '.join(other + outside)}" if other or outside else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("papers", nargs="?", type=Path)
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parent.parent / "assets/published")
    arguments = parser.parse_args()
    failed = False
    for path in sorted(arguments.data.glob("*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        findings, summary = check_file(data), f"{len(data['results'])} results, {len(data['tables'])} tables"
        if arguments.papers and not findings:
            text = arguments.papers / (path.stem + ".txt")
            if not text.is_file():
                findings = [f"no {text}"]
            else:
                findings, found = check_text(data, text.read_text(encoding="utf-8"))
                summary += "; " + found
        for finding in findings:
            print(f"{path.name}: {finding}")
        print(f"{path.name}: {summary}")
        failed |= bool(findings)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
