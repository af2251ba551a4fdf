"""A corpus by the target itself: conversations decoded in lockstep, each batch written as one trace folder with the
features met on the way, so that nothing is computed twice."""
import gzip
import json
import pathlib
import random
import time

import torch

from . import trace
from .make_prompts import prompt_hash
from .memory import give_back
from .target import Cache

SLOTS = 80_000  # cache positions of a batch, over all its sequences
PREFILL = 4096  # tokens of one prefill forward


class Sequence:
    """A conversation being decoded: tokens so far, texts of the user yet to come, tokens forced before the target speaks again."""

    def __init__(self, record, text):
        turns = record["turns"] if "turns" in record else [record["prompt"]]
        self.record, self.turns = record, turns
        self.tokens = text.prompt([{"role": "user", "content": turns[0]}])
        self.forced, self.pending = [], [between(text, t) for t in turns[1:]]
        self.spoken = [[len(self.tokens), 0]]

    def room(self, max_new):
        return len(self.tokens) + sum(map(len, self.pending)) + max_new * len(self.turns) + 1

    def take(self, chosen, eos, max_new):
        """The target's token after the last one; False when the conversation is over."""
        if self.forced:
            self.tokens.append(self.forced.pop(0))
            if not self.forced:
                self.spoken.append([len(self.tokens), 0])
            return True
        self.tokens.append(chosen)
        self.spoken[-1][1] += 1
        if chosen not in eos and self.spoken[-1][1] < max_new:
            return True
        if not self.pending:
            return False
        self.forced = self.pending.pop(0)
        if self.forced[0] == chosen:
            self.forced = self.forced[1:]
        return True


def between(text, question):
    """Token ids from the end of a response to the start of the next one."""
    mark = "\u0001response\u0001"
    whole = text.render([{"role": "user", "content": "x"}, {"role": "assistant", "content": mark}, {"role": "user", "content": question}])
    return text.encode(whole.split(mark)[1])


def pick(logits, temperature, generator):
    """Next tokens and the top of the ranking: ids and log-probabilities, ties to the lower id left to torch."""
    top, ids = logits.float().topk(trace.TOP, -1) if logits.shape[0] <= 16 else logits.topk(trace.TOP, -1)
    top = top.float()
    shifted = logits.float().sub_(top[:, :1]).exp_()
    logprobs = top - top[:, :1] - shifted.sum(-1, keepdim=True).log_()
    if temperature <= 0:
        return ids[:, 0], ids, logprobs
    noise = torch.rand(shifted.shape, generator=generator).clamp_(min=1e-12).log_().neg_().to(logits.device)
    return (torch.softmax(logits.float() / temperature, -1) / noise).argmax(-1), ids, logprobs


@torch.inference_mode()
def decode(target, sequences, max_new, temperature, generator):
    """Runs a batch to its end; yields trace.Piece for each sequence as it finishes."""
    eos = set(target.config.eos)
    capacity = max(s.room(max_new) for s in sequences)
    cache = Cache(target, len(sequences), capacity)
    record = [[] for _ in sequences]  # per sequence: (hidden, aux) rows in order
    first = torch.zeros(len(sequences), target.config.hidden, device=target.device)
    longest = max(len(s.tokens) for s in sequences)
    per = max(1, PREFILL // longest)
    for at in range(0, len(sequences), per):
        part = sequences[at : at + per]
        ids = torch.zeros(len(part), max(len(s.tokens) for s in part), dtype=torch.long)
        for row, s in zip(ids, part):
            row[: len(s.tokens)] = torch.tensor(s.tokens)
        view = Cache.__new__(Cache)
        view.keys, view.values = [k[at : at + per] for k in cache.keys], [v[at : at + per] for v in cache.values]
        hidden, aux = target.forward(ids.to(target.device), view)
        for i, s in enumerate(part):
            n = len(s.tokens)
            cache.lengths[at + i], first[at + i] = n, hidden[i, n - 1]
            record[at + i].append((hidden[i, :n].bfloat16().cpu(), aux[i, :n].bfloat16().cpu()))
    tops = [[] for _ in sequences]
    active, hidden = list(range(len(sequences))), first
    while any(i is not None for i in active):
        chosen, ids, logprobs = pick(target.logits(hidden), temperature, generator)
        next_ids, over, ids, logprobs = chosen.tolist(), set(), ids.cpu(), logprobs.cpu()
        for row, i in enumerate(active):
            if i is None:
                continue
            s = sequences[i]
            speaking = not s.forced
            alive = s.take(next_ids[row], eos, max_new)
            if speaking:
                tops[i].append((ids[row], logprobs[row]))
            if not alive:
                over.add(row)
            next_ids[row] = s.tokens[-1]
        # The last token of a response is fed too: its row predicts what the target would say next.
        hidden, aux = target.step(torch.tensor(next_ids, device=target.device), cache)
        kept = hidden.bfloat16().cpu(), aux.bfloat16().cpu()
        for row, i in enumerate(active):
            if i is None:
                continue
            record[i].append((kept[0][row : row + 1], kept[1][row : row + 1]))
        ended = [row for row, i in enumerate(active) if i is not None and (row in over or (sequences[i].forced and fresh(sequences[i])))]
        if ended:
            _, ids, logprobs = pick(target.logits(hidden[ended]), 0, None)
            for k, row in enumerate(ended):
                tops[active[row]].append((ids[k].cpu(), logprobs[k].cpu()))
        for row in sorted(over):
            i = active[row]
            yield piece(sequences[i], record[i], tops[i], eos)
            record[i] = tops[i] = active[row] = None
            cache.lengths[row] = 0  # steps on as an idle row until the batch shrinks; must not outgrow its slot
        stay = [row for row, i in enumerate(active) if i is not None]
        if len(stay) <= 0.75 * len(active):
            active = [active[row] for row in stay]
            if active:
                rows = torch.tensor(stay, device=target.device)
                cache.select(rows, min(cache.capacity, max(sequences[i].room(max_new) for i in active)))
                hidden = hidden[rows]


def fresh(s):
    """The row just fed was a response's last: no forced token of the next turn has been taken yet."""
    first, count = s.spoken[-1]
    return len(s.tokens) == first + count


def piece(s, record, tops, eos):
    r = s.record
    entry = {"id": str(r.get("id", "")), "suite": r.get("source", ""), "category": r.get("category", ""), "turn": len(s.turns) - 1,
             "hash": prompt_hash(s.turns[0]), "finish": "eos" if s.tokens[-1] in eos else "length"}
    return trace.Piece(entry, s.tokens, torch.cat([h for h, _ in record]), torch.cat([a for _, a in record]), s.spoken,
                       torch.stack([i for i, _ in tops]), torch.stack([p for _, p in tops]))


def batches(records, text, max_new, seed, context):
    """Batches of like length that fit SLOTS, in an order that mixes the kinds early: fixed by the seed."""
    order = list(range(len(records)))
    random.Random(seed).shuffle(order)
    made = []
    for at in range(0, len(order), 2048):
        window = [Sequence(records[i], text) for i in order[at : at + 2048]]
        window = sorted((s for s in window if s.room(max_new) < context), key=lambda s: s.room(max_new))
        batch, local = [], []
        for s in window:
            if batch and (len(batch) + 1) * s.room(max_new) > SLOTS or len(batch) == 256:
                local.append(batch)
                batch = []
            batch.append(s)
        local += [batch] if batch else []
        random.Random(f"{seed}-{at}").shuffle(local)
        made += local
    return made


def run(target, text, records, out, max_new, temperature, seed, name, worker=(0, 1), tokens=None):
    """Trace folders OUT/NNNN and, beside them, corpus.NNNN.jsonl.gz with the ids alone. What exists is kept."""
    out, spoken, began = pathlib.Path(out), 0, time.time()
    out.mkdir(parents=True, exist_ok=True)
    work = batches(records, text, max_new, seed, target.config.context)
    for number, batch in enumerate(work):
        if number % worker[1] != worker[0] or (out / f"{number:04d}" / "trace.json").exists():
            continue
        if tokens is not None and spoken >= tokens:
            break
        generator = torch.Generator().manual_seed(seed * 1_000_003 + number)
        pieces = list(decode(target, batch, max_new, temperature, generator))
        trace.write(out / f"{number:04d}", target, pieces, {"target": name, "temperature": temperature, "seed": seed, "max_new": max_new})
        with gzip.open(out / f"corpus.{number:04d}.jsonl.gz", "wt", encoding="utf-8") as file:
            for p in pieces:
                for first, count in p.spoken:
                    file.write(json.dumps({"file": p.entry["suite"], "source": p.entry["category"], "id": p.entry["id"], "temperature": temperature,
                                           "prompt": p.tokens[:first], "response": p.tokens[first : first + count]}, separators=(",", ":")) + "\n")
        spoken += sum(count for p in pieces for _, count in p.spoken)
        seconds = time.time() - began
        print(f"batch {number + 1}/{len(work)}: {len(pieces)} conversations, {spoken} tokens, {spoken / seconds:.0f} tok/s, {seconds:.0f} s", flush=True)
        del pieces
        give_back()
