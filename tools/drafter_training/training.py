"""The training loop: batches out of trace folders, checkpoints, evaluation, export."""
import base64
import json
import os
import pathlib
import random
import time

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from . import drafters, trace
from .loss import SoftCrossEntropy, Vocabulary
from .memory import give_back

HELD_OUT = 40  # one conversation in so many is evaluated on and never trained on, chosen by its prompt's hash
EVALUATED = 96  # held-out conversations looked at


class Batch:
    """Whole conversations, padded; `at` [B, R] the rows drafting starts from, `wanted[k]` [B, R] whether step k's prediction
    is the target's to judge, `ids`, `shares` [B, L, K] the target's ranking by row."""

    def __init__(self, items, depth, eos, top, generator):
        count, length = len(items), max(len(i["tokens"]) for i in items)
        starts = [torch.cat([torch.arange(f - 1, f + n - 1) for f, n in i["spoken"]]) for i in items]
        rows = max(map(len, starts))
        take = lambda name, width, kind: torch.zeros(count, length, *width, dtype=kind)
        d = items[0]["hidden"].shape[1]
        self.tokens = take("tokens", (), torch.long)
        self.hidden, self.aux = take("hidden", (d,), torch.float32), take("aux", (3 * d,), torch.bfloat16)
        self.ids, self.shares = take("ids", (top,), torch.long), take("shares", (top,), torch.float32)
        self.at, self.generator = torch.zeros(count, rows, dtype=torch.long), generator
        self.wanted = torch.zeros(depth, count, rows, dtype=torch.bool)
        for b, item in enumerate(items):
            n, spoken = len(item["tokens"]), item["spoken"]
            self.tokens[b, :n], self.hidden[b, :n] = item["tokens"].long(), item["hidden"].float()
            if item["aux"] is not None:
                self.aux[b, :n] = item["aux"]
            self.ids[b, :n] = item["topk_ids"][:, :top].long()
            shares = item["topk_logprobs"][:, :top].float().exp()
            self.shares[b, :n] = shares / shares.sum(-1, keepdim=True).clamp(min=1e-6)
            self.at[b, : len(starts[b])] = starts[b]
            # Row r's ranking judges when token r was the target's own and did not end the response.
            judged = torch.zeros(length + depth + 1, dtype=torch.bool)
            for first, number in spoken:
                judged[first : first + number] = True
            judged[:n] &= ~torch.isin(item["tokens"].long(), eos)
            judged[:n] &= shares.sum(-1) > 0
            end = torch.cat([torch.full((number,), first + number) for first, number in spoken])
            for k in range(depth):
                row = starts[b] + k + 1
                self.wanted[k, b, : len(starts[b])] = judged[row] & (row < end)

    def to(self, device):
        for name in ("tokens", "hidden", "aux", "ids", "shares", "at", "wanted"):
            setattr(self, name, getattr(self, name).to(device))
        return self

    def target_of(self, k):
        rows = (self.at + k + 1).clamp(max=self.tokens.shape[1] - 1)[self.wanted[k]]
        which = torch.arange(len(self.at), device=self.at.device)[:, None].expand_as(self.at)[self.wanted[k]]
        return self.ids[which, rows], self.shares[which, rows]


class Data:
    """Conversations of trace folders, in an order fixed by seed and epoch."""

    def __init__(self, paths, aux):
        self.traces = [trace.Trace(f) for f in trace.folders(paths)]
        if not self.traces:
            raise SystemExit(f"no trace folder in {', '.join(map(str, paths))}")
        self.names = ["tokens", "hidden", "topk_ids", "topk_logprobs"] + (["aux"] if aux else [])
        for t in self.traces:
            if aux and "aux" not in t.file.keys():
                raise SystemExit(f"{t.folder}: no tensor 'aux', which eagle3 drafts from; record the trace with aux features")
        self.train, self.held, self.hashes = [], [], set()
        for number, t in enumerate(self.traces):
            for entry in t.entries:
                held = int(self.key(entry), 16) % HELD_OUT == 0
                (self.held if held else self.train).append((number, entry))
                if not held:
                    self.hashes.add(self.key(entry))
        self.held = self.held[:: max(1, len(self.held) // EVALUATED)][:EVALUATED]

    def load(self, number, entry):
        t = self.traces[number]
        item = {name: t.rows(entry, name) for name in self.names}
        return {"aux": None, **item, "spoken": t.spoken(entry)}

    @staticmethod
    def key(entry):
        """Names the conversation: the hash of its first user text, or of its prompt's token ids where that is unknown."""
        return entry.get("hash") or entry.get("key") or "1"

    @staticmethod
    def cost(entry):
        return entry["generated_tokens"] + sum(n for _, n in entry.get("earlier", []))

    def batches(self, tokens, seed, epoch):
        """Lists of (trace, entry) with about `tokens` response tokens, of like length, mixed over the epoch."""
        rng, order = random.Random(f"{seed}-{epoch}"), list(self.train)
        rng.shuffle(order)
        made = []
        for at in range(0, len(order), 512):
            pool, batch, size = sorted(order[at : at + 512], key=lambda x: x[1]["prompt_tokens"] + x[1]["generated_tokens"]), [], 0
            for x in pool:
                batch.append(x)
                size += self.cost(x[1])
                if size >= tokens:
                    made.append(batch)
                    batch, size = [], 0
            made += [batch] if batch else []
        rng.shuffle(made)
        return made


def spread(data, d):
    """Root mean square of each dimension of hidden and aux, attention sinks (the first five rows) left out."""
    sums, count = [torch.zeros(d), torch.zeros(3 * d)], 0
    for number, entry in data.train[:: max(1, len(data.train) // 200)]:
        item = data.load(number, entry)
        sums[0] += item["hidden"][5:].float().pow(2).sum(0)
        if item["aux"] is not None:
            sums[1] += item["aux"][5:].float().pow(2).sum(0)
        count += max(0, len(item["tokens"]) - 5)
    return [(s / max(1, count)).sqrt() for s in sums]


class Trainer:
    def __init__(self, args, target):
        self.args, self.target = args, target
        self.depth = args.depth or (4 if args.drafter.startswith("eagle") else 3)
        self.out = pathlib.Path(args.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.dtype = torch.bfloat16 if args.dtype == "bf16" else torch.float32
        torch.manual_seed(args.seed)
        self.model = drafters.make(args.drafter, target.config, self.depth).to(target.device)
        self.data = Data(args.traces, args.drafter == "eagle3")
        self.head, self.kept = target.head, None
        if args.draft_vocab:
            self.trim(args.draft_vocab)
        self.step, self.epoch, self.done, self.seconds, self.tokens_seen, self.best = 0, 0, 0, 0.0, 0, None
        self.hashes = set()
        self.earlier = earlier_training(args.start)
        self.optimizers = self.make_optimizers()
        if not self.resume():
            rms = spread(self.data, target.config.hidden)
            if isinstance(self.model, drafters.Eagle):
                self.model.scale.copy_(rms[0].clamp(min=1e-3))
            if args.start:
                path = args.start / "model.safetensors"
                drafters.load(self.model, load_file(path), path)
            else:
                self.model.start_from(target, *rms)

    def trim(self, size):
        """An own head over the `size` tokens most often responded with; the target's ranking is renormalised on it."""
        if self.args.drafter != "eagle3":
            raise SystemExit("--draft-vocab is for eagle3")
        counts = torch.zeros(self.target.config.vocab)
        for number, entry in self.data.train:
            for first, n in self.data.traces[number].spoken(entry):
                counts += torch.bincount(self.data.traces[number].rows(entry, "tokens")[first : first + n].long(), minlength=len(counts))
        if self.args.eos == "yes":
            counts[list(self.target.config.eos)] = torch.inf
        self.keep(counts.argsort(descending=True, stable=True)[:size].sort().values)
        self.model.own_head = torch.nn.Parameter(self.target.head[self.kept].float())

    def keep(self, ids):
        self.kept = ids.to(self.target.device)
        self.place = torch.full((self.target.config.vocab,), -1, device=self.target.device)
        self.place[self.kept] = torch.arange(len(ids), device=self.target.device)

    def make_optimizers(self):
        """AdamW for everything, or Muon for the matrices between hidden states and AdamW for the rest."""
        adamw = lambda parameters: torch.optim.AdamW(parameters, lr=self.args.rate, betas=(0.9, 0.95), weight_decay=0.0)
        if self.args.optimizer == "adamw":
            return [adamw(self.model.parameters())]
        own_head = getattr(self.model, "own_head", None)
        matrices = [p for p in self.model.parameters() if p.dim() == 2 and p is not own_head]
        rest = [p for p in self.model.parameters() if p.dim() != 2 or p is own_head]
        return [torch.optim.Muon(matrices, lr=self.args.rate, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"), adamw(rest)]

    def rate(self):
        """Warm-up, then constant, then linear to a twentieth over the cooldown."""
        a, left = self.args, self.args.steps - self.step
        return a.rate * min(1.0, (self.step + 1) / 40, 0.05 + 0.95 * left / max(1.0, a.cooldown * a.steps))

    def loss(self, batch, generator):
        total, found = 0.0, []
        ids = [batch.target_of(k) for k in range(self.depth)]
        if self.kept is None:
            vocabulary = Vocabulary(self.head, torch.cat([i for i, _ in ids]), self.args.negatives, generator)
            weight, shift, place = vocabulary.weight, vocabulary.shift, vocabulary.place
        for k, state in enumerate(self.model.steps(batch, self.target.embedding, self.dtype)):
            mask = batch.wanted[k]
            if not mask.any():
                continue
            x, (choices, shares) = self.model.head_input(state[mask]), ids[k]
            if self.kept is None:
                loss = SoftCrossEntropy.apply(x, weight, shift, place[choices], shares)
            else:
                places = self.place[choices]
                shares = shares * (places >= 0)
                shares = shares / shares.sum(-1, keepdim=True).clamp(min=1e-6)
                logits = F.linear(x.to(self.dtype), self.model.own_head.to(self.dtype)).float()
                loss = -(shares * logits.log_softmax(-1).gather(1, places.clamp(min=0))).sum(-1).mean()
            total = total + self.args.decay**k * loss
            found.append(loss.item())
            extra = self.model.extra_loss(k, state, batch, mask)
            if extra is not None:
                total = total + 0.3 * self.args.decay**k * extra
        return total, found

    def items(self, chosen):
        return [self.data.load(*x) for x in chosen]

    def make_batch(self, chosen, generator):
        return Batch(self.items(chosen), self.depth, torch.tensor(self.target.config.eos), trace.TOP, generator).to(self.target.device)

    @torch.no_grad()
    def evaluate(self):
        """Held-out: agreement of the draft's first choice with the target's per step, how often the target's choice is in
        the draft's first four, and the mean run of first choices that agree, plus one (tau of a chain)."""
        self.model.eval()
        right, four, count = [torch.zeros(self.depth, device=self.target.device) for _ in range(3)]
        runs, starts = 0.0, 0
        for at in range(0, len(self.data.held), 8):
            batch = self.make_batch(self.data.held[at : at + 8], None)
            alive = batch.wanted[0].clone()
            starts += int(alive.sum())
            for k, state in enumerate(self.model.steps(batch, self.target.embedding, self.dtype)):
                mask = batch.wanted[k]
                if not mask.any():
                    break
                head = self.head if self.kept is None else self.model.own_head
                best = F.linear(self.model.head_input(state[mask]).to(head.dtype), head).topk(4, -1).indices
                best = best if self.kept is None else self.kept[best]
                hits = best == batch.target_of(k)[0][:, :1]
                right[k] += hits[:, 0].sum()
                four[k] += hits.any(-1).sum()
                count[k] += len(hits)
                agreed = torch.zeros_like(mask)
                agreed[mask] = hits[:, 0]
                alive &= agreed
                runs += int(alive.sum())
        self.model.train()
        share = lambda x: [round(v, 4) for v in (x / count.clamp(min=1)).tolist()]
        return {"first": share(right), "four": share(four), "chain": round(1 + runs / max(1, starts), 4)}

    def state(self):
        return {"model": self.model.state_dict(), "scale": getattr(self.model, "scale", None), "optimizers": [o.state_dict() for o in self.optimizers],
                "optimizer": self.args.optimizer, "step": self.step, "epoch": self.epoch, "done": self.done, "seconds": self.seconds,
                "tokens": self.tokens_seen, "best": self.best, "hashes": sorted(self.hashes), "drafter": self.args.drafter, "depth": self.depth,
                "kept": self.kept}

    def save(self):
        temporary = self.out / "state.pt.part"
        torch.save(self.state(), temporary)
        os.replace(temporary, self.out / "state.pt")
        self.write(self.out / "latest")

    def resume(self):
        path = self.out / "state.pt"
        if not path.exists():
            return False
        saved = torch.load(path, weights_only=False, map_location=self.target.device)
        if (saved["drafter"], saved["depth"], saved["optimizer"]) != (self.args.drafter, self.depth, self.args.optimizer):
            raise SystemExit(f"{path} holds {saved['drafter']} of depth {saved['depth']}, trained with {saved['optimizer']}; choose another --out")
        self.model.load_state_dict(saved["model"])
        if saved["kept"] is not None:
            self.keep(saved["kept"])
        if saved["scale"] is not None:
            self.model.scale.copy_(saved["scale"])
        for optimizer, state in zip(self.optimizers, saved["optimizers"]):
            optimizer.load_state_dict(state)
        self.step, self.epoch, self.done = saved["step"], saved["epoch"], saved["done"]
        self.seconds, self.tokens_seen, self.best, self.hashes = saved["seconds"], saved["tokens"], saved["best"], set(saved["hashes"])
        print(f"resumed at step {self.step}", flush=True)
        return True

    def write(self, folder):
        """The drafter in its published layout, f16."""
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: dict(self.model.named_parameters())[p].detach().half().cpu().contiguous() for p, name in self.model.names().items()}
        config = drafters.config_json(self.args.drafter, self.model, self.target.config.eos)
        if self.kept is not None:
            tensors["lm_head.weight"] = self.model.own_head.detach().half().cpu()
            kept = self.kept.cpu()
            tensors["d2t"] = kept - torch.arange(len(kept))
            held = torch.zeros(self.target.config.vocab, dtype=torch.bool)
            held[kept] = True
            tensors["t2d"] = held
            config["draft_vocab_size"] = len(self.kept)
            config["draft_vocab_eos"] = self.args.eos
        config["training"] = {
            "tool": "draftscope train_drafter.py", "target": pathlib.Path(self.args.target).name, "steps": self.step, "epochs": round(self.passes(), 2),
            "response_tokens_seen": self.tokens_seen, "seconds": round(self.seconds), "depth": self.depth, "seed": self.args.seed, "held_out": self.best,
            "started_from": str(self.args.start.name) if self.args.start else "target"}
        add_earlier(config["training"], self.hashes, self.earlier)
        save_file(tensors, folder / "model.safetensors.part")
        os.replace(folder / "model.safetensors.part", folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")

    def passes(self):
        return self.epoch + self.done / max(1, len(self.data.batches(self.args.tokens, self.args.seed, self.epoch)))

    def report(self):
        held = self.evaluate()
        give_back()
        print(f"step {self.step}: held out, first choice {held['first']}, first four {held['four']}, chain tau {held['chain']}", flush=True)
        held["of"] = sum(map(Data.cost, (e for _, e in self.data.held)))
        # New folders bring new held-out conversations: figures over another set do not compare.
        if self.best is None or self.best["of"] != held["of"] or held["chain"] > self.best["chain"]:
            self.best = held
            self.write(self.out / "best")

    def fit(self):
        a, began, before = self.args, time.time(), self.seconds
        self.model.train()
        if self.step == 0:
            self.report()
        while self.step < a.steps:
            work = self.data.batches(a.tokens, a.seed, self.epoch)
            while self.done < len(work) and self.step < a.steps:
                chosen = work[self.done]
                generator = torch.Generator().manual_seed(a.seed * 1_000_003 + self.step)
                for group in (g for o in self.optimizers for g in o.param_groups):
                    group["lr"] = self.rate()
                loss, parts = self.loss(self.make_batch(chosen, generator), generator)
                self.model.zero_grad()
                loss.backward()
                norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                for optimizer in self.optimizers:
                    optimizer.step()
                self.step, self.done = self.step + 1, self.done + 1
                self.tokens_seen += sum(Data.cost(e) for _, e in chosen)
                self.hashes.update(Data.key(e) for _, e in chosen)
                self.seconds = before + time.time() - began
                if self.step % 10 == 0:
                    print(f"step {self.step}/{a.steps} epoch {self.epoch} loss {' '.join(f'{p:.3f}' for p in parts)} norm {float(norm):.2f} "
                          f"rate {self.rate():.1e} {self.tokens_seen} tokens {self.seconds:.0f} s", flush=True)
                if self.step % a.save_every == 0 or self.step == a.steps:
                    self.report()
                    self.save()
            if self.done >= len(work):
                self.epoch, self.done = self.epoch + 1, 0
                self.data = Data(a.traces, a.drafter == "eagle3")


def earlier_training(folder):
    """The `training` object of the drafter that a run starts from; None without one."""
    if folder is None or not (folder / "config.json").exists():
        return None
    return json.loads((folder / "config.json").read_text()).get("training")


def pack_hashes(hashes):
    """Sorted hashes of eight bytes each, as base64."""
    return base64.b64encode(b"".join(bytes.fromhex(one) for one in sorted(hashes))).decode()


def unpack_hashes(text):
    """The hashes of pack_hashes(), or of older files: hexadecimal numbers between spaces."""
    if " " in text or len(text) == 16:
        return set(text.split())
    packed = base64.b64decode(text)
    return {packed[at:at + 8].hex() for at in range(0, len(packed), 8)}


def add_earlier(training, hashes, earlier):
    """What the weights learnt from before counts as seen: its prompts join `hashes`, its runs are listed, oldest first."""
    if earlier is not None:
        hashes = hashes | unpack_hashes(earlier.get("prompt_hashes", ""))
        told = {name: value for name, value in earlier.items() if name not in ("prompt_hashes", "earlier")}
        training["earlier"] = earlier.get("earlier", []) + [told]
    training["prompt_hashes"] = pack_hashes(hashes)


def run(args, target):
    Trainer(args, target).fit()


def export_checkpoint(checkpoint, out):
    """Copies the best of a run (or its latest), ready to be loaded by `--drafter NAME:OUT`."""
    import shutil

    for kind in ("best", "latest"):
        if (checkpoint / kind / "model.safetensors").exists():
            out.mkdir(parents=True, exist_ok=True)
            for name in ("config.json", "model.safetensors"):
                shutil.copy(checkpoint / kind / name, out / name)
            print(f"{checkpoint / kind} -> {out}")
            return
    raise SystemExit(f"{checkpoint}: no trained drafter in it")
