"""Self-check by hand (`train_drafter.py check`): a tiny random llama writes texts, every drafter learns from them."""
import argparse
import json
import pathlib
import shutil
import tempfile
from types import SimpleNamespace

import torch

from . import drafters, features, generate, training
from .config import Config
from .target import Target, rms
from .text import Text

STEPS, CUT = 60, 30


def tiny(vocab=97, d=32, layers=8, dim=8, dtype=torch.float32):
    """A random model whose next token depends visibly on the last one, so that there is something to learn."""
    config = Config(architecture="llama", vocab=vocab, hidden=d, intermediate=64, layers=layers, heads=4, kv_heads=2, head_dim=dim, eps=1e-5,
                    rope_base=10000.0, context=256, eos=(0,))
    torch.manual_seed(3)
    raw = {"model.embed_tokens.weight": torch.randn(vocab, d), "model.norm.weight": torch.ones(d), "lm_head.weight": torch.randn(vocab, d)}
    for i in range(layers):
        p = f"model.layers.{i}."
        for name, shape in (("self_attn.q_proj", (4 * dim, d)), ("self_attn.k_proj", (2 * dim, d)), ("self_attn.v_proj", (2 * dim, d)), ("self_attn.o_proj", (d, 4 * dim)),
                            ("mlp.gate_proj", (64, d)), ("mlp.up_proj", (64, d)), ("mlp.down_proj", (d, 64))):
            raw[p + name + ".weight"] = torch.randn(*shape) * 0.5 * shape[1] ** -0.5
        for name in ("input_layernorm", "post_attention_layernorm"):
            raw[p + name + ".weight"] = torch.ones(d)
    return Target(config, raw, dtype)


class Numbers(Text):
    """Prompts of the check are written as numbers: token ids."""

    def __init__(self):
        super().__init__(None, None, "", "")

    def encode(self, text):
        return [int(x) for x in text.split()]


def stepwise(target):
    """Decoding token by token equals the forward over the whole text."""
    ids = torch.randint(1, 97, (2, 12))
    whole, aux = target.forward(ids)
    cache = generate.Cache(target, 2, 16)
    target.forward(ids[:, :5], cache)
    cache.lengths[:] = 5
    for t in range(5, 12):
        hidden, a = target.step(ids[:, t], cache)
        assert torch.allclose(hidden, whole[:, t], atol=1e-4) and torch.allclose(a, aux[:, t], atol=1e-4), f"step at {t} differs from the forward"
    print("decoding equals the forward")


def golden_models():
    """Greedy decoding of the tiny Hugging Face models equals transformers' (tests/golden/models)."""
    from .target import Cache, load

    for folder in sorted((pathlib.Path(__file__).parents[2] / "tests/golden/models").iterdir()):
        target, _ = load(folder, torch.float32)
        golden = json.loads((folder / "golden.json").read_text())
        cache, written = Cache(target, 1, len(golden["prompt"]) + len(golden["greedy"]) + 1), []
        hidden, _ = target.forward(torch.tensor([golden["prompt"]]), cache)
        cache.lengths[:] = len(golden["prompt"])
        hidden = hidden[:, -1]
        while len(written) < len(golden["greedy"]):
            written.append(int(target.logits(hidden).argmax()))
            hidden, _ = target.step(torch.tensor(written[-1:]), cache)
        assert written == golden["greedy"], f"{folder.name}: {written} instead of {golden['greedy']}"
        print(f"{folder.name}: greedy text as transformers'")


def golden_eagles():
    """An unrolled EAGLE gives the rows of an implementation of its own (tools/make_fit_golden.py)."""
    golden = json.loads((pathlib.Path(__file__).parents[2] / "tests/golden/fit/golden.json").read_text())
    read = lambda x: torch.tensor(x["values"]).reshape(x["shape"])
    s, others = golden["shape"], {"post": "post_norm", "of_input": "input_norm", "of_hidden": "hidden_norm", "final": "final_norm"}
    for case in golden["eagle"]:
        features, embeddings, weights = read(case["features"]), read(case["embeddings"]), {n: read(w) for n, w in case["weights"].items()}
        config = Config("llama", 0, s["hidden"], s["ffn"], 1, s["heads"], s["kv_heads"], s["head_dim"], 1e-5, s["theta"])
        eagle = drafters.Eagle(3 if case["eagle3"] else 2, config, s["steps"])
        drafters.load(eagle, weights, "golden.json", {n: others.get(n, n) for n in eagle.names()})
        # Token j + 1 has embedding j; rows after the slots are no one's to see.
        tokens, rest = torch.arange(len(embeddings) + 1)[None], torch.zeros(len(embeddings) + 1 - s["slots"], features.shape[1])
        source = torch.cat([features, rest])[None]
        batch = SimpleNamespace(tokens=tokens, hidden=source, aux=source, at=torch.arange(s["slots"])[None])
        states = eagle.eval().steps(batch, torch.cat([torch.zeros(1, s["hidden"]), embeddings]), torch.float32)
        found = torch.stack([eagle.head_input(state[0]) for state in states])
        assert torch.allclose(found, read(case["heads"]), rtol=1e-4, atol=1e-5), f"EAGLE-{eagle.generation}"
    print("EAGLE-2 and EAGLE-3 as in another implementation")


def same_features(decoded, repeated):
    """What was recorded while decoding equals the features of the finished texts, to bf16's rounding."""
    by_text = {}
    for x in repeated.train + repeated.held:
        item = repeated.load(*x)
        by_text[tuple(item["tokens"].tolist())] = item
    compared = 0
    for x in decoded.train + decoded.held:
        item = decoded.load(*x)
        other = by_text.get(tuple(item["tokens"].tolist()))
        if other is None:  # two conversations of which one begins with the other were joined
            continue
        for name in ("hidden", "aux"):
            assert torch.allclose(item[name].float(), other[name].float(), rtol=2**-6, atol=2e-2), f"{name} of {item['tokens'].tolist()}"
        assert item["spoken"] == other["spoken"]
        compared += 1
    assert compared > 200, compared
    print(f"features recorded while decoding equal those of the finished texts ({compared} conversations)")


def arguments(name, traces, out, **changes):
    made = dict(target="tiny", drafter=name, traces=[traces], out=out, start=None, depth=None, steps=STEPS, tokens=200, rate=2e-2, cooldown=0.4, decay=0.8,
                negatives=40, draft_vocab=0, eos="no", optimizer="muon", seed=1, save_every=CUT, dtype="f32", threads=1)
    return argparse.Namespace(**{**made, **changes})


def weights(folder):
    return training.load_file(folder / "latest" / "model.safetensors")


def learn(name, target, traces, folder, **changes):
    whole = training.Trainer(arguments(name, traces, folder / "whole", **changes), target)
    first = whole.evaluate()
    whole.fit()
    # The same in two runs: the first stops where it would have been killed, the second goes on with the same plan.
    cut = training.Trainer(arguments(name, traces, folder / "cut", **changes), target)
    save, cut.save = cut.save, lambda: (save(), (_ for _ in ()).throw(KeyboardInterrupt()))
    try:
        cut.fit()
    except KeyboardInterrupt:
        pass
    resumed = training.Trainer(arguments(name, traces, folder / "cut", **changes), target)
    assert resumed.step == CUT, resumed.step
    resumed.fit()
    a, b = weights(folder / "whole"), weights(folder / "cut")
    assert a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a), f"{name}: the resumed run gave other weights"
    last = whole.evaluate()
    assert last["first"][0] > first["first"][0] + 0.05, f"{name}: {first} -> {last}"
    print(f"{name} {changes or ''}: first choice {first['first']} -> {last['first']}, resumed run equal")


def own_heads(target, folder):
    """An own head has the most frequent tokens, and the tokens that end a response on request; its config.json says which."""
    for eos in ("no", "yes"):
        made = training.Trainer(arguments("eagle3", folder / "traces", folder / f"own-{eos}", draft_vocab=8, eos=eos), target)
        made.write(folder / f"own-{eos}" / "now")
        config = json.loads((folder / f"own-{eos}" / "now" / "config.json").read_text())
        assert config["draft_vocab_eos"] == eos and config["draft_vocab_size"] == 8
        assert eos == "no" or set(target.config.eos) <= set(made.kept.tolist())


def run():
    torch.set_num_threads(1)
    folder = pathlib.Path(tempfile.mkdtemp())
    try:
        golden_models()
        golden_eagles()
        target = tiny()
        stepwise(target)
        for layers in range(1, 7):  # fewer than the published aux layers need, too
            stepwise(tiny(layers=layers))
        torch.manual_seed(5)
        number = lambda n: " ".join(str(int(x)) for x in torch.randint(1, 97, (n,)))
        records = [{"id": i, "turns": [number(4 + i % 5)] + [number(3)] * (i % 2)} for i in range(240)]
        text = Numbers()
        text.render = lambda messages: " ".join(m["content"] for m in messages)
        generate.run(target, text, records, folder / "traces", 24, 0.0, 1, "tiny")
        corpus = sorted((folder / "traces").glob("corpus.*.jsonl.gz"))
        again = [r for path in corpus for r in features.read_corpus(path)]
        features.run(target, again, folder / "again", "tiny", None)
        made, repeated = training.Data([folder / "traces"], True), training.Data([folder / "again"], True)
        assert sum(map(made.cost, (e for _, e in made.train + made.held))) > 2000
        same_features(made, repeated)
        learn("eagle3", target, folder / "traces", folder / "eagle3")
        learn("eagle3", target, folder / "traces", folder / "eagle3-trimmed", draft_vocab=64)
        own_heads(target, folder)
        learn("eagle2", target, folder / "traces", folder / "eagle2")
        learn("hydra", target, folder / "traces", folder / "hydra")
        learn("medusa", target, folder / "traces", folder / "medusa")
        print("self-check passed")
    finally:
        shutil.rmtree(folder)
