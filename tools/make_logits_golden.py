#!/usr/bin/env python3
"""Makes tests/golden/engine/demo_logits.json: what target and EAGLE-2 drafter compute, by an oracle of its own.

Target and drafter are written out here in numpy, in float64 over the dequantised weights, so the numbers are
the exact ones as far as a float32 engine is concerned (no torch: its wheels want their own CUDA libraries).

    pip install numpy gguf safetensors
    tools/make_logits_golden.py --model SmolLM2-135M-Instruct.Q4_1.gguf
"""
import argparse
import json
import pathlib

import gguf
import numpy as np
from safetensors.numpy import load_file

ROOT = pathlib.Path(__file__).resolve().parent.parent
AUX_LAYERS = (2, 15, 27)
TOP = 20
TREE = (3, 4, 12)  # depth, topk, nodes
CHAIN = 5


class Shape:
    """Constants of the target; the demo drafter has the same."""

    def __init__(self, reader):
        def field(name):
            return reader.fields["llama." + name].contents()

        self.layers = int(field("block_count"))
        self.d = int(field("embedding_length"))
        self.heads = int(field("attention.head_count"))
        self.kv_heads = int(field("attention.head_count_kv"))
        self.hd = self.d // self.heads
        self.eps = float(field("attention.layer_norm_rms_epsilon"))
        self.theta = float(field("rope.freq_base"))


def load_target(path):
    reader = gguf.GGUFReader(path)
    shape = Shape(reader)
    weights = {}
    for tensor in reader.tensors:
        rows = [int(n) for n in reversed(tensor.shape)]
        weights[tensor.name] = gguf.dequantize(tensor.data, tensor.tensor_type).reshape(rows).astype(np.float64)
    # GGUF stores q and k of this architecture with the two halves of each head interleaved.
    for i in range(shape.layers):
        for name, heads in (("attn_q", shape.heads), ("attn_k", shape.kv_heads)):
            key = f"blk.{i}.{name}.weight"
            w = weights[key]
            weights[key] = w.reshape(heads, shape.hd // 2, 2, -1).transpose(0, 2, 1, 3).reshape(w.shape)
    return shape, weights


def rms_norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def rotate(x, positions, shape):
    """x [rows, heads, hd], half-split pairs."""
    frequency = shape.theta ** (-np.arange(0, shape.hd, 2) / shape.hd)
    angle = np.asarray(positions, np.float64)[:, None] * frequency
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    a, b = x[..., : shape.hd // 2], x[..., shape.hd // 2 :]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def silu(x):
    return x / (1 + np.exp(-x))


def project(x, w, shape, positions):
    """Rotated queries and keys, and values, of rows x."""
    q = rotate((x @ w["q"].T).reshape(-1, shape.heads, shape.hd), positions, shape)
    k = rotate((x @ w["k"].T).reshape(-1, shape.kv_heads, shape.hd), positions, shape)
    v = (x @ w["v"].T).reshape(-1, shape.kv_heads, shape.hd)
    return q, k, v


def attend(q, k, v, visible, shape):
    """q [rows, heads, hd]; k, v [keys, kv_heads, hd]; visible [rows, keys]."""
    group = shape.heads // shape.kv_heads
    out = np.empty_like(q)
    for head in range(shape.heads):
        scores = q[:, head] @ k[:, head // group].T / np.sqrt(shape.hd)
        scores[~visible] = -np.inf
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        out[:, head] = scores / scores.sum(-1, keepdims=True) @ v[:, head // group]
    return out.reshape(len(q), -1)


def feed_forward(x, w, shape):
    h = rms_norm(x, w["post"], shape.eps)
    return x + (silu(h @ w["gate"].T) * (h @ w["up"].T)) @ w["down"].T


def run_target(shape, weights, tokens):
    """Final hidden rows [T, d] and the residual stream entering AUX_LAYERS [T, 3d]."""
    x = weights["token_embd.weight"][tokens]
    positions = np.arange(len(tokens))
    visible = np.tri(len(tokens), dtype=bool)
    aux = []
    for i in range(shape.layers):
        if i in AUX_LAYERS:
            aux.append(x)
        names = dict(q="attn_q", k="attn_k", v="attn_v", o="attn_output", gate="ffn_gate", up="ffn_up",
                     down="ffn_down", pre="attn_norm", post="ffn_norm")
        w = {short: weights[f"blk.{i}.{name}.weight"] for short, name in names.items()}
        q, k, v = project(rms_norm(x, w["pre"], shape.eps), w, shape, positions)
        x = x + attend(q, k, v, visible, shape) @ w["o"].T
        x = feed_forward(x, w, shape)
    return rms_norm(x, weights["output_norm.weight"], shape.eps), np.concatenate(aux, -1)


def load_drafter(folder):
    tensors = {k: v.astype(np.float64) for k, v in load_file(folder / "model.safetensors").items()}
    w = {s: tensors[f"layers.0.self_attn.{s}_proj.weight"] for s in "qkvo"}
    w |= {s: tensors[f"layers.0.mlp.{s}_proj.weight"] for s in ("gate", "up", "down")}
    return w | {"fc": tensors["fc.weight"], "post": tensors["layers.0.post_attention_layernorm.weight"]}


class Drafter:
    """EAGLE-2 over one text: `slots` verified slots, then any tree behind a prefix of them."""

    def __init__(self, shape, weights, embedding, hidden, tokens):
        self.shape, self.w, self.embedding = shape, weights, embedding
        slots = len(tokens) - 1
        x = self.fuse(tokens[1:], hidden[:slots])
        q, self.k, self.v = project(x, weights, shape, np.arange(slots))
        x = x + attend(q, self.k, self.v, np.tri(slots, dtype=bool), shape) @ weights["o"].T
        self.out = feed_forward(x, weights, shape)

    def fuse(self, tokens, hidden):
        return np.concatenate([self.embedding[list(tokens)], hidden], -1) @ self.w["fc"].T

    def step(self, token, hidden, ancestors, committed):
        """One tree row behind `committed` slots; ancestors = (k, v) of its ancestors, root's child first.
        Its position is that of the hidden's token."""
        x = self.fuse([token], hidden[None])
        q, k, v = project(x, self.w, self.shape, [committed + len(ancestors)])
        keys = np.concatenate([self.k[:committed], *[a[0] for a in ancestors], k])
        values = np.concatenate([self.v[:committed], *[a[1] for a in ancestors], v])
        visible = np.ones((1, len(keys)), dtype=bool)
        x = x + attend(q, keys, values, visible, self.shape) @ self.w["o"].T
        return feed_forward(x, self.w, self.shape)[0], (k, v)


def log_softmax(x):
    x = x - x.max()
    return x - np.log(np.exp(x).sum())


def top_tokens(logprobs, k):
    order = np.lexsort((np.arange(len(logprobs)), -logprobs))[: k + 1]
    gaps = logprobs[order[:-1]] - logprobs[order[1:]]
    return order[:k], gaps.min()


def draft_tree(drafter, head, committed, depth, topk, nodes):
    """EAGLE-2's tree after `committed` slots: candidates (score, token, parent, logprob) that survive
    re-ranking, and the smallest gap between a score kept and one left out along the way."""
    candidates, gap = [], np.inf

    def propose(out, parent, score):
        nonlocal gap
        logprobs = log_softmax(out @ head.T)
        tokens, margin = top_tokens(logprobs, topk)
        gap = min(gap, margin)
        first = len(candidates)
        candidates.extend((score + logprobs[t], int(t), parent, logprobs[t]) for t in tokens)
        return list(range(first, len(candidates)))

    def best(flats, count):
        nonlocal gap
        order = sorted(flats, key=lambda c: (-candidates[c][0], c))
        if len(order) > count:
            gap = min(gap, candidates[order[count - 1]][0] - candidates[order[count]][0])
        return order[:count]

    root = drafter.out[committed - 1]
    beam = [(flat, root, []) for flat in propose(root, -1, 0.0)]
    for level in range(depth):
        outputs, fresh = {}, []
        for flat, hidden, ancestors in beam:
            out, kv = drafter.step(candidates[flat][1], hidden, ancestors, committed)
            outputs[flat] = (out, ancestors + [kv])
            fresh += propose(out, flat, candidates[flat][0])
        beam = [(flat, *outputs[candidates[flat][2]]) for flat in best(fresh, topk)]
    kept = sorted(best(range(len(candidates)), nodes - 1))
    node_of = {-1: 0} | {flat: i + 1 for i, flat in enumerate(kept)}
    return {
        "tokens": [candidates[c][1] for c in kept],
        "parents": [node_of[candidates[c][2]] for c in kept],
        "cum_logprobs": [round(candidates[c][0], 6) for c in kept],
        "gap": float(gap),
    }


def summary(row, logits):
    order, _ = top_tokens(logits, TOP)
    peak = logits.max()
    return {
        "ids": order.tolist(),
        "logits": [round(float(v), 6) for v in logits[order]],
        "logsumexp": round(float(peak + np.log(np.exp(logits - peak).sum())), 6),
    } | row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="the demo target, a GGUF file")
    parser.add_argument("--drafter", type=pathlib.Path, default=ROOT / "assets/drafters/eagle2")
    parser.add_argument("--prompts", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests/golden/engine/demo_logits.json")
    arguments = parser.parse_args()

    reference = json.loads((ROOT / "tests/golden/engine/demo_reference.json").read_text())
    shape, weights = load_target(arguments.model)
    head = weights["token_embd.weight"]
    eagle = load_drafter(arguments.drafter)
    dims = list(range(0, shape.d, 37))
    prompts = []
    for ordinal, prompt in enumerate(reference["prompts"][: arguments.prompts]):
        tokens = prompt["prompt"] + prompt["text"]
        length = len(prompt["prompt"])
        hidden, aux = run_target(shape, weights, tokens)
        rows = [
            summary({"position": p,
                     "hidden": [round(float(v), 5) for v in hidden[p, dims]],
                     "aux": [round(float(v), 5) for v in aux[p, ::131]]}, hidden[p] @ head.T)
            for p in (0, 1, 7, 33, length - 1, length + 11, len(tokens) - 1)
        ]
        drafter = Drafter(shape, eagle, head, hidden, tokens)
        slots = [summary({"position": p}, drafter.out[p] @ head.T) for p in (0, 5, length - 1, length + 20)]
        trees = []
        for committed in range(length, len(tokens) - 1):
            depth, topk, nodes = TREE
            tree = draft_tree(drafter, head, committed, depth, topk, nodes)
            chain = draft_tree(drafter, head, committed, CHAIN - 1, 1, CHAIN + 1)
            # A choice that float32 could turn over proves nothing.
            if tree["gap"] > 4e-3 and chain["gap"] > 4e-3:
                trees.append({"committed": committed, "tree": tree, "chain": chain})
            if len(trees) == 4:
                break
        prompts.append({"prompt": ordinal, "rows": rows, "slots": slots, "trees": trees})
        print(f"prompt {prompt['id']}: {len(rows)} rows, {len(slots)} slots, {len(trees)} trees", flush=True)
    document = {
        "note": "numpy float64 over the dequantised weights, made by tools/make_logits_golden.py",
        "aux_layers": AUX_LAYERS, "hidden_dims": dims, "aux_stride": 131,
        "tree": TREE, "chain": CHAIN, "prompts": prompts,
    }
    lines = json.dumps(document, separators=(",", ":")).replace('{"position"', '\n{"position"')
    arguments.out.write_text(lines.replace('{"ids"', '\n{"ids"').replace('{"committed"', '\n{"committed"') + "\n")


if __name__ == "__main__":
    main()
