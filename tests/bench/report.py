#!/usr/bin/env python3
"""Measures what a page of docs/ shows, and writes the page.

usage: tests/bench/report.py reproduced|measurements [--raw FOLDER] [--program FILE] [--out PAGE] [--only NAME,...]
                             [--limit N] [--max-new N] [--no-run] [--list]

Raw results are kept in FOLDER (build/report), a JSON each. One that is there for the same commit and command is not
measured again, so that a run that was cut off goes on where it stopped. The page is written in the end, whole, from
everything that is there; a part without a result says what it needs. --no-run writes the page alone. --limit and
--max-new replace the settings of every part, to try the command. Nothing else may use the machine.
"""
import argparse
import datetime
import hashlib
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("app", "assets", "base", "capture", "cmake", "engine", "kernels", "profiler", "stats", "storage", "tests/bench")
MAX_CELL = 60


def command_text(words):
    """A command as a reader types it in the root of the repository."""
    paths = {"program": "draftscope", "build": "build/release", "raw": "build/report"}
    return shlex.join(word.format(**paths) for word in words)


class Measurement:
    """Commands whose last one prints the result. {program}, {build} and {raw} stand for paths, so that a result's
    commands are the same on every machine."""

    def __init__(self, name, commands, needs=(), as_text=False, prepare=None):
        self.name = name
        self.commands = [list(map(str, command)) for command in commands]
        self.needs = needs        # (path, how to get it)
        self.as_text = as_text
        self.prepare = prepare    # called with the folder of raw results

    def file(self, raw):
        return Path(raw) / (self.name.replace("/", "-") + ".json")

    def text(self):
        return command_text(self.commands[-1])


def git(*words):
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True).stdout.strip()


def product_commit():
    """The last commit of what is measured. Changes that are not committed give it a suffix of their own."""
    changes = git("diff", "HEAD", "--", *PRODUCT)
    suffix = "+" + hashlib.sha1(changes.encode()).hexdigest()[:6] if changes else ""
    return git("log", "-1", "--format=%h", "--", *PRODUCT) + suffix


def machine_of(program):
    done = subprocess.run([program, "doctor", "--json"], capture_output=True, text=True)
    found = json.loads(done.stdout) if done.returncode == 0 else {}
    return {key: found.get(key) for key in ("cpu", "cores", "isa", "memory_bytes", "read_gb_per_s", "other_load_cpus")}


def write_whole(path, text):
    """Writes a file that is never there half written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def stored(measurement, raw):
    """The kept result of any commit, or None."""
    try:
        return json.loads(measurement.file(raw).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def missing(measurement, paths):
    """A line for each thing that a measurement needs and that is not there."""
    lines = []
    for path, how in measurement.needs:
        if not Path(os.path.expanduser(path.format(**paths))).exists():
            lines.append(f"{measurement.name}: needs {path.format(**paths)}: {how}")
    return lines


def measure(measurement, paths, commit):
    """Runs the commands and keeps the result. Returns what went wrong; "" = nothing."""
    if measurement.prepare:
        measurement.prepare(Path(paths["raw"]))
    start, output = time.time(), ""
    machine = machine_of(paths["program"])
    for command in measurement.commands:
        done = subprocess.run([word.format(**paths) for word in command], capture_output=True, text=True, cwd=ROOT)
        if done.returncode != 0:
            return f"{measurement.name}: {command_text(command)}: {(done.stderr.strip() or done.stdout.strip())[-400:]}"
        output = done.stdout
    kept = {"name": measurement.name, "commit": commit, "commands": measurement.commands, "machine": machine,
            "date": datetime.date.today().isoformat(), "seconds": round(time.time() - start),
            "result": output if measurement.as_text else json.loads(output)}
    write_whole(measurement.file(paths["raw"]), json.dumps(kept) + "\n")
    return ""


def measure_all(measurements, paths, commit):
    """Measures what is not there yet. Returns what went wrong and what is missing."""
    problems = []
    for measurement in measurements:
        kept = stored(measurement, paths["raw"])
        if kept and kept["commit"] == commit and kept["commands"] == measurement.commands:
            print(f"{measurement.name}: kept, of {kept['date']}", file=sys.stderr)
            continue
        lacks = missing(measurement, paths)
        if not lacks:
            print(f"{measurement.name}: {measurement.text()}", file=sys.stderr)
            wrong = measure(measurement, paths, commit)
            lacks = [wrong] if wrong else []
        problems += lacks
        for line in lacks:
            print(line, file=sys.stderr)
    return problems


# ---- what the pages share

def table(header, rows, left=1):
    """A table in Markdown. A cell over 60 characters is a mistake of the page."""
    for row in [header, *rows]:
        for cell in row:
            if len(cell) > MAX_CELL:
                raise ValueError(f"a cell of {len(cell)} characters, more than {MAX_CELL}: {cell}")
        if len(row) != len(header):
            raise ValueError(f"a row of {len(row)} cells for {len(header)} columns: {row}")
    lines = ["| " + " | ".join(cells) + " |" for cells in rows]
    marks = "| " + " | ".join("---" if c < left else "--:" for c in range(len(header))) + " |"
    return "\n".join(["| " + " | ".join(header) + " |", marks, *lines]) + "\n"


def number(value, digits=3):
    return "-" if value is None else f"{value:,.{digits}f}"


def with_interval(value, interval, digits=3):
    if value is None:
        return "-"
    text = number(value, digits)
    if interval and interval[0] == interval[1]:  # 1 by definition
        return text
    return text + (f" [{number(interval[0], digits)}, {number(interval[1], digits)}]" if interval else "")


def origin(kept):
    """One line: machine, commit, date, time and command of a result."""
    machine = kept["machine"]
    name = ", ".join(filter(None, (machine.get("cpu"), f"{machine['cores']} cores" if machine.get("cores") else "",
                                   machine.get("isa"))))
    minutes = max(1, round(kept["seconds"] / 60))
    busy = machine.get("other_load_cpus") or 0
    loaded = f" Other programs used {busy:.1f} CPUs when it began." if busy > 0.2 else ""
    return (f"Measured on {name or 'an unknown machine'}, at {kept['commit']}, on {kept['date']}, in "
            f"{minutes} minute{'s' if minutes > 1 else ''}.{loaded}\n\n`{command_text(kept['commands'][-1])}`\n")


def absent(measurement, paths):
    """What the page says in place of a result that is not there."""
    lacks = missing(measurement, paths)
    return "Not measured" + (": " + "; ".join(line.split(": ", 1)[1] for line in lacks) if lacks else " yet") + ".\n"


def main():
    import report_measurements
    import report_reproduced
    pages = {"reproduced": report_reproduced, "measurements": report_measurements}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", choices=pages)
    parser.add_argument("--raw", default="build/report", help="folder of raw results")
    parser.add_argument("--program", default="build/release/draftscope")
    parser.add_argument("--out", help="the page (default: that of docs/)")
    parser.add_argument("--only", type=lambda text: text.split(","), help="names of --list; the page has all that is kept")
    parser.add_argument("--limit", type=int, help="conversations of each task")
    parser.add_argument("--max-new", type=int, help="tokens of an answer")
    parser.add_argument("--no-run", action="store_true", help="only write the page")
    parser.add_argument("--list", action="store_true", help="only list what is measured, with its commands")
    args = parser.parse_args()
    page = pages[args.page]
    program = Path(args.program).resolve()
    paths = {"raw": str(Path(args.raw).resolve()), "program": str(program), "build": str(program.parent)}
    measurements = page.measurements(args.limit, args.max_new)
    unknown = set(args.only or ()) - {one.name for one in measurements}
    if unknown:
        parser.error(f"--only {', '.join(sorted(unknown))}: unknown; known: {', '.join(one.name for one in measurements)}")
    if args.list:
        for one in measurements:
            print(f"{one.name}: {one.text()}")
        return 0
    if not args.no_run and not program.exists():
        parser.error(f"{args.program}: not found; ./run build makes it, and --program names another")
    Path(paths["raw"]).mkdir(parents=True, exist_ok=True)
    wanted = [one for one in measurements if not args.only or one.name in args.only]
    problems = [] if args.no_run else measure_all(wanted, paths, product_commit())
    write_whole(Path(args.out) if args.out else ROOT / page.PAGE, page.page(measurements, paths))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    sys.modules["report"] = sys.modules["__main__"]
    sys.exit(main())
