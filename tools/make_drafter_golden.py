#!/usr/bin/env python3
"""Makes tests/golden/drafters/: tiny random drafters in every published checkpoint layout, and what torch drafts with
them.

The target is tests/golden/models/qwen2 (its embeddings and LM head); its features are random numbers that the test
makes again from the same formula. golden.json holds per drafter the trees of two rounds: tokens, parents, log-probs, and
the rows that went to the LM head. The reference runs every path from its beginning, in float64 and without a KV cache;
the trees follow EAGLE-2's expansion and re-ranking (reference: the papers; ties do not occur).

    pip install torch safetensors gguf
    tools/make_drafter_golden.py
"""
import collections
import json
import math
import pathlib
import shutil

import gguf
import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "tests/golden/drafters"
TARGET = load_file(ROOT / "tests/golden/models/qwen2/model.safetensors")
EMBED = TARGET["model.embed_tokens.weight"].double()
HEAD = TARGET["lm_head.weight"].double()
V, D = HEAD.shape
TEXT_VOCAB = 299  # ids that the target's tokenizer has
DEPTH, TOPK, NODES = 3, 3, 14
ROUNDS = (9, 12)  # committed tokens at the two rounds
EPS = 1e-5


def feature(seed, row, column):
    """A number that the test makes as well, exact in bf16."""
    x = (row * 7919 + column * 104729 + seed * 15485863) & 0xffffffff
    x = ((x ^ (x >> 15)) * 0x2c1b3c6d) & 0xffffffff
    x = ((x ^ (x >> 12)) * 0x297a2d39) & 0xffffffff
    return (((x >> 16) & 0xff) - 128) / 64.0


def features(seed, rows, width):
    return torch.tensor([[feature(seed, r, c) for c in range(width)] for r in range(rows)], dtype=torch.float64)


def text(seed, tokens):
    return [int((feature(seed, i, 0) + 2) * 64 * 31 + i * 17) % TEXT_VOCAB for i in range(tokens)]


def rms(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * weight


def divisors(scaling, theta, head_dim):
    if not scaling:
        return None
    if scaling["rope_type"] == "linear":
        return [scaling["factor"]] * (head_dim // 2)
    out = []
    for j in range(head_dim // 2):
        frequency = theta ** (-2.0 * j / head_dim)
        waves = scaling["original_max_position_embeddings"] * frequency / (2 * math.pi)
        low, high, factor = scaling["low_freq_factor"], scaling["high_freq_factor"], scaling["factor"]
        scaled = frequency
        if waves < low:
            scaled = frequency / factor
        elif waves <= high:
            share = (waves - low) / (high - low)
            scaled = (1 - share) * frequency / factor + share * frequency
        out.append(frequency / scaled)
    return out


def rotate(x, heads, head_dim, theta, scaling):
    """x: [rows, heads * head_dim], row i at position i."""
    rows = x.shape[0]
    frequency = torch.tensor([theta ** (-2.0 * j / head_dim) for j in range(head_dim // 2)], dtype=torch.float64)
    by = divisors(scaling, theta, head_dim)
    if by:
        frequency = frequency / torch.tensor(by, dtype=torch.float64)
    angles = torch.arange(rows, dtype=torch.float64)[:, None] * frequency[None]
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    x = x.view(rows, heads, head_dim)
    a, b = x[..., :head_dim // 2], x[..., head_dim // 2:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).reshape(rows, -1)


class Eagle:
    """EAGLE-2 or -3 in official names; `c` is the config."""

    def __init__(self, c, w):
        self.c, self.w = c, {k: v.double() for k, v in w.items() if v.is_floating_point()}
        self.embed = self.w.get("embed_tokens.weight", EMBED)
        self.ids = None
        if "d2t" in w:
            self.ids = (torch.arange(len(w["d2t"])) + w["d2t"]).tolist()

    def attend(self, x):
        c, w = self.c, self.w
        q, k, v = (x @ w[f"layer.self_attn.{n}_proj.weight"].T for n in "qkv")
        if "layer.self_attn.q_proj.bias" in w:
            q, k, v = (t + w[f"layer.self_attn.{n}_proj.bias"] for n, t in zip("qkv", (q, k, v)))
        rows, hd = x.shape[0], c["head_dim"]
        if "layer.self_attn.q_norm.weight" in w:
            q = rms(q.view(rows, -1, hd), w["layer.self_attn.q_norm.weight"]).reshape(rows, -1)
            k = rms(k.view(rows, -1, hd), w["layer.self_attn.k_norm.weight"]).reshape(rows, -1)
        q = rotate(q, c["heads"], hd, c["theta"], c["scaling"]).view(rows, c["heads"], hd)
        k = rotate(k, c["kv"], hd, c["theta"], c["scaling"]).view(rows, c["kv"], hd)
        k = k.repeat_interleave(c["heads"] // c["kv"], 1)
        v = v.view(rows, c["kv"], hd).repeat_interleave(c["heads"] // c["kv"], 1)
        scores = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(hd)
        scores = scores + torch.full((rows, rows), -math.inf, dtype=torch.float64).triu(1)
        return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).reshape(rows, -1) @ \
            w["layer.self_attn.o_proj.weight"].T

    def feed_forward(self, h):
        w = self.w
        x = rms(h, w["layer.post_attention_layernorm.weight"])
        up = F.silu(x @ w["layer.mlp.gate_proj.weight"].T) * (x @ w["layer.mlp.up_proj.weight"].T)
        return h + up @ w["layer.mlp.down_proj.weight"].T

    def fuse(self, aux):
        c, w = self.c, self.w
        if c.get("norm_before_fc"):
            aux = rms(aux, w["input_norm.weight"])
        if c.get("fc_norm"):
            aux = torch.cat([rms(p, w[f"fc_norm.{i}.weight"]) for i, p in enumerate(aux.chunk(3, -1))], -1)
        return aux @ w["fc.weight"].T

    def layer(self, hidden, embedding):
        """All rows of a path at once."""
        c, w = self.c, self.w
        if not c["eagle3"]:
            h = torch.cat([embedding, hidden], -1) @ w["fc.weight"].T + w.get("fc.bias", 0)
            return self.feed_forward(h + self.attend(h))
        normed = rms(hidden, w["layer.hidden_norm.weight"])
        x = torch.cat([rms(embedding, w["layer.input_layernorm.weight"]), normed], -1)
        residual = normed if c.get("norm_before_residual") else hidden
        out = self.feed_forward(residual + self.attend(x))
        return rms(out, w["norm.weight"]) if c.get("norm_output") else out

    def head_row(self, out):
        if not self.c["eagle3"] or self.c.get("norm_output"):
            return out
        return rms(out, self.w["norm.weight"])

    def begin(self, tokens, feats):
        self.tokens = tokens
        self.first = self.fuse(feats) if self.c["eagle3"] else feats

    def row(self, path):
        """The head row behind `path` (drafted tokens after the last committed one)."""
        tokens = self.tokens[1:] + path
        hidden = self.first
        for level in range(len(path) + 1):
            out = self.layer(hidden, self.embed[tokens[:len(hidden)]])
            hidden = torch.cat([hidden, out[-1:]])  # recycled as the next slot's hidden
        return self.head_row(out[-1])

    def logits(self, level, row):
        own = self.w.get("lm_head.weight")
        return row @ (HEAD if own is None else own).T

    levels = 99


class PathHeads:
    """Medusa and Hydra: blocks per head, LM heads of their own or the target's."""
    ids = None

    def __init__(self, hydra, heads, lm_heads):
        self.hydra, self.heads, self.lm_heads, self.levels = hydra, heads, lm_heads, len(heads)

    def begin(self, tokens, feats):
        self.tokens, self.hidden = tokens, feats[-1]

    def row(self, path):
        level = len(path)
        x = self.hidden
        if self.hydra:
            x = torch.cat([x] + [EMBED[t] for t in [self.tokens[-1]] + path])
        for block in self.heads[level]:
            base = x @ block["shortcut"].T + block["shortcut_bias"] if "shortcut" in block else x[:D]
            x = base + F.silu(x @ block["weight"].T + block["bias"])
        return x

    def logits(self, level, row):
        if self.lm_heads is None:
            return row @ HEAD.T
        weight, bias = self.lm_heads[level]
        return row @ weight.T + bias


def expand(model):
    """EAGLE-2's tree: beam of TOPK, all candidates kept, the best NODES - 1 by cumulative log-prob."""
    rows_out = {}

    def propose(path):
        row = model.row(path)
        logits = model.logits(len(path), row)
        support = logits[:TEXT_VOCAB] if model.ids is None else logits
        logp = support - support.logsumexp(-1)
        best = torch.topk(logp, TOPK)
        ids = best.indices.tolist()
        return row, [model.ids[i] if model.ids else i for i in ids], best.values.tolist()

    pool = []  # token, parent, score, logp, path
    row, ids, logps = propose([])
    rows_out["level0"] = row.tolist()
    beam = []
    for t, l in zip(ids, logps):
        pool.append((t, -1, l, l, [t]))
        beam.append(len(pool) - 1)
    for level in range(1, min(DEPTH, model.levels - 1) + 1):
        fresh = []
        for b, flat in enumerate(beam):
            row, ids, logps = propose(pool[flat][4])
            if level == 1 and b == 1:
                rows_out["level1"] = row.tolist()
            for t, l in zip(ids, logps):
                pool.append((t, flat, pool[flat][2] + l, l, pool[flat][4] + [t]))
                fresh.append(len(pool) - 1)
        beam = sorted(fresh, key=lambda i: (-pool[i][2], i))[:TOPK]
    order = sorted(range(len(pool)), key=lambda i: (-pool[i][2], i))[:NODES - 1]
    scores = sorted((pool[i][2] for i in range(len(pool))), reverse=True)
    lead = min((a - b for a, b in zip(scores, scores[1:])), default=1)
    assert lead > 1e-5, f"a tie within {lead}: choose another seed"
    order.sort()
    node = {flat: i + 1 for i, flat in enumerate(order)}
    return {"tokens": [model.tokens[-1]] + [pool[f][0] for f in order],
            "parents": [-1] + [node.get(pool[f][1], 0) for f in order],
            "logprobs": [0.0] + [pool[f][3] for f in order], **rows_out}


def golden(model, seed, width):
    tokens = text(seed, max(ROUNDS))
    all_features = features(seed, max(ROUNDS), width)
    out = []
    for known in ROUNDS:
        model.begin(tokens[:known], all_features[:known - 1])
        out.append({"known": known, **expand(model)})
    return {"seed": seed, "width": width, "rounds": out}


def random_weights(shapes, seed):
    torch.manual_seed(seed)
    out = {}
    for name, shape in shapes.items():
        if name.endswith("norm.weight") or ("norm" in name and len(shape) == 1):
            out[name] = 1 + 0.2 * (2 * torch.rand(shape) - 1)
        elif len(shape) == 1:
            out[name] = 0.5 * (2 * torch.rand(shape) - 1)
        else:
            out[name] = 1.7 / math.sqrt(shape[-1]) * (2 * torch.rand(shape) - 1)
    return out


def eagle_shapes(c):
    d, ffn, q, kv = c["d"], c["ffn"], c["heads"] * c["head_dim"], c["kv"] * c["head_dim"]
    x = 2 * d if c["eagle3"] else d
    shapes = {"fc.weight": (d, 3 * D if c["eagle3"] else 2 * d),
              "layer.self_attn.q_proj.weight": (q, x), "layer.self_attn.k_proj.weight": (kv, x),
              "layer.self_attn.v_proj.weight": (kv, x), "layer.self_attn.o_proj.weight": (d, q),
              "layer.mlp.gate_proj.weight": (ffn, d), "layer.mlp.up_proj.weight": (ffn, d),
              "layer.mlp.down_proj.weight": (d, ffn), "layer.post_attention_layernorm.weight": (d,)}
    if c["eagle3"]:
        shapes |= {"layer.hidden_norm.weight": (d,), "layer.input_layernorm.weight": (d,), "norm.weight": (d,)}
    return shapes


def config_json(c, **more):
    out = {"model_type": "llama", "hidden_size": c["d"], "intermediate_size": c["ffn"], "num_hidden_layers": 1,
           "num_attention_heads": c["heads"], "num_key_value_heads": c["kv"], "head_dim": c["head_dim"],
           "hidden_act": "silu", "vocab_size": V, "rms_norm_eps": EPS, "rope_theta": c["theta"], **more}
    if c["scaling"]:
        out["rope_scaling"] = c["scaling"]
    return out


def named(w, prefix):
    """Official or speculators names; contiguous copies, as safetensors wants them."""
    return collections.OrderedDict(
        (prefix + k[len("layer."):] if k.startswith("layer.") else k, v.contiguous()) for k, v in w.items())


def write_folder(name, config, tensors, file="model.safetensors"):
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    if file.endswith(".safetensors"):
        save_file(tensors, folder / file, metadata={"format": "pt"})
    else:
        torch.save(tensors, folder / file)


def write_gguf(name, c, w):
    writer = gguf.GGUFWriter(OUT / name, "eagle3")
    writer.add_block_count(1)
    writer.add_context_length(2048)
    writer.add_embedding_length(c["d"])
    writer.add_feed_forward_length(c["ffn"])
    writer.add_head_count(c["heads"])
    writer.add_head_count_kv(c["kv"])
    writer.add_key_length(c["head_dim"])
    writer.add_value_length(c["head_dim"])
    writer.add_rope_dimension_count(c["head_dim"])
    writer.add_rope_freq_base(c["theta"])
    writer.add_layer_norm_rms_eps(EPS)
    writer.add_vocab_size(V)
    writer.add_array("eagle3.target_layers", c["aux"])
    writer.add_uint32("eagle3.target_hidden_size", D)
    writer.add_bool("eagle3.norm_before_residual", False)

    def permuted(x, heads):
        return x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)

    names = {"fc.weight": "fc.weight", "norm.weight": "output_norm.weight", "lm_head.weight": "output.weight",
             "layer.hidden_norm.weight": "blk.0.attn_norm_2.weight",
             "layer.input_layernorm.weight": "blk.0.attn_norm.weight",
             "layer.post_attention_layernorm.weight": "blk.0.ffn_norm.weight",
             "layer.self_attn.q_proj.weight": "blk.0.attn_q.weight",
             "layer.self_attn.k_proj.weight": "blk.0.attn_k.weight",
             "layer.self_attn.v_proj.weight": "blk.0.attn_v.weight",
             "layer.self_attn.o_proj.weight": "blk.0.attn_output.weight",
             "layer.mlp.gate_proj.weight": "blk.0.ffn_gate.weight", "layer.mlp.up_proj.weight": "blk.0.ffn_up.weight",
             "layer.mlp.down_proj.weight": "blk.0.ffn_down.weight"}
    for ours, theirs in names.items():
        x = w[ours].numpy()
        if ".q_proj" in ours:
            x = permuted(x, c["heads"])
        if ".k_proj" in ours:
            x = permuted(x, c["kv"])
        writer.add_tensor(theirs, np.ascontiguousarray(x))
    ids = w["d2t"].numpy() + np.arange(len(w["d2t"]))
    writer.add_tensor("d2t", ids.astype(np.int64))
    factors = divisors(c["scaling"], c["theta"], c["head_dim"])
    if factors:
        writer.add_tensor("blk.0.rope_freqs.weight", np.array(factors, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}


def make_eagle2(result):
    plain = {"eagle3": False, "d": D, "ffn": 64, "heads": 3, "kv": 1, "head_dim": 16, "theta": 10000.0, "scaling": None}
    w = random_weights(eagle_shapes(plain), 1)
    config = config_json(plain, bias=False)
    del config["rope_theta"]  # as in the drafters of Vicuna: base 10000
    write_folder("eagle2_safetensors", config, named(w, "layers.0."))
    write_folder("eagle2_bin", config, named(w, "layers.0."), "pytorch_model.bin")
    layer = config_json(plain)
    layer["architectures"] = ["LlamaDecoderLayer"]
    write_folder("eagle2_speculators",
                 {"architectures": ["EagleSpeculator"], "speculators_model_type": "eagle", "fusion_bias": False,
                  "layernorms": False, "transformer_layer_architecture": "LlamaDecoderLayer",
                  "transformer_layer_config": layer,
                  "speculators_config": {"algorithm": "eagle", "default_proposal_method": "greedy",
                                         "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 5}],
                                         "verifier": {"architectures": ["Qwen2ForCausalLM"],
                                                      "name_or_path": "example/tiny-qwen2"}}},
                 {k.replace("fc.", "fusion_fc."): v for k, v in named(w, "transformer.").items()})
    result["eagle2"] = golden(Eagle(plain, w), 11, D)

    biased = {**plain, "head_dim": 20, "heads": 2, "scaling": {"rope_type": "linear", "factor": 2.0}}
    w = random_weights(eagle_shapes(biased) | {"fc.bias": (D,), "embed_tokens.weight": (V, D)}, 2)
    write_folder("eagle2_bias", config_json(biased), named(w, "layers.0."), "pytorch_model.bin")
    result["eagle2_bias"] = golden(Eagle(biased, w), 12, D)


def make_eagle3(result):
    c = {"eagle3": True, "d": D, "ffn": 64, "heads": 3, "kv": 1, "head_dim": 20, "theta": 500000.0, "scaling": LLAMA3,
         "aux": [1, 1, 1]}
    draft = 64
    w = random_weights(eagle_shapes(c) | {"lm_head.weight": (draft, D)}, 3)
    kept = torch.tensor(sorted(range(3, 3 + 4 * draft, 4)))  # rising target ids
    w["d2t"] = kept - torch.arange(draft)
    w["t2d"] = torch.zeros(V, dtype=torch.bool)
    w["t2d"][kept] = True
    official = config_json(c, draft_vocab_size=draft, eagle_aux_hidden_state_layer_ids=c["aux"])
    write_folder("eagle3_official", official, named(w, "midlayer."), "pytorch_model.bin")
    write_folder("eagle3_safetensors", official, named(w, "midlayer."))
    write_folder("eagle3_specforge",
                 config_json(c, architectures=["LlamaForCausalLMEagle3"], draft_vocab_size=draft,
                             eagle_config={"eagle_aux_hidden_state_layer_ids": [i - 1 for i in c["aux"]],
                                           "use_aux_hidden_state": True}), named(w, "midlayer."))
    layer = config_json(c)
    del layer["hidden_act"]
    write_folder("eagle3_speculators",
                 {"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "draft_vocab_size": draft,
                  "norm_before_residual": False, "target_hidden_size": None,
                  "eagle_aux_hidden_state_layer_ids": c["aux"], "transformer_layer_config": layer,
                  "speculators_config": {"algorithm": "eagle3", "default_proposal_method": "greedy",
                                         "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
                                         "verifier": {"architectures": ["Qwen2ForCausalLM"],
                                                      "name_or_path": "example/tiny-qwen2"}}}, named(w, "layers.0."))
    write_gguf("eagle3.gguf", c, w)
    result["eagle3"] = golden(Eagle(c, w), 13, 3 * D)

    # Everything that is optional at once: another hidden size, biases, q/k norms, norms around fc and the output.
    c = {"eagle3": True, "d": 32, "ffn": 56, "heads": 2, "kv": 2, "head_dim": 16, "theta": 10000.0, "scaling": None,
         "aux": [0, 1, 1], "norm_before_residual": True, "norm_before_fc": True, "norm_output": True}
    q = c["heads"] * c["head_dim"]
    w = random_weights(eagle_shapes(c) | {
        "lm_head.weight": (V, 32), "embed_tokens.weight": (V, 32), "input_norm.weight": (3 * D,),
        "layer.self_attn.q_norm.weight": (16,), "layer.self_attn.k_norm.weight": (16,),
        "layer.self_attn.q_proj.bias": (q,), "layer.self_attn.k_proj.bias": (q,),
        "layer.self_attn.v_proj.bias": (q,)}, 24)
    layer = config_json(c, attention_bias=True)
    layer["model_type"] = "qwen3"
    write_folder("eagle3_variants",
                 {"architectures": ["Eagle3DraftModel"], "speculators_model_type": "eagle3", "draft_vocab_size": V,
                  "norm_before_residual": True, "norm_before_fc": True, "norm_output": True, "fc_norm": False,
                  "target_hidden_size": D, "eagle_aux_hidden_state_layer_ids": c["aux"],
                  "transformer_layer_config": layer}, named(w, "layers.0."))
    result["eagle3_variants"] = golden(Eagle(c, w), 14, 3 * D)

    # EAGLE 3.1: a norm per feature; the target's LM head serves.
    c = {"eagle3": True, "d": D, "ffn": 56, "heads": 2, "kv": 1, "head_dim": 16, "theta": 10000.0, "scaling": None,
         "aux": [1, 1, 1], "fc_norm": True, "norm_output": True}
    w = random_weights(eagle_shapes(c) | {f"fc_norm.{i}.weight": (D,) for i in range(3)}, 5)
    write_folder("eagle3_fc_norm",
                 config_json(c, architectures=["LlamaForCausalLMEagle3"], fc_norm=True, norm_output=True,
                             eagle_config={"eagle_aux_hidden_state_layer_ids": [0, 0, 0]}), named(w, "midlayer."))
    result["eagle3_fc_norm"] = golden(Eagle(c, w), 15, 3 * D)


def make_path_heads(result):
    torch.manual_seed(6)

    def weight(rows, cols):
        return 1.7 / math.sqrt(cols) * (2 * torch.rand(rows, cols) - 1)

    def bias(rows):
        return 0.5 * (2 * torch.rand(rows) - 1)

    double = lambda block: {k: v.double() for k, v in block.items()}

    # Medusa as published: blocks, then an LM head per head, saved by torch. The config names fewer heads.
    tensors, heads, lm_heads = collections.OrderedDict(), [], []
    for i in range(4):
        blocks = [{"weight": weight(D, D), "bias": bias(D)} for _ in range(2)]
        lm_head = HEAD.float() + 0.3 * weight(V, D)
        for b, block in enumerate(blocks):
            tensors[f"{i}.{b}.linear.weight"], tensors[f"{i}.{b}.linear.bias"] = block["weight"], block["bias"]
        tensors[f"{i}.2.weight"] = lm_head
        heads.append([double(b) for b in blocks])
        lm_heads.append((lm_head.double(), 0))
    write_folder("medusa_published", {"medusa_num_heads": 2, "medusa_num_layers": 2,
                                      "base_model_name_or_path": "example/tiny-qwen2"}, tensors, "medusa_lm_head.pt")
    result["medusa"] = golden(PathHeads(False, heads, lm_heads), 16, D)

    # Hydra as published: the first block projects hidden and embeddings twice, LM heads have biases.
    tensors, heads, lm_heads = collections.OrderedDict(), [], []
    for i in range(3):
        wide = (i + 2) * D
        blocks = [{"weight": weight(D, wide), "bias": bias(D), "shortcut": weight(D, wide), "shortcut_bias": bias(D)},
                  {"weight": weight(D, D), "bias": bias(D)}]
        for b, block in enumerate(blocks):
            tensors[f"hydra_mlp.{i}.{b}.linear.weight"] = block["weight"]
            tensors[f"hydra_mlp.{i}.{b}.linear.bias"] = block["bias"]
        tensors[f"hydra_mlp.{i}.0.res_connection.weight"] = blocks[0]["shortcut"]
        tensors[f"hydra_mlp.{i}.0.res_connection.bias"] = blocks[0]["shortcut_bias"]
        lm_head, lm_bias = HEAD.float() + 0.3 * weight(V, D), bias(V)
        tensors[f"hydra_lm_head.{i}.weight"], tensors[f"hydra_lm_head.{i}.bias"] = lm_head, lm_bias
        heads.append([double(b) for b in blocks])
        lm_heads.append((lm_head.double(), lm_bias.double()))
    write_folder("hydra_published", {"hydra_num_heads": 3, "hydra_num_layers": 2, "hydra_head_arch": "mlp",
                                     "grounded_heads": True, "hidden_state_offset": 0}, tensors, "hydra_lm_head.pt")
    result["hydra"] = golden(PathHeads(True, heads, lm_heads), 17, D)


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    result = {}
    make_eagle2(result)
    make_eagle3(result)
    make_path_heads(result)
    torch.save([5, 3, 200, 7], OUT / "freq_4.pt")  # a token ranking as FR-Spec publishes them
    rounded = json.loads(json.dumps(result), parse_float=lambda x: round(float(x), 7))
    (OUT / "golden.json").write_text(json.dumps(rounded, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
