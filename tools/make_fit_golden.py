#!/usr/bin/env python3
"""Oracles for the tests of fitting, by numpy and torch in f64: an unrolled EAGLE-2 and EAGLE-3 drafter written another way
than tools/drafter_training (its self-check compares them), and activation-weighted low-rank factors.

usage: tools/make_fit_golden.py OUT.json        (needs numpy, torch)
"""
import json
import sys

import numpy as np
import torch
import torch.nn.functional as F

HEADS, KV_HEADS, HEAD_DIM, HIDDEN, FFN, SLOTS, STEPS = 2, 1, 4, 8, 6, 5, 3
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


def listed(array):
    """Rounded to f32, so that what the test reads is what the oracle computed with."""
    array = np.asarray(array)
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
    t = {name: torch.tensor(value) for name, value in w.items()}
    heads = unroll(t, torch.tensor(features), torch.tensor(embeddings), eagle3)
    return {"eagle3": eagle3, "weights": {n: listed(v) for n, v in w.items()}, "features": listed(features),
            "embeddings": listed(embeddings), "heads": listed(torch.stack(heads))}


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


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    rng = np.random.default_rng(7)
    golden = {"made_by": f"tools/make_fit_golden.py, torch {torch.__version__}, numpy {np.__version__}",
              "shape": {"heads": HEADS, "kv_heads": KV_HEADS, "head_dim": HEAD_DIM, "hidden": HIDDEN, "ffn": FFN,
                        "slots": SLOTS, "steps": STEPS, "theta": THETA},
              "eagle": [eagle_case(rng, False), eagle_case(rng, True)],
              "low_rank": low_rank_case(rng)}
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        json.dump(golden, out, separators=(",", ":"))
        out.write("\n")


if __name__ == "__main__":
    main()
