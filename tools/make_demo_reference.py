#!/usr/bin/env python3
"""Rounds that EAGLE drafters need for known greedy texts, in plain torch: the golden of whole decodes.

usage: tools/make_demo_reference.py --target FILE.gguf [--drafters DIR] [--golden FILE] [--only NAME] [--write]

Takes the prompts and texts of tests/golden/engine/demo_reference.json, computes the target's features over them in f32
and drafts from every round's root, one node at a time, as reference implementations do. With exact-match verification
the rounds follow from the texts alone. Prints the rounds beside the file's; --write puts them into it. To be run
whenever assets/drafters/eagle2 or eagle3 changes."""
import argparse
import json
import pathlib
import re
import sys

import torch
import torch.nn.functional as F

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))


def norm(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def turn(x, position, base):
    """Rope of one position on [heads, dim], half-split."""
    half = x.shape[-1] // 2
    angle = position * base ** (-torch.arange(half, dtype=torch.float64) / half)
    cos, sin = angle.cos().float(), angle.sin().float()
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Drafter:
    def __init__(self, name, folder, target):
        from safetensors.torch import load_file

        self.w = {k: v.float() for k, v in load_file(folder / "model.safetensors").items()}
        self.three, self.target, self.c = name == "eagle3", target, target.config
        self.prefix = "midlayer." if self.three else "layers.0."

    def weight(self, name):
        return self.w[self.prefix + name + ".weight"]

    def feature(self, hidden, aux):
        return F.linear(aux, self.w["fc.weight"]) if self.three else hidden

    def slot(self, token, state, position, keys, values):
        """One token with the state before it: (state after, key, value). `keys`, `values`: of the slots it sees."""
        c, e = self.c, self.target.embedding[token]
        if self.three:
            residual = state
            x = torch.cat([norm(e, self.weight("input_layernorm"), c.eps), norm(state, self.weight("hidden_norm"), c.eps)])
        else:
            residual = x = F.linear(torch.cat([e, state]), self.w["fc.weight"])
        part = lambda n, heads: F.linear(x, self.weight(f"self_attn.{n}_proj")).view(heads, c.head_dim)
        q = turn(part("q", c.heads), position, c.rope_base)
        key, value = turn(part("k", c.kv_heads), position, c.rope_base), part("v", c.kv_heads)
        group = c.heads // c.kv_heads
        k, v = (torch.stack([*seen, own]).repeat_interleave(group, 1) for seen, own in ((keys, key), (values, value)))
        shares = torch.softmax(torch.einsum("hd,thd->ht", q, k) * c.head_dim**-0.5, -1)
        middle = residual + F.linear(torch.einsum("ht,thd->hd", shares, v).reshape(-1), self.weight("self_attn.o_proj"))
        z = norm(middle, self.weight("post_attention_layernorm"), c.eps)
        m = F.silu(F.linear(z, self.weight("mlp.gate_proj"))) * F.linear(z, self.weight("mlp.up_proj"))
        return middle + F.linear(m, self.weight("mlp.down_proj")), key, value

    def choices(self, state, k):
        x = norm(state, self.w["norm.weight"], self.c.eps) if self.three else state
        best = F.linear(x, self.target.head).log_softmax(-1).topk(k)
        return list(zip(best.values.tolist(), best.indices.tolist()))


class Node:
    def __init__(self, token, score, parent):
        self.token, self.score, self.parent = token, score, parent

    def path(self):
        return (self.parent.path() if self.parent else []) + [self]


def tree(drafter, state, position, keys, values, depth, topk, nodes):
    """EAGLE-2's expansion behind `state`, the drafter's at the last committed slot, and its re-ranking."""
    made = [Node(t, s, None) for s, t in drafter.choices(state, topk)]
    for n in made:
        n.state = state
    beam = list(made)
    for level in range(depth):
        grown = []
        for n in beam:
            above = n.path()[:-1]
            out, n.key, n.value = drafter.slot(n.token, n.state, position + 1 + level, keys + [a.key for a in above], values + [a.value for a in above])
            for s, t in drafter.choices(out, topk):
                grown.append(Node(t, n.score + s, n))
                grown[-1].state = out
        made += grown
        beam = sorted(grown, key=lambda n: -n.score)[:topk]
    return set(sorted(made, key=lambda n: -n.score)[: nodes - 1])


def rounds(drafter, tokens, prompt, hidden, aux, spec):
    """Rounds to commit the text behind `prompt` tokens; its first token comes from prefill. A slot joins token t + 1
    with the feature of row t."""
    features, keys, values, states = drafter.feature(hidden, aux), [], [], []
    for t in range(len(tokens) - 1):
        state, key, value = drafter.slot(tokens[t + 1], features[t], t, keys, values)
        keys.append(key), values.append(value), states.append(state)
    committed, count = prompt + 1, 0
    while committed < len(tokens):
        last = committed - 2
        kept = tree(drafter, states[last], last, keys[: last + 1], values[: last + 1], *spec)
        at, accepted = None, 0
        while committed + accepted < len(tokens):
            at = next((n for n in kept if n.parent is at and n.token == tokens[committed + accepted]), None)
            if at is None:
                break
            accepted += 1
        committed, count = committed + accepted + 1, count + 1
    return count


@torch.inference_mode()
def main():
    from drafter_training import target as targets

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", required=True)
    parser.add_argument("--drafters", type=pathlib.Path, default=ROOT / "assets/drafters")
    parser.add_argument("--golden", type=pathlib.Path, default=ROOT / "tests/golden/engine/demo_reference.json")
    parser.add_argument("--only", help="one drafter's rounds, the others' stay")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    golden = json.loads(args.golden.read_text())
    target, _ = targets.load(args.target, torch.float32)
    texts = []
    for p in golden["prompts"]:
        ids = p["prompt"] + p["text"]
        hidden, aux = target.forward(torch.tensor([ids]))
        texts.append((ids, len(p["prompt"]), hidden[0].bfloat16().float(), aux[0].bfloat16().float()))
    for entry in golden["rounds"]:
        if args.only and entry["drafter"] != args.only:
            continue
        drafter = Drafter(entry["drafter"], args.drafters / entry["drafter"], target)
        found = [rounds(drafter, *text, entry["tree"]) for text in texts]
        print(entry["drafter"], entry["tree"], found, "tau", round(entry["committed"] / sum(found), 4), "file:", entry["per_prompt"], flush=True)
        entry["per_prompt"] = found
    if args.write:
        text = args.golden.read_text()
        for entry in golden["rounds"]:
            tree = r",\s*".join(map(str, entry["tree"]))
            pattern = rf'("drafter":\s*"{entry["drafter"]}",\s*"tree":\s*\[\s*{tree}\s*\],\s*"per_prompt":\s*)\[[^]]*\]'
            text, found = re.subn(pattern, lambda m: m[1] + json.dumps(entry["per_prompt"], separators=(",", ":")), text)
            assert found == 1, f"{args.golden}: {entry['drafter']} {entry['tree']}"
        args.golden.write_text(text)


if __name__ == "__main__":
    main()
