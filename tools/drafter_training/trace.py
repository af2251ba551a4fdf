"""Trace folders (docs/FORMATS.md): trace.json and trace.safetensors, here as the features a drafter trains on.

A conversation is one entry: its last turn is the entry's response, earlier responses lie in its prompt rows and are
named by `earlier` ([first row from the entry's start, count]), which only the trainer reads. Rows outside responses
hold no ranking of the target (log-probabilities of -inf)."""
import json
import os
import pathlib
import shutil

import torch
from safetensors import safe_open
from safetensors.torch import save_file

TOP = 32


class Piece:
    """One conversation on its way into a trace."""

    def __init__(self, entry, tokens, hidden, aux, spoken, top_ids, top_logprobs):
        """`spoken`: [first, count] of each response; the tops belong to rows first - 1 to first + count - 1 of each."""
        self.entry, self.tokens, self.hidden, self.aux = entry, tokens, hidden, aux
        self.spoken, self.top_ids, self.top_logprobs = spoken, top_ids, top_logprobs


def predicting_rows(spoken):
    """Rows whose next token the target chose, and the row of each response's last token (its successor is text of the
    user, or none, yet the target's ranking there is as good as any)."""
    return torch.cat([torch.arange(first - 1, first + count) for first, count in spoken])


def write(folder, target, pieces, about):
    """One trace folder, appearing under its name only when whole."""
    folder = pathlib.Path(folder)
    unfinished = folder.with_name(folder.name + ".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    rows = sum(len(p.tokens) for p in pieces)
    ids, logprobs = torch.zeros(rows, TOP, dtype=torch.int32), torch.full((rows, TOP), -torch.inf, dtype=torch.float16)
    entries, at = [], 0
    for p in pieces:
        where = at + predicting_rows(p.spoken)
        ids[where], logprobs[where] = p.top_ids.int(), p.top_logprobs.half()
        first, count = p.spoken[-1]
        entries.append({**p.entry, "first_row": at, "prompt_tokens": first, "generated_tokens": count, "earlier": p.spoken[:-1]})
        at += len(p.tokens)
    save_file({"tokens": torch.cat([torch.as_tensor(p.tokens, dtype=torch.int32) for p in pieces]),
               "hidden": torch.cat([p.hidden.bfloat16() for p in pieces]), "aux": torch.cat([p.aux.bfloat16() for p in pieces]),
               "topk_ids": ids, "topk_logprobs": logprobs}, unfinished / "trace.safetensors")
    c = target.config
    (unfinished / "trace.json").write_text(json.dumps({
        "format": "draftscope-trace", "version": 1, "source": "tools/train_drafter.py",
        "target": {"name": about["target"], "layers": c.layers, "hidden": c.hidden, "vocab": c.vocab, "tokens": c.tokens or c.vocab, "context": c.context,
                   "tokenizer_hash": None, "eos": list(c.eos)},
        "sampling": {"temperature": about["temperature"], "top_p": 1.0, "top_k": 0, "seed": about["seed"]},
        "max_new": about["max_new"], "precision": "bf16", "aux_layers": list(c.aux_layers), "rows": rows, "prompts": entries}))
    shutil.rmtree(folder, ignore_errors=True)
    os.rename(unfinished, folder)


class Trace:
    """A folder to read from; tensors stay on disk until asked for."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.info = json.loads((self.folder / "trace.json").read_text())
        self.entries = self.info["prompts"]
        self.file = safe_open(self.folder / "trace.safetensors", "pt")

    def spoken(self, entry):
        return [list(s) for s in entry.get("earlier", [])] + [[entry["prompt_tokens"], entry["generated_tokens"]]]

    def rows(self, entry, name):
        first = entry["first_row"]
        return self.file.get_slice(name)[first : first + entry["prompt_tokens"] + entry["generated_tokens"]]


def folders(paths):
    """Trace folders named, or lying in the folders named, in a fixed order."""
    found = []
    for path in map(pathlib.Path, paths):
        if (path / "trace.json").exists():
            found.append(path)
        else:
            found += sorted(p.parent for p in path.glob("*/trace.json") if not p.parent.name.endswith(".part"))
    return found
