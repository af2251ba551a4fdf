"""Trains what `draftscope fit` cannot compute in closed form: LM heads and routers by gradients, and drafters with their heads.

`draftscope fit` writes FOLDER/data.safetensors: settings as metadata, the rows a drafter's head sees, and the start. It
reads FOLDER/result.safetensors: the trained parameters and what is reported. FOLDER/state.pt is the last epoch's
checkpoint, from which a training of the same data goes on. A line of stdout is a share done and what is being done."""
import hashlib
import json
import math
import os
import pathlib
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from . import drafters, trace
from .config import Config
from .loss import SoftCrossEntropy, Vocabulary

# Of a joint training (our defaults): rows of a text in a step, tokens of a text, weight of a draft step against the one before.
MAX_ROWS, MAX_TOKENS, STEP_DECAY = 256, 512, 0.8
# Of Adam, for the rows of `up` of a low-rank head that is trained with drawn tokens (our default).
EPSILON = 1e-4
# Changes when a training does, so that no checkpoint of the former one is resumed.
RECIPE = b"2"
# A teacher's best tokens, which stand for its distribution when negatives are drawn (our default).
CHOICES = 64


class Data:
    """The file from draftscope."""

    def __init__(self, folder, device):
        path = folder / "data.safetensors"
        self.folder, self.device = folder, device
        with safe_open(path, "pt") as file:
            self.settings = file.metadata()
            self.tensors = {name: file.get_tensor(name) for name in file.keys()}
        digest = hashlib.sha256(RECIPE)
        with open(path, "rb") as file:
            while block := file.read(1 << 24):
                digest.update(block)
        self.fingerprint = digest.hexdigest()

    def __getitem__(self, name):
        return self.tensors[name]

    def number(self, name):
        return float(self.settings[name])

    def count(self, name):
        return int(self.settings[name])

    def rows_of(self, owner):
        """The LM-head rows of "target" or "drafter", which may share them."""
        name = owner + "_rows" if owner + "_rows" in self.tensors else "target_rows"
        return self.tensors[name].to(self.device).float()


class Head(nn.Module):
    """z = up (down h), `down` of a row's draft level, the last for all deeper ones; without `down`, z = up h."""

    def __init__(self, data):
        super().__init__()
        up, down = data["up"].float(), [data[f"down.{i}"].float() for i in range(sum(n.startswith("down.") for n in data.tensors))]
        # Adam moves every number by about the same, so both matrices start at one scale; their product is unchanged.
        scale = (up.square().mean() / torch.cat(down).square().mean()) ** 0.25 if down else 1.0
        self.up = nn.Parameter(up / scale)
        self.down = nn.ParameterList([nn.Parameter(scale * each) for each in down])

    def forward(self, hidden, level):
        return F.linear(self.inner(hidden, level), self.up)

    def inner(self, hidden, level):
        """What `up` is applied to."""
        if len(self.down) == 0:
            return hidden
        inner = hidden.new_zeros(len(hidden), self.up.shape[1])
        slot = level.long().clamp(max=len(self.down) - 1)
        for i, down in enumerate(self.down):
            rows = (slot == i).nonzero()[:, 0]
            inner[rows, : len(down)] = F.linear(hidden[rows], down)
        return inner


def forward_kl(teacher, student):
    """KL(teacher || student) of each row's logits."""
    with torch.no_grad():
        p = teacher.log_softmax(-1)
        entropy = -(p.exp() * p).sum(-1)
        p.exp_()
    return F.cross_entropy(student, p, reduction="none") - entropy


def evenly(rows, most):
    """All rows, or so many evenly spaced ones."""
    most = int(most)
    return rows if len(rows) <= most else rows[torch.arange(most) * len(rows) // most]


def search_type(device):
    """bfloat16 where the device is known to multiply it, else float32."""
    able = device != "cpu" or getattr(torch.cpu, "get_capabilities", dict)().get("avx512_bf16", False)
    return torch.bfloat16 if able else torch.float32


class Task:
    """What learn() asks of a training besides its loss."""

    def parameters(self):
        """The optimizer's groups."""
        return [{"params": list(self.module.parameters())}]

    def settle(self):
        """Ends an epoch, before the held-out loss."""

    def result(self):
        return dict(self.module.named_parameters())


class Divergence(Task):
    """A head after its drafter: text rows are taught by the target or the drafter's full head, drafted rows by the latter."""

    what, before, after = "KL", "loss_before", "loss_after"
    # Not the paper's 0.95: in a step of few rows most tokens have tiny gradients, which a short memory would blow up.
    betas = 0.9, 0.999

    def __init__(self, data):
        self.data, self.module, self.size = data, Head(data), data.count("batch")
        self.target_teaches = data.settings["teacher"] == "target"
        self.teachers = {"text": data.rows_of("target" if self.target_teaches else "drafter"), "drafted": data.rows_of("drafter")}
        self.texts = len(data["text.level"])

        def rows(held):
            text, drafted = ((data[kind + ".held_out"] == held).nonzero()[:, 0] for kind in ("text", "drafted"))
            text = evenly(text, data.number("held_out_rows")) if held else text
            return torch.cat([text, self.texts + evenly(drafted, data.number("drafted_share") * len(text))])

        self.train, self.held = rows(0), rows(1)
        self.negatives, self.shared = data.count("negatives"), None
        if self.negatives > 0:
            self.choose()
            if len(self.module.down) > 0:  # `up` has a row for every token, most of them rare
                head = self.teachers["drafted"]
                self.lm_rows, self.shared = head.to(search_type(data.device)), nn.Parameter(head.new_zeros(head.shape[1], self.module.up.shape[1]))

    def parameters(self):
        """With `shared`, `up + LM-head rows x shared` is trained, so that all rows also move together: a
        rare token follows those that are near it in the LM head. Adam alone moves all rows about as far, however small their
        gradients; those far below EPSILON move a row little."""
        if self.shared is None:
            return super().parameters()
        return [{"params": [self.shared, *self.module.down]}, {"params": [self.module.up], "eps": EPSILON}]

    def settle(self):
        """Adds the shared change to `up`, which alone is evaluated and stored, and starts a new one."""
        if self.shared is not None:
            with torch.no_grad():
                self.module.up += self.teachers["drafted"] @ self.shared
                self.shared.zero_()

    def parts(self, items):
        """Kind and rows of the items; drafted rows are numbered after the text rows."""
        for kind, rows in (("text", items[items < self.texts]), ("drafted", items[items >= self.texts] - self.texts)):
            if len(rows) > 0:
                yield kind, rows

    def take(self, kind, name, rows):
        return self.data[f"{kind}.{name}"][rows].to(self.data.device)

    def teacher_sees(self, kind, rows):
        """The hidden states that the teacher's LM head reads."""
        return self.take(kind, "teacher" if kind == "text" and self.target_teaches else "hidden", rows)

    def teacher(self, kind, rows):
        """The teacher's logits."""
        return F.linear(self.teacher_sees(kind, rows).float(), self.teachers[kind])

    def loss(self, items):
        """Weighted mean over rows."""
        total, weight = 0.0, 0.0
        for kind, rows in self.parts(items):
            hidden, level = self.take(kind, "hidden", rows).float(), self.take(kind, "level", rows)
            weights = self.data.number("level_decay") ** level.float()
            total = total + (weights * forward_kl(self.teacher(kind, rows), self.module(hidden, level))).sum()
            weight += weights.sum()
        return total / weight

    def choose(self):
        """Finds each row's best tokens by its teacher, with renormalised probabilities."""
        count, choices = self.texts + len(self.data["drafted.level"]), min(CHOICES, len(self.module.up))
        self.ids = torch.empty(count, choices, dtype=torch.int32)
        self.shares = torch.empty(count, choices, dtype=torch.float16)
        quick = {kind: rows.to(search_type(self.data.device)) for kind, rows in self.teachers.items()}
        for number, items in enumerate(self.train.split(1024)):
            for kind, rows in self.parts(items):
                seen, weight = self.teacher_sees(kind, rows), self.teachers[kind]
                ids = F.linear(seen.to(quick[kind].dtype), quick[kind]).topk(choices, sorted=False)[1]
                # The logits of those found are exact; 64 rows at a time, as each has LM-head rows of its own.
                parts = zip(ids.split(64), seen.float().split(64))
                best = torch.cat([torch.bmm(weight[found], row[:, :, None])[:, :, 0] for found, row in parts])
                at = rows if kind == "text" else rows + self.texts
                self.ids[at], self.shares[at] = ids.int().cpu(), best.softmax(-1).half().cpu()
            if number % 16 == 0:
                print(f"{1024 * number / len(self.train):.4f} finding the teacher's best tokens", flush=True)

    def step_loss(self, items, generator):
        """loss() over the teachers' best tokens and drawn ones, each of which counts for a part of the rest."""
        device = self.data.device
        items = torch.cat([items[items < self.texts], items[items >= self.texts]])  # the order of parts()
        ids, shares = self.ids[items].long().to(device), self.shares[items].float().to(device)
        parts = list(self.parts(items))
        hidden, level = (torch.cat([self.take(kind, name, rows) for kind, rows in parts]) for name in ("hidden", "level"))
        vocabulary = Vocabulary(self.module.up, ids, self.negatives, generator)
        weights = self.data.number("level_decay") ** level.float()
        weighted = shares * (weights / weights.mean())[:, None]
        up = vocabulary.weight
        if self.shared is not None:
            up = up + (self.lm_rows[vocabulary.columns] @ self.shared.to(self.lm_rows.dtype)).float()
        inner = self.module.inner(hidden.float(), level)
        cross_entropy = SoftCrossEntropy.apply(inner, up, vocabulary.shift, vocabulary.place[ids], weighted)
        return cross_entropy + (weighted * shares.clamp(min=1e-9).log()).sum() / len(shares)


class Router(nn.Module):
    def __init__(self, inputs, width, groups, seed):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        draw = lambda *shape: nn.Parameter(torch.randn(*shape, generator=generator) * shape[1] ** -0.5)
        self.weight, self.bias = draw(width, inputs), nn.Parameter(torch.zeros(width))
        self.out_weight, self.out_bias = draw(groups, width), nn.Parameter(torch.zeros(groups))

    def forward(self, x):
        return F.linear(F.silu(F.linear(x, self.weight, self.bias)), self.out_weight, self.out_bias)


class Routing(Task):
    """A router learns which groups hold one of the full head's best tokens, by binary cross-entropy (DynaSpec, section 4.2)."""

    what, before, after = "BCE", "bce_before", "bce_after"
    betas = 0.9, 0.95

    def __init__(self, data):
        self.data, self.size = data, data.count("batch")
        self.inputs = [data[f"inputs.{i}"] for i in range(2) if f"inputs.{i}" in data.tensors]
        self.train, self.held = ((data["held_out"] == held).nonzero()[:, 0] for held in (0, 1))
        # Each input in units of its root mean square, so that large dimensions do not dominate.
        squares = sum(self.raw(rows).double().pow(2).sum(0) for rows in self.train.split(4096))
        rms = (squares / len(self.train)).sqrt()
        self.scale = torch.where(rms > 1e-12, 1 / rms, 0.0).float()
        self.module = Router(len(rms), data.count("width"), data.count("groups"), data.count("seed"))

    def raw(self, rows):
        return torch.cat([x[rows].float() for x in self.inputs], 1)

    def loss(self, items):
        top = self.data["top"][items].long()
        groups = self.data["group_of"].long()[top.clamp(min=0)]
        labels = torch.zeros(len(items), self.data.count("groups") + 1)
        labels.scatter_(1, torch.where(top >= 0, groups, self.data.count("groups")), 1.0)
        inputs = (self.raw(items) * self.scale).to(self.data.device)
        return F.binary_cross_entropy_with_logits(self.module(inputs), labels[:, :-1].to(self.data.device))

    def result(self):
        """Heads read unscaled inputs, so the weights include the scales."""
        m = self.module
        return {"router.in.weight": m.weight * self.scale.to(self.data.device), "router.in.bias": m.bias[None], "router.out.weight": m.out_weight,
                "router.out.bias": m.out_bias[None]}


class Joint(Task):
    """Drafter and head together, the drafter unrolled over whole texts as it drafts."""

    what, before, after = "loss", "loss_before", "loss_after"
    betas = 0.9, 0.95

    def __init__(self, data):
        s = data.settings
        self.data, self.head, self.lam, self.size = data, Head(data), data.number("lambda"), data.count("batch")
        self.target_rows, self.exact = data.rows_of("target"), data.rows_of("drafter")
        self.embedding = data["embedding"].to(data.device).float()
        self.names = dict(line.split("=") for line in s["names"].splitlines())
        path = pathlib.Path(s["drafter"])
        self.file = load_file(path) if path.suffix == ".safetensors" else torch.load(path, weights_only=True, map_location="cpu")
        config = Config("llama", len(self.embedding), *map(data.count, ("hidden", "intermediate")), 1, *map(data.count, ("heads", "kv_heads", "head_dim")),
                        data.number("eps"), 1.0)
        self.drafter = drafters.Eagle(data.count("generation"), config, data.count("steps"), self.file[self.names["fc"]].shape[1], "bias" in self.names,
                                      s["norm_before_residual"] == "1")
        self.drafter.inverse = torch.tensor([float(x) for x in s["frequencies"].split()])
        drafters.load(self.drafter, self.file, path, self.names)
        self.drafter.eval()  # without the noise of a first training; gradients flow as ever
        self.module = nn.ModuleList([self.drafter, self.head])
        self.traces = [trace.Trace(folder) for folder in s["recordings"].split("\n")]
        self.texts = [(t, entry) for t in self.traces for entry in t.entries]
        long_enough = [i for i, (_, e) in enumerate(self.texts) if self.slots(e) >= max(1, e["prompt_tokens"] - 1)]
        usable = torch.zeros(len(self.texts), dtype=torch.bool)
        usable[long_enough] = True
        self.train, self.held = (data[name].long()[usable[data[name].long()]] for name in ("train", "held"))
        if min(len(self.train), len(self.held)) == 0:
            raise SystemExit("no text to train on, or none held out, is long enough for a draft step; record longer texts")

    @staticmethod
    def slots(entry):
        """Rows of a text that are drafted from."""
        return min(entry["prompt_tokens"] + entry["generated_tokens"] - 2, MAX_TOKENS)

    def loss(self, items):
        return sum(self.loss_of(int(item)) for item in items) / len(items)

    def loss_of(self, item):
        (t, entry), device = self.texts[item], self.data.device
        slots, steps, prompt = self.slots(entry), self.drafter.depth, entry["prompt_tokens"]
        take = lambda name: t.rows(entry, name)[: slots + steps + 1].to(device)[None]
        batch = SimpleNamespace(tokens=take("tokens").long(), hidden=take("hidden").float(), aux=None)
        if self.drafter.generation == 3:
            batch.aux = take("aux").float()
        # Step k of row r predicts token r + 2 + k: one that the target generated.
        first, length = max(0, prompt - 1 - steps), batch.tokens.shape[1]
        batch.at = torch.arange(first, slots, device=device)[None]
        row, step = batch.at[0].repeat(steps), torch.arange(steps, device=device).repeat_interleave(batch.at.shape[1])
        wanted = row + 2 + step
        chosen = evenly(((wanted >= prompt) & (wanted < length)).nonzero()[:, 0].cpu(), MAX_ROWS).to(device)
        states = torch.cat([state[0] for state in self.drafter.steps(batch, self.embedding, torch.float32)])
        hidden, level = self.drafter.head_input(states[chosen]), step[chosen]
        teacher = F.linear(batch.hidden[0, row[chosen] + 1 + level], self.target_rows)
        weights = STEP_DECAY ** level.float()
        kl = forward_kl(teacher, self.head(hidden, level))
        if self.lam > 0:
            kl = self.lam * kl + forward_kl(teacher, F.linear(hidden, self.exact))
        return (weights * kl).sum() / weights.sum()

    def result(self):
        """The head's parameters; the drafter goes to a folder, f16, with what else its file had."""
        trained = {name: getattr(self.drafter, ours).detach().half().cpu().contiguous() for ours, name in self.names.items()}
        save_file({**{n: v.contiguous() for n, v in self.file.items()}, **trained}, pathlib.Path(self.data.settings["drafter_out"]) / "model.safetensors")
        return dict(self.head.named_parameters())


def rate_at(step, steps, peak, warmup):
    """Linear warm-up, then a cosine to zero (SlimSpec, appendix A)."""
    warmup = min(warmup, steps // 4)
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warmup) / max(steps - warmup, 1))))


def mean_loss(task, items):
    """Over the items, weighted by their number."""
    with torch.no_grad():
        return sum(len(part) * task.loss(part).item() for part in items.split(task.size)) / len(items)


def learn(task, data):
    """Adam with clipping as in SlimSpec's appendix A. The epoch with the least held-out loss stays, the start included."""
    module, epochs = task.module.to(data.device), data.count("epochs")
    groups = task.parameters()
    trained = [each for group in groups for each in group["params"]]
    optimizer = torch.optim.Adam(groups, betas=task.betas, eps=1e-8, fused=True)
    draws = data.settings.get("negatives", "0") != "0"
    per_epoch, warmup = -(-len(task.train) // task.size), int(data.settings.get("warmup", 20))
    snapshot = lambda: {name: value.detach().clone() for name, value in module.state_dict().items()}
    path = data.folder / "state.pt"
    saved = torch.load(path, weights_only=True, map_location=data.device) if path.exists() else {}
    if saved.get("fingerprint") == data.fingerprint:
        module.load_state_dict(saved["module"])
        optimizer.load_state_dict(saved["optimizer"])
        notes, best, first = saved["notes"], saved["best"], saved["epoch"] + 1
    else:
        loss = mean_loss(task, task.held)
        notes, best, first = {task.before: loss, task.after: loss, "best_epoch": 0}, snapshot(), 1
    for epoch in range(first, epochs + 1):
        generator = torch.Generator().manual_seed(data.count("seed") * 1_000_003 + epoch)
        order = task.train[torch.randperm(len(task.train), generator=generator)]
        for number, items in enumerate(order.split(task.size)):
            step = (epoch - 1) * per_epoch + number
            for group in optimizer.param_groups:
                group["lr"] = rate_at(step, per_epoch * epochs, data.number("rate"), warmup)
            loss = task.step_loss(items, generator) if draws else task.loss(items)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(trained, 0.5)
            optimizer.step()
            print(f"{step / (per_epoch * epochs):.4f} training, epoch {epoch} of {epochs}, {task.what} {loss.item():.3f}", flush=True)
        task.settle()
        held = mean_loss(task, task.held)
        notes[f"{task.after}_epoch_{epoch}"] = held
        if held < notes[task.after]:
            notes |= {task.after: held, "best_epoch": epoch}
            best = snapshot()
        state = {"fingerprint": data.fingerprint, "module": module.state_dict(), "optimizer": optimizer.state_dict(), "notes": notes, "best": best, "epoch": epoch}
        torch.save(state, data.folder / "state.pt.part")
        os.replace(data.folder / "state.pt.part", path)
    module.load_state_dict(best)
    # The part of the loss that more text cannot take away.
    notes[f"{task.after}_of_trained"] = mean_loss(task, evenly(task.train, len(task.held)))
    return notes | {"steps": per_epoch * epochs}


def run(folder, device, threads):
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise SystemExit(f"--device cuda: torch {torch.__version__} sees no GPU; leave --device out to train on the CPU")
    if threads:
        torch.set_num_threads(threads)
    torch.set_float32_matmul_precision("high")
    data = Data(pathlib.Path(folder), device)
    task = {"divergence": Divergence, "router": Routing, "joint": Joint}[data.settings["kind"]](data)
    notes = learn(task, data)
    tensors = {name: value.detach().float().cpu().contiguous() for name, value in task.result().items()}
    # JSON has no number for the loss of an epoch that diverged; the best epoch's is finite.
    notes = {name: value for name, value in notes.items() if math.isfinite(value)}
    save_file(tensors, data.folder / "result.safetensors", {"notes": json.dumps(notes)})
