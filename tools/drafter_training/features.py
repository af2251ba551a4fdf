"""Features of texts the target has already written: token ids in, trace folders out."""
import gzip
import hashlib
import json
import pathlib
import time

import torch

from . import trace

SHARD = 16_000  # tokens of one trace folder
FORWARD = 3_000  # tokens of one forward


def read_corpus(path, temperature=None, least=1):
    """Lines `{prompt: ids, response: ids, ...}`; a line whose prompt begins with the previous conversation's ids (a second
    turn) joins it. `temperature` keeps only texts sampled at it, `least` only responses of so many tokens."""
    found = []
    opener = gzip.open if str(path).endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            record = json.loads(line)
            for name in ("prompt", "response"):
                if not isinstance(record.get(name), list) or not record[name]:
                    raise SystemExit(f"{path}:{number}: field '{name}' is not a list of token ids")
            if temperature is not None and record.get("temperature", 0) != temperature:
                continue
            tokens, start = record["prompt"] + record["response"], len(record["prompt"])
            if found and len(found[-1]["tokens"]) < start and tokens[: len(found[-1]["tokens"])] == found[-1]["tokens"]:
                found[-1]["tokens"] = tokens
                found[-1]["spoken"].append([start, len(record["response"])])
            elif len(record["response"]) >= least:
                found.append({"id": record.get("id", f"{pathlib.Path(path).stem}-{number}"), "hash": record.get("hash", ""), "source": record.get("source", ""), "tokens": tokens,
                              "spoken": [[start, len(record["response"])]]})
    return found


def ids_hash(ids):
    return hashlib.sha256(" ".join(map(str, ids)).encode()).hexdigest()[:16]


@torch.inference_mode()
def pieces_of(target, batch):
    """trace.Piece of each conversation of a batch, by one padded forward."""
    ids = torch.zeros(len(batch), max(len(r["tokens"]) for r in batch), dtype=torch.long)
    for row, r in zip(ids, batch):
        row[: len(r["tokens"])] = torch.tensor(r["tokens"])
    hidden, aux = target.forward(ids.to(target.device))
    for i, r in enumerate(batch):
        n, rows = len(r["tokens"]), trace.predicting_rows(r["spoken"])
        logits = target.logits(hidden[i, rows]).float()
        top, top_ids = logits.topk(trace.TOP, -1)
        logprobs = (top - logits.logsumexp(-1, keepdim=True)).cpu()
        entry = {"id": str(r["id"]), "suite": "", "category": r["source"], "turn": len(r["spoken"]) - 1,
                 "hash": r.get("hash", ""), "key": ids_hash(r["tokens"][: r["spoken"][0][0]]),
                 "finish": "eos" if r["tokens"][-1] in target.config.eos else "length"}
        yield trace.Piece(entry, r["tokens"], hidden[i, :n].bfloat16().cpu(), aux[i, :n].bfloat16().cpu(), r["spoken"], top_ids.cpu(), logprobs)


def run(target, records, out, name, temperature, worker=(0, 1)):
    """Folders OUT/NNNN of about SHARD tokens; what exists is kept, so a killed run goes on where it was."""
    out, shards, done, began = pathlib.Path(out), [[]], 0, time.time()
    for r in records:
        if sum(len(x["tokens"]) for x in shards[-1]) > SHARD:
            shards.append([])
        if len(r["tokens"]) < target.config.context:
            shards[-1].append(r)
    for number, shard in enumerate(shards):
        folder = out / f"{number:04d}"
        if number % worker[1] != worker[0] or (folder / "trace.json").exists() or not shard:
            continue
        pieces, batch = [], []
        for r in sorted(shard, key=lambda r: len(r["tokens"])):
            if batch and (len(batch) + 1) * len(r["tokens"]) > FORWARD:
                pieces += pieces_of(target, batch)
                batch = []
            batch.append(r)
        pieces += pieces_of(target, batch)
        trace.write(folder, target, pieces, {"target": name, "temperature": temperature or 0, "seed": 0, "max_new": max(len(p.tokens) for p in pieces)})
        done += sum(len(p.tokens) for p in pieces)
        print(f"features {number + 1}/{len(shards)}: {done} tokens, {done / (time.time() - began):.0f} tok/s", flush=True)
