"""docs/MEASUREMENTS.md: today's figures of one machine, and those kept of others."""
import json
import re

from report import ROOT, Measurement, absent, number, origin, stored, table, with_interval

PAGE = "docs/MEASUREMENTS.md"
KEPT = ROOT / "docs/data/kept_measurements.json"
DEMO = ("~/.cache/draftscope/models/SmolLM2-135M-Instruct.Q4_1.gguf", "./run build fetches it")
SPEC_BENCH, HUMAN_EVAL = "assets/prompts/spec_bench_half.jsonl", "assets/prompts/humaneval_half.jsonl"
HEADS = ("full,fr-spec:v=8192,pa-fr,vocabtrim:v=8192,vocabtrim-t:v=4096,bcl,coral,dynaspec,specvocab,slimspec,microspec")
TREE = "depth=3,topk=3,nodes=8"
METHODS = ("eagle3 x full @ chain=3", "eagle3 x microspec @ chain=2", f"eagle3 x microspec @ {TREE}", f"eagle3 x slimspec @ {TREE}",
           "suffix @ chain=4", "ngram @ chain=3")


def bench_program(name):
    return (f"{{build}}/bench/{name}", f"cmake --build build/release --target {name}")


# ---- how results are shown

def heads_table(kept):
    """rho_tau and tau by task of each head, with the mean over tasks. Taus count the last round in full, as the papers'."""
    methods = [method for method in kept["result"]["methods"] if method["drafter"] != "none"]
    tasks = [cell["task"] for cell in methods[0]["tasks"]]
    rows = []
    for method in methods:
        mean = method["mean_of_tasks"]
        rows.append([method["head"], *(number(cell["tau_unclipped"], 2) for cell in method["tasks"]),
                     with_interval(mean["tau_unclipped"], mean["tau_unclipped_interval"], 2),
                     with_interval(mean["rho_tau"], mean["rho_tau_interval"]),
                     number(method["row_tokens"], 0), number((method["against_full"] or {}).get("nu")),
                     with_interval(mean["speedup"], mean["speedup_interval"], 2)])
    return table(["head", *tasks, "tau, mean of tasks", "rho_tau", "tokens", "nu", "x AR"], rows)


def methods_table(kept):
    rows = []
    for method in kept["result"]["methods"]:
        rows.append([method["method"], number(method["tau"], 3), number(method["tokens_per_second"], 1),
                     with_interval(method["speedup"], method["speedup_interval"]),
                     with_interval(method["end_to_end_speedup"], method["end_to_end_speedup_interval"]),
                     number((method["latency"].get("inter_token_ms") or {}).get("median"), 2)])
    floor = kept["result"]["noise_floor"]
    said = f"\nThe first method against itself: {with_interval(floor['ratio'], floor['interval'])}.\n" if floor else ""
    return table(["method", "tau", "tok/s", "x AR", "x AR, with prefill", "ms between tokens"], rows) + said


def kernels_table(kept):
    ops = kept["result"].get("ops") or kept["result"].get("kernels") or []
    keys = [key for key in ("op", "precision", "rows", "median_us", "gb_per_s", "share_of_probe") if ops and key in ops[0]]
    rows = [[number(op[key], 2) if isinstance(op[key], float) else str(op[key]) for key in keys] for op in ops]
    return table(keys, rows, left=2) if rows else "No kernel was measured.\n"


def printed(kept):
    """What a program printed: its tables as they are, other text as code; of files of this machine the name alone."""
    text = re.sub(r"(?<!\S)/(?:[\w.+-]+/)+", "", kept["result"].strip("\n"))
    return text + "\n" if text.lstrip().startswith("|") else f"```text\n{text}\n```\n"


# ---- what is measured

class Section:
    def __init__(self, title, says, measurement, show):
        self.title, self.says, self.measurement, self.show = title, says, measurement, show


def sections(limit=None, max_new=None):
    tokens = max_new or 64

    def bench(name, *words, prompts=SPEC_BENCH, count=36):
        command = ["{program}", "bench", "--prompts", prompts, "--limit", limit or count, "--balanced", "--max-new", tokens, *words,
                   "--json", "--quiet"]
        return Measurement(name, [command], [DEMO])

    def methods(name, prompts):
        given = [word for method in METHODS for word in ("--method", method)]
        return bench(name, *given, prompts=prompts, count=24)

    def program(name, words, needs):
        return Measurement(name, [words], [DEMO, *needs], as_text=True)
    llama = [("tests/bench/compare_llama.sh", "part of the repository")]
    same = "Six conversations of each task of Spec-Bench; tau counts the last round of a text in full, as in the papers."
    return [
        Section("Heads, greedy", f"{same} Drafter `eagle3`, `{TREE}`.",
                bench("heads-greedy", "--heads", HEADS, "--drafter", "eagle3", "--tree", TREE), heads_table),
        Section("Heads, T=1", f"{same} Drafts are checked by rejection sampling (`--verify pq`), which accepts more than exact match.",
                bench("heads-t1", "--heads", HEADS, "--drafter", "eagle3", "--tree", TREE, "--temperature", 1, "--verify", "pq",
                      "--repeat", 1), heads_table),
        Section("End to end, Spec-Bench", "Plain decoding and the methods decode in turns; the heads' files were fitted on other texts.",
                methods("end-to-end-spec-bench", SPEC_BENCH), methods_table),
        Section("End to end, HumanEval", "The same over HumanEval, on which no default was chosen.",
                methods("end-to-end-humaneval", HUMAN_EVAL), methods_table),
        Section("Against llama.cpp", "Both engines in one process, in turns, on the same GGUF files: llama.cpp's time over ours.",
                program("llama", ["tests/bench/compare_llama.sh", f"rounds={limit or 5}", "threads=2"], llama), printed),
        Section("Against llama.cpp, speculative", "llama.cpp's server with the demo's `eagle3`, greedy; chains with the full head.",
                program("llama-speculative", ["tests/bench/compare_llama.sh", "speculative", "--limit", limit or 4, "--turns", 2,
                                              "--tokens", tokens], llama), printed),
        Section("Verification by rows", "What verifying M rows costs against one row.",
                program("verification", ["python3", "tests/bench/verification_table.py", "{build}", "--turns", 3, "--rows", "1,4,8,12,16"],
                        [bench_program("target_bench")]), printed),
        Section("Kernels", "The head's, gathers' and selections' kernels at the demo's size.",
                Measurement("kernels", [["{program}", "kernels", "--json"]], []), kernels_table),
        Section("Recording's cost", "A step with recording over one without.",
                program("overhead", ["{build}/bench/overhead_bench", max(60, 12 * (limit or 20)), 48], [bench_program("overhead_bench")]), printed),
        Section("Files", "Rows a second into a capture, and opening it.",
                program("storage", ["{build}/bench/storage_bench", 400000, 3], [bench_program("storage_bench")]), printed),
    ]


def measurements(limit=None, max_new=None):
    return [section.measurement for section in sections(limit, max_new)]


# ---- the page

def kept_part(data):
    """Figures of a GPU or of fetched models, which keep their own machine and date."""
    out = []
    for one in data["sections"]:
        out.append(f"## {one['title']}\n\n{one['says']}\n\n{table(one['header'], one['rows'])}\n"
                   f"Measured on {one['machine']}, at {one['commit']}, on {one['date']}.\n\n`{one['command']}`\n")
    return "\n".join(out)


def page(measured, paths):
    by_name = {one.name: one for one in measured}
    head = """# Measurements

What Draftscope takes on one machine, at one commit: every table names them, with its command. The target is SmolLM2-135M-Instruct
(Q4_1 GGUF, int8 here) with two threads at tier 0, unless a section says otherwise. Intervals are 95 % intervals by conversation. Earlier
figures are in the git history. A figure of a GPU appears only after it was measured on one.

Written by `tests/bench/report.py measurements`. The papers' tables are in [Reproduced](REPRODUCED.md).

"""
    parts = []
    for section in sections():
        measurement = by_name[section.measurement.name]
        kept = stored(measurement, paths["raw"])
        body = section.show(kept) + "\n" + origin(kept) if kept else absent(measurement, paths)
        parts.append(f"## {section.title}\n\n{section.says}\n\n{body}")
    return head + "\n".join(parts) + "\n" + kept_part(json.loads(KEPT.read_text(encoding="utf-8")))
