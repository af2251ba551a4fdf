#!/usr/bin/env python3
"""Oracles for the tests of engine/fit, by numpy and torch autograd: an unrolled EAGLE-2 and EAGLE-3 drafter with the
gradients of its forward-KL loss, activation-weighted low-rank factors, and a router's BCE gradients.

usage: tools/make_fit_golden.py OUT.json        (needs numpy, torch)
"""
import json
import sys

import numpy as np
import torch
import torch.nn.functional as F

HEADS, KV_HEADS, HEAD_DIM, HIDDEN, FFN, SLOTS, STEPS, VOCAB = 2, 1, 4, 8, 6, 5, 3, 11
THETA, EPS = 100.0, 1e-5


def rms(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * weight


def rotate(x, positions):
    half = HEAD_DIM // 2
    angle = positions[:, None].double() * THETA ** (-torch.arange(half).double() / half)
    cos, sin = torch.cos(angle)[:, None], torch.sin(angle)[:, None]
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def unroll(w, features, embeddings, eagle3):
    slots = torch.arange(SLOTS)
    hidden = features @ w["fc"].T if eagle3 else features
    keys, values, heads = [], [], []
    for step in range(STEPS):
        e = embeddings[step:step + SLOTS]
        if eagle3:
            x = torch.cat([rms(e, w["input_norm"]), rms(hidden, w["hidden_norm"])], -1)
            residual = hidden
        else:
            residual = torch.cat([e, hidden], -1) @ w["fc"].T
            x = residual
        q = rotate((x @ w["q"].T).view(SLOTS, HEADS, HEAD_DIM), slots + step)
        keys.append(rotate((x @ w["k"].T).view(SLOTS, KV_HEADS, HEAD_DIM), slots + step))
        values.append((x @ w["v"].T).view(SLOTS, KV_HEADS, HEAD_DIM))
        mixed = torch.zeros(SLOTS, HEADS, HEAD_DIM, dtype=torch.float64)
        rows = []
        for i in range(SLOTS):
            k = torch.cat([keys[0][:i + 1]] + [keys[s][i:i + 1] for s in range(1, step + 1)])
            v = torch.cat([values[0][:i + 1]] + [values[s][i:i + 1] for s in range(1, step + 1)])
            k, v = k.repeat_interleave(HEADS // KV_HEADS, 1), v.repeat_interleave(HEADS // KV_HEADS, 1)
            p = torch.softmax(torch.einsum("hd,jhd->hj", q[i], k) / HEAD_DIM ** 0.5, -1)
            rows.append(torch.einsum("hj,jhd->hd", p, v))
        mixed = torch.stack(rows).reshape(SLOTS, -1)
        after = residual + mixed @ w["o"].T
        z = rms(after, w["post_norm"])
        hidden = after + (F.silu(z @ w["gate"].T) * (z @ w["up"].T)) @ w["down"].T
        heads.append(rms(hidden, w["final_norm"]) if eagle3 else hidden)
    return heads


def tensor(array):
    return torch.tensor(array, dtype=torch.float64, requires_grad=True)


def listed(array):
    """Rounded to f32, so that what the test reads is what the oracle computed with."""
    array = np.asarray(array.detach() if isinstance(array, torch.Tensor) else array)
    return {"shape": list(array.shape), "values": [float(np.float32(v)) for v in array.ravel()]}


def eagle_case(rng, eagle3):
    def draw(*shape, scale=1.0, middle=0.0):
        return np.float64(np.float32(middle + scale * rng.standard_normal(shape)))
    inputs = 2 * HIDDEN if eagle3 else HIDDEN
    feature_width = 3 * HIDDEN if eagle3 else HIDDEN
    w = {"fc": draw(HIDDEN, feature_width if eagle3 else 2 * HIDDEN, scale=0.3),
         "q": draw(HEADS * HEAD_DIM, inputs, scale=0.6), "k": draw(KV_HEADS * HEAD_DIM, inputs, scale=0.6),
         "v": draw(KV_HEADS * HEAD_DIM, inputs, scale=0.3), "o": draw(HIDDEN, HEADS * HEAD_DIM, scale=0.3),
         "gate": draw(FFN, HIDDEN, scale=0.4), "up": draw(FFN, HIDDEN, scale=0.4),
         "down": draw(HIDDEN, FFN, scale=0.4), "post_norm": draw(HIDDEN, scale=0.2, middle=1.0)}
    if eagle3:
        for name in ("input_norm", "hidden_norm", "final_norm"):
            w[name] = draw(HIDDEN, scale=0.2, middle=1.0)
    features, embeddings = draw(SLOTS, feature_width), draw(SLOTS + STEPS, HIDDEN)
    lm_head, teacher = draw(VOCAB, HIDDEN), draw(STEPS, SLOTS, VOCAB, scale=2.0)
    t = {name: tensor(value) for name, value in w.items()}
    heads = unroll(t, torch.tensor(features), torch.tensor(embeddings), eagle3)
    loss = 0
    for step, rows in enumerate(heads):
        p = torch.log_softmax(torch.tensor(teacher[step]), -1)
        q = torch.log_softmax(rows @ torch.tensor(lm_head).T, -1)
        loss = loss + 0.8 ** step * (p.exp() * (p - q)).sum(-1).mean()
    loss.backward()
    return {"eagle3": eagle3, "weights": {n: listed(v) for n, v in w.items()}, "features": listed(features),
            "embeddings": listed(embeddings), "lm_head": listed(lm_head), "teacher": listed(teacher),
            "heads": listed(torch.stack(heads)), "loss": float(loss),
            "gradients": {n: listed(v.grad) for n, v in t.items()}}


def low_rank_case(rng):
    weights = np.float64(np.float32(rng.standard_normal((40, 9))))
    hidden = np.float64(np.float32(rng.standard_normal((70, 9)) * np.array([9, 5, 3, 2, 1, 1, .5, .3, .1])))
    errors = {}
    values, vectors = np.linalg.eigh(hidden.T @ hidden / len(hidden))
    root = (vectors * np.sqrt(values)) @ vectors.T
    singular = np.linalg.svd(weights @ root, compute_uv=False)
    for rank in (1, 3, 6):
        errors[str(rank)] = float((singular[rank:] ** 2).sum())
    return {"weights": listed(weights), "hidden": listed(hidden), "least_error": errors}


def router_case(rng):
    draw = lambda *shape: np.float64(np.float32(rng.standard_normal(shape) * 0.5))
    parts = {"in": draw(6, 8), "in_bias": draw(6), "out": draw(5, 6), "out_bias": draw(5)}
    x, y = draw(7, 8), (rng.random((7, 5)) < 0.3).astype(np.float64)
    t = {name: tensor(value) for name, value in parts.items()}
    scores = F.silu(torch.tensor(x) @ t["in"].T + t["in_bias"]) @ t["out"].T + t["out_bias"]
    loss = F.binary_cross_entropy_with_logits(scores, torch.tensor(y))
    loss.backward()
    return {"parts": {n: listed(v) for n, v in parts.items()}, "x": listed(x), "y": listed(y),
            "loss": float(loss), "gradients": {n: listed(v.grad) for n, v in t.items()}}


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    rng = np.random.default_rng(7)
    golden = {"made_by": f"tools/make_fit_golden.py, torch {torch.__version__}, numpy {np.__version__}",
              "shape": {"heads": HEADS, "kv_heads": KV_HEADS, "head_dim": HEAD_DIM, "hidden": HIDDEN, "ffn": FFN,
                        "slots": SLOTS, "steps": STEPS, "theta": THETA},
              "eagle": [eagle_case(rng, False), eagle_case(rng, True)],
              "low_rank": low_rank_case(rng), "router": router_case(rng)}
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        json.dump(golden, out, separators=(",", ":"))
        out.write("\n")


if __name__ == "__main__":
    main()
