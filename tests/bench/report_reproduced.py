"""docs/REPRODUCED.md: the papers' tables next to ours, from `draftscope reproduce`."""
import json
import random
import re
from pathlib import Path

from report import ROOT, Measurement, absent, number, origin, stored, table, with_interval

PAGE = "docs/REPRODUCED.md"
ENGINES = ROOT / "docs/data/engines.json"
DEMO = ("~/.cache/draftscope/models/SmolLM2-135M-Instruct.Q4_1.gguf", "./run build fetches it")
TASKS = {"translation": "MT", "summarization": "Summ.", "qa": "QA", "math_reasoning": "Math", "rag": "RAG", "HumanEval": "Code",
         **dict.fromkeys(("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities"), "Conv.")}
# MicroSpec's sizes of a static vocabulary, of 128,256 tokens; here they keep their share of 49,152.
SIZES = {"0.5k": 512, "1k": 1024, "2k": 2048, "4k": 4096, "8k": 8192, "16k": 16384, "32k": 32768}
STATIC = {name: f"fr-spec:v={round(size * 49152 / 128256)}" for name, size in SIZES.items()}


class PaperTable:
    """A table of `reproduce`. `compare` is the quantity that the finding is about, `why` what explains a difference, and
    `picture` the command that draws it. `claim` is what the paper says, and `holds` says from the blocks whether it holds here."""

    def __init__(self, name, limit, max_new, compare, why, options=(), picture="", claim="", holds=None):
        self.name, self.limit, self.max_new, self.compare, self.why = name, limit, max_new, compare, why
        self.options, self.picture, self.claim, self.holds = list(options), picture, claim, holds


def ours(block, start, quantity):
    """Our average of a row whose name begins so; a row's own figure if the table has none."""
    row = next((row for row in block["rows"] if row["row"].startswith(start) and row["missing"] is None), None)
    if row is None:
        return None
    value = average(row, quantity)
    return value["ours"] if value else row.get(quantity)


def keeps(start, least):
    def holds(blocks):
        rho = ours(blocks[0], start, "rho_tau")
        return rho is not None and rho >= least, f"{start} keeps {100 * rho:.1f} %"
    return holds


def faster_than_full(start):
    def holds(blocks):
        ratios = [ours(block, start, "speedup_vs_full") for block in blocks]
        return all(ratio and ratio > 1 for ratio in ratios), "x full is " + " and ".join(number(ratio, 2) for ratio in ratios)
    return holds


def fastest(start, quantity):
    def holds(blocks):
        speeds = {row["row"]: average(row, quantity)["ours"] for row in blocks[0]["rows"]
                  if row["missing"] is None and average(row, quantity) and not row["row"].startswith("none")}
        best = max(speeds, key=speeds.get)
        return best.startswith(start), f"{best} is the fastest of {len(speeds)}, {number(speeds[best], 2)}"
    return holds


EAGLE3 = ("--drafter", "eagle3")  # the demo's best drafter, with a file of every head
PAPERS = [
    PaperTable("fr-spec/table-1", 16, 96, "rho_tau",
               "Our ranking is counted on 2.7 million tokens of documentation, the paper's on a billion of web text.", EAGLE3,
               "draftscope bench --heads full,fr-spec:v=8192 --prompts FILE --save a.dscope; draftscope gui a.dscope",
               "A quarter of the vocabulary keeps 93 % of the accepted length.", keeps("fr-spec V=32k", 0.93)),
    PaperTable("slimspec/table-2", 8, 96, "speedup_vs_full",
               "The target is 60 times smaller, so that drafting costs a larger part of a step, and the heads are fitted after the drafter. "
               "A batch of 64 holds the 8 conversations of a task.",
               ["--repeat", "3"], "", "SlimSpec is faster than the full head, at batch 1 and 64.", faster_than_full("slimspec")),
    PaperTable("slimspec/table-3", 8, 96, "rho_tau",
               "The paper trains the drafters of BCL, SpecVocab and SlimSpec with their heads; here all heads are cut from, or fitted to, a "
               "drafter that existed.", ["--repeat", "1"],
               "draftscope run --shadow slimspec,vocabtrim,fr-spec --save a.dscope --prompts FILE; draftscope gui a.dscope",
               "SlimSpec is the fastest of all heads.", fastest("slimspec", "speedup_vs_full")),
    PaperTable("specvocab/figure-4", 6, 64, "",
               "The paper's text has no values of the figure: it says that 2,048 candidates are sufficient for the highest throughput. They are "
               "1.3 % of its vocabulary and 4.2 % of ours.",
               ["--repeat", "1"],
               "draftscope sweep --heads specvocab --save s.dscope; draftscope export s.dscope --format png --plots sweep --out s.png"),
    PaperTable("dynaspec/table-1", 16, 64, "share",
               "The sizes are shares of 49,152 tokens here and of 128,256 in the paper, of one row's shortlist. They follow from the head's "
               "settings; MicroSpec's table below has its accepted length.", EAGLE3),
    PaperTable("microspec/table-2", 6, 64, "rho_tau",
               "On a CPU a tree of 60 nodes decodes at a third of the speed of plain decoding, so that this table ranks heads by tau, not by "
               "speed.", EAGLE3, "",
               "MicroSpec keeps 94 % of the full head's accepted length with under 3,072 tokens.", keeps("microspec", 0.94)),
]


def prompts_file(raw, limit, tasks):
    """Writes `limit` conversations of each task to one file, and returns its path."""
    path, counts, lines = raw / f"prompts-{'-'.join(tasks).replace('.', '')}-{limit}.jsonl", dict.fromkeys(tasks, 0), []
    for name in ("spec_bench_half.jsonl", "humaneval_half.jsonl"):
        for line in (ROOT / "assets/prompts" / name).read_text(encoding="utf-8").splitlines():
            prompt = json.loads(line)
            task = TASKS.get(prompt.get("category", "HumanEval"))
            if task in counts and counts[task] < limit:
                counts[task] += 1
                lines.append(json.dumps({"category": "HumanEval", **prompt}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def measurements(limit=None, max_new=None):
    found = []
    for one in PAPERS:
        found.append(Measurement(one.name, [["{program}", "reproduce", one.name, "--limit", limit or one.limit, "--max-new",
                                             max_new or one.max_new, *one.options, "--json", "--quiet"]], [DEMO]))
    few, tokens = limit or 8, max_new or 64
    heads = ",".join(["full", *STATIC.values(), "microspec"])
    tree = ["--drafter", "eagle3", "--tree", "paper:microspec"]

    def make_prompts(tasks):
        return lambda raw: prompts_file(raw, few, tasks)
    conv = f"{{raw}}/prompts-Conv-{few}.jsonl"
    every = f"{{raw}}/prompts-MT-Conv-RAG-Math-QA-Summ-Code-{few}.jsonl"
    found.append(Measurement("microspec/figure-1a", [["{program}", "bench", "--prompts", conv, "--heads", heads, *tree, "--max-new",
                                                      tokens, "--no-plain", "--json", "--quiet"]], [DEMO], prepare=make_prompts(["Conv."])))
    found.append(Measurement("microspec/figure-1b", [
        ["{program}", "record", "--prompts", every, "--max-new", tokens, "--no-times", "--overwrite", "--quiet", "--out", "{raw}/figure-1b.recording"],
        ["{program}", "replay", "--recording", "{raw}/figure-1b.recording", "--heads", heads, *tree, "--no-mass", "--json", "--quiet"]],
        [DEMO], prepare=make_prompts(["MT", "Conv.", "RAG", "Math", "QA", "Summ.", "Code"])))
    return found


# ---- a table of `reproduce`

HEADINGS = {"speedup_vs_ar": "x plain", "speedup_vs_full": "x full", "tokens_per_second": "tokens/s", "active_tokens": "shortlist"}
DIGITS = {"active_tokens": 0, "tokens_per_second": 1, "rho_tau": 3, "nu": 3}


def average(row, quantity):
    return next((v for v in row["values"] if v["column"] == "Average" and v["quantity"] == quantity), None)


def full_row(block):
    return next((row for row in block["rows"] if row["row"].split()[0] == "full"), None)


def published_digits(rows, quantity):
    """The decimals with which a quantity was published."""
    texts = [repr(v["published"]) for row in rows for v in row["values"] if v["quantity"] == quantity and v["published"] is not None]
    return max((len(text.split(".")[1]) for text in texts if "." in text and not text.endswith(".0")), default=0)


def pair_of(value, digits, paper_digits, vocabularies, has_paper):
    """Ours and the paper's: "2.41 [2.30, 2.52] / 3.63"; ours alone if the paper's table has no value of the quantity."""
    ours = with_interval(value["ours"], value["ours_interval"] if value["column"] == "Average" else None, digits)
    paper = number(value["published"], paper_digits)
    if value["quantity"] == "active_tokens":
        ours, paper = (f"{text} ({100 * size / whole:.1f} %)" if size is not None else text for text, size, whole in
                       ((ours, value["ours"], vocabularies[0]), (paper, value["published"], vocabularies[1])))
    return f"{ours} / {paper}" if has_paper else ours


def against_full(row, full, quantity):
    """Ours relative to the full head, its interval, and the paper's: rho_tau, or the speed."""
    ours, interval = (row["rho_tau"], row["rho_tau_interval"]) if quantity == "tau" else \
        (row["speedup_vs_full"], row["speedup_vs_full_interval"])
    paper, base = average(row, quantity)["published"], average(full, quantity)["published"]
    return ours, interval, paper / base if paper and base else None


# Quantities that follow from another one of the table, relative to the full head's.
RELATIVE = {"rho_tau": ("tau",), "speedup_vs_full": ("speedup_vs_ar", "tokens_per_second")}


def copied_rows(report):
    """Rows whose published values the paper's authors took or computed from elsewhere: they are shown, and not compared."""
    names = set()
    for line in report["differences"]:
        if line.startswith(("tau copied by", "values computed by")):
            names.update(name.strip() for name in line.split(": ", 1)[1].split(","))
    return names


def compared(block, quantity, vocabularies, left_out=frozenset()):
    """(row, ours, interval, the paper's) of the quantity that a finding is about."""
    full = full_row(block)
    for row in block["rows"]:
        if row is full or row["row"] in left_out:
            continue
        base = next((q for q in RELATIVE.get(quantity, ()) if average(row, q)), None)
        value = average(row, "active_tokens" if quantity == "share" else quantity)
        found = (None, None, None)
        if value:
            found = (value["ours"], value["ours_interval"], value["published"])
        elif base and full:
            found = against_full(row, full, base)
        if found[0] is None or found[2] is None:
            continue
        if quantity == "share":
            found = found[0] / vocabularies[0], None, found[2] / vocabularies[1]
        yield row["row"], *found


NAMES = {"rho_tau": "rho_tau", "share": "share of the vocabulary", "speedup_vs_full": "speed against the full head"}


def own_finding(block):
    """The same without values of the paper."""
    speeds = [average(row, "tokens_per_second")["ours"] for row in block["rows"] if average(row, "tokens_per_second")]
    taus = [average(row, "tau")["ours"] for row in block["rows"] if average(row, "tau") and average(row, "tau")["ours"]]
    speeds = [speed for speed in speeds if speed]
    if not speeds or not taus:
        return ""
    return f"tau is {min(taus):.2f} to {max(taus):.2f}, tokens/s {min(speeds):.1f} to {max(speeds):.1f} on average."


def finding(block, quantity, vocabularies, left_out=frozenset()):
    """What the comparison says, from the figures alone."""
    rows = list(compared(block, quantity, vocabularies, left_out)) if quantity else []
    if not rows:
        return own_finding(block)
    swapped = [(a[0], b[0]) for i, a in enumerate(rows) for b in rows[i + 1:] if (a[1] - b[1]) * (a[3] - b[3]) < 0]
    name, ours, interval, paper = max(rows, key=lambda row: abs(row[1] - row[3]))
    what = NAMES.get(quantity, quantity)
    if len(rows) == 1:
        return f"{name} has {what} {with_interval(ours, interval)} here, {paper:.3f} there."
    apart = sorted(abs(row[1] - row[3]) for row in rows)
    text = (f"The median difference in {what} is {apart[len(apart) // 2]:.3f} over {len(rows)} rows, the largest that of {name}: "
            f"{with_interval(ours, interval)} here, {paper:.3f} there.")
    pairs = len(rows) * (len(rows) - 1) // 2
    if not swapped:
        return text + " The rows are in the paper's order."
    if pairs == 1:
        return text + " The rows are in the other order than the paper's."
    return text + f" Of {pairs} pairs of rows, {len(swapped)} {'is' if len(swapped) == 1 else 'are'} in another order than the paper's."


def block_tables(block, vocabularies):
    """The block's tables: one for each quantity with tasks, in which those with averages alone are columns."""
    rows = [row for row in block["rows"] if row["missing"] is None]
    if not rows:
        return ""
    quantities = list(dict.fromkeys(v["quantity"] for v in rows[0]["values"] if v["column"] != "Average"))
    alone = [v["quantity"] for v in rows[0]["values"] if v["column"] == "Average" and v["quantity"] not in quantities]
    out = []
    for place, quantity in enumerate(quantities or [""]):
        columns = [v["column"] for v in rows[0]["values"] if v["quantity"] == quantity]
        more = alone if place == 0 else []
        full = full_row(block)
        base = next((q for q in ("tau", "speedup_vs_ar") if q == quantity or q in more), None)
        name = {"tau": "rho_tau", "speedup_vs_ar": "x full"}.get(base)
        if full is None or name in alone:
            base = None
        has_paper = {q: any(v["published"] is not None for row in rows for v in row["values"] if v["quantity"] == q)
                     for q in (quantity, *more)}
        lines = []
        for row in rows:
            values = [v for v in row["values"] if v["quantity"] == quantity] + [average(row, q) for q in more]
            cells = [pair_of(v, DIGITS.get(v["quantity"], 2), published_digits(rows, v["quantity"]), vocabularies,
                             has_paper[v["quantity"]]) for v in values]
            if base:
                ours, interval, paper = against_full(row, full, base)
                same = row is full  # is 1 by definition
                cells.append("-" if ours is None else "1" if same else f"{with_interval(ours, interval)} / {paper:.3f}"
                             if paper else with_interval(ours, interval))
            lines.append([row["row"], *cells])
        heads = [HEADINGS.get(one, one) for one in (quantity or "average", *columns, *more, *([name] if base else []))]
        out.append(table(heads, lines))
    return "\n".join(out)


def differences(report):
    """What differs, a line each. Prompts are counted, and paths are those of the repository."""
    counts = report["conversations"]
    same = set(counts.values())
    yield "prompts: " + (f"{same.pop()} of each of {', '.join(counts)}" if len(same) == 1 else
                         ", ".join(f"{task} {count}" for task, count in counts.items()))
    for line in report["differences"]:
        if not line.startswith("prompts here"):
            yield line


def missing_rows(block):
    reasons = {}
    for row in block["rows"]:
        if row["missing"]:
            reason = re.sub(r"(^|\s)/\S*/(?=assets/)", r"\1", row["missing"])  # paths as in the repository
            other_size = re.match(r"(\S+): head \S+ was fitted with (\S+), not ", reason)
            if other_size:
                reason = f"`{other_size[1]}` has {other_size[2]}; `draftscope fit` makes one of another size"
            reasons.setdefault(reason, []).append(row["row"])
    for reason, names in reasons.items():
        yield f"- not run: {'; '.join(names)}: {reason}\n"


def paper_part(one, measurement, paths):
    kept = stored(measurement, paths["raw"])
    if kept is None:
        return f"## {one.name}\n\n{absent(measurement, paths)}"
    report = kept["result"]
    vocabularies = (report["vocabulary"], report["paper_vocabulary"])
    out = [f"## {report['paper']}, {one.name.split('/')[1].replace('-', ' ').capitalize()}: {report['title']}", ""]
    for block in report["blocks"]:
        if block["setup"]:
            out += [f"### {block['setup']}", ""]
        if block["temperature"] > 0:
            out += [f"Drafts are checked {block['verified']} (`--verify {block['verify']}`).", ""]
        copied = copied_rows(report)
        says = finding(block, one.compare, vocabularies, copied)
        has_paper = any(v["published"] is not None for row in block["rows"] for v in row["values"])
        legend = "Ours [95 % interval] / the paper's. " if has_paper else "Ours. "
        out += [block_tables(block, vocabularies), "", legend + says, ""]
        if copied:
            out += [f"Not compared: {', '.join(sorted(copied))}, whose values the paper's authors took or computed from elsewhere.", ""]
    if one.holds:
        holds, figure = one.holds(report["blocks"])
        out += [f"**The paper: {one.claim}** {'It holds here' if holds else 'It does not hold here'}: {figure}.", ""]
    out += [one.why, "", "What differs:", ""]
    out += [f"- {line}\n" for line in differences(report)]
    out += [line for block in report["blocks"][:1] for line in missing_rows(block)]
    if one.picture:
        out += ["", f"To draw it: `{one.picture}`"]
    out += ["", origin(kept)]
    return "\n".join(line.rstrip("\n") for line in out) + "\n"


# ---- MicroSpec's Figure 1

def oracle(cost):
    """The speed relative to the full head if no draft were lost: the cost model at rho_tau = 1."""
    return (1 + cost["kappa"]) / (1 + cost["nu"] * cost["kappa"])


def figure_1a(kept):
    by_head = {method["head"]: method for method in kept["result"]["methods"]}
    rows = []
    for name, head in [*STATIC.items(), ("MicroSpec", "microspec")]:
        method = by_head.get(head)
        if method is None or method["against_full"] is None:
            continue
        cost = method["against_full"]
        intervals = cost["intervals"]
        rows.append([name, number(method["row_tokens"], 0), with_interval(cost["rho_tau"], intervals.get("rho_tau")),
                     with_interval(cost["measured_speedup"], intervals.get("measured_speedup")), number(oracle(cost), 3)])
    return table(["of 128k tokens", "tokens here", "rho_tau", "x full", "x full if no draft were lost"], rows)


def coverage(prompts, head):
    """Share of the emitted tokens in the active set."""
    sums = [(prompt["heads"][head]["coverage"] or 0, prompt["heads"][head]["committed"]) for prompt in prompts]
    whole = sum(count for _, count in sums)
    return sum(share * count for share, count in sums) / whole if whole else None


def resampled(prompts, head):
    """A percentile interval by conversation, of 300 resamples."""
    conversations = {}
    for prompt in prompts:
        conversations.setdefault(prompt["id"], []).append(prompt)
    if len(conversations) < 6:
        return None
    draw, groups = random.Random(20260519), list(conversations.values())
    values = sorted(coverage([p for group in draw.choices(groups, k=len(groups)) for p in group], head) for _ in range(300))
    return values[7], values[292]


def figure_1b(kept):
    result = kept["result"]
    prompts = {}
    for prompt in result["prompts"]:
        prompts.setdefault(TASKS.get(prompt["category"], prompt["category"]), []).append(prompt)
    heads = [head["head"] for head in result["heads"]]
    rows = []
    for name, spec in [*STATIC.items(), ("MicroSpec", "microspec")]:
        place = next((h for h, head in enumerate(heads) if head == spec), None)
        if place is None:
            continue
        cells = [f"{100 * coverage(of, place):.1f}" for of in prompts.values()]
        low_high = resampled(result["prompts"], place)
        whole = f"{100 * coverage(result['prompts'], place):.1f}" + (f" [{100 * low_high[0]:.1f}, {100 * low_high[1]:.1f}]" if low_high else "")
        rows.append([name, number(result["heads"][place]["row_tokens"], 0), *cells, whole])
    return table(["of 128k tokens", "tokens here", *prompts, "all texts, %"], rows)


def figure_part(measured, paths):
    out = ["## MicroSpec, Figure 1: what static vocabularies lose, and coverage by task", ""]
    for name, make, says in (
            ("microspec/figure-1a", figure_1a,
             "The paper's text has no values. It says that static vocabularies gain little below 16k, and lose much below 2k, while the "
             "speed that no lost draft would give still grows. The last column is that speed by the cost model. Conversations of MT-Bench."),
            ("microspec/figure-1b", figure_1b,
             "Share of the emitted tokens in the active set. The paper says 73 to 97 % for MicroSpec with at most 3k tokens, and that static "
             "vocabularies often need more than 16k, or even 32k, for as much. MicroSpec is replayed with the candidates of the accepted path, so its coverage is an estimate.")):
        kept = stored(measured[name], paths["raw"])
        out += [f"### {name.split('/')[1].replace('-', ' ').capitalize()}", "", says, ""]
        out += [make(kept), "", origin(kept), ""] if kept else [absent(measured[name], paths), ""]
    out.append("To draw it: `draftscope gui FILE`, panel Coverage, of a run with `--head microspec --save FILE`.")
    return "\n".join(line.rstrip("\n") for line in out) + "\n"


# ---- the page

def engines_part():
    data = json.loads(ENGINES.read_text(encoding="utf-8"))
    rows = [[row["engine"], row["drafter"], row["here"], row["texts"], row["rounds"], f"{row['tau'][0]:.3f} / {row['tau'][1]:.3f}"]
            for row in data["rows"]]
    notes = "".join(f"- {row['engine']}, {row['drafter']}: {row['note']}\n" for row in data["rows"] if "note" in row)
    return (f"## One checkpoint in three engines\n\n{data['says']}\n\n"
            + table(["engine", "drafter", "here", "same texts", "rounds accepted alike", "tau, theirs / ours"], rows, left=5)
            + f"\n{data['about']}\n\n{notes}\nAt {data['commit']}, on {data['date']}.\n")


def page(measured, paths):
    by_name = {one.name: one for one in measured}
    head = """# The papers' experiments on a small model

A published table or figure of each of five papers next to ours. The target here is SmolLM2-135M-Instruct on a CPU, and the papers' have
billions of parameters and run on GPUs. Target, drafter and prompts differ, so accepted lengths do; what compares is the shape: rho_tau, a
head's tau relative to the full head's. Brackets are 95 % intervals of ours, by resampled conversations: they hold no other model. Averages are
means over tasks, of ratios as well. Tables that the papers made with EAGLE-2 run with the demo's `eagle3`, which has a file of every head.

Written by `tests/bench/report.py reproduced`. The figures of the papers are in `assets/published`.

"""
    parts = [engines_part(), *(paper_part(one, by_name[one.name], paths) for one in PAPERS), figure_part(by_name, paths)]
    return head + "\n".join(parts)
