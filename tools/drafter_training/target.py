"""The target in torch: llama, qwen2, qwen3 and olmo2 from a GGUF file or a Hugging Face folder, with what a drafter's
training needs of it: features of whole texts, lockstep decoding, the tokenizer and the chat template."""
import json
import math
import pathlib

import torch
import torch.nn.functional as F

from .config import Config

SUPPORTED = ("llama", "qwen2", "qwen3", "olmo2")


def rope_frequencies(config):
    inverse = config.rope_base ** -(torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim)
    s = config.rope_scaling
    if s:
        low = s["original_max_position_embeddings"] / s["low_freq_factor"]
        high = s["original_max_position_embeddings"] / s["high_freq_factor"]
        wave = 2 * math.pi / inverse
        smooth = (s["original_max_position_embeddings"] / wave - s["low_freq_factor"]) / (s["high_freq_factor"] - s["low_freq_factor"])
        middle = (1 - smooth) * inverse / s["factor"] + smooth * inverse
        inverse = torch.where(wave > low, inverse / s["factor"], torch.where(wave < high, inverse, middle))
    return inverse.float()


def rope_tables(inverse, positions):
    """cos and sin for the half-split layout, [..., head_dim]."""
    angle = positions.float()[..., None] * inverse
    return torch.cat([angle.cos()] * 2, -1), torch.cat([angle.sin()] * 2, -1)


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


def rms(x, weight, eps):
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


class Cache:
    """Keys and values of a batch, one slot per sequence: [batch, kv heads, capacity, head_dim] for each layer."""

    def __init__(self, target, batch, capacity):
        c = target.config
        shape = (batch, c.kv_heads, capacity, c.head_dim)
        make = lambda: [torch.zeros(shape, dtype=target.dtype, device=target.device) for _ in range(c.layers)]
        self.keys, self.values, self.capacity = make(), make(), capacity
        self.lengths = torch.zeros(batch, dtype=torch.long, device=target.device)

    def select(self, rows, capacity):
        self.keys = [k[rows, :, :capacity].contiguous() for k in self.keys]
        self.values = [v[rows, :, :capacity].contiguous() for v in self.values]
        self.lengths, self.capacity = self.lengths[rows], capacity


class Target:
    """Weights in `dtype` (bf16 by default), residual stream in f32. Names of `raw` are those of Hugging Face."""

    def __init__(self, config, raw, dtype=torch.bfloat16, device="cpu"):
        self.config, self.dtype, self.device = config, dtype, device
        take = lambda name: raw[name].to(device=device, dtype=dtype)
        norm = lambda name: raw[name].to(device=device, dtype=torch.float32) if name in raw else None
        self.embedding = take("model.embed_tokens.weight")
        self.head = take("lm_head.weight") if "lm_head.weight" in raw else self.embedding
        self.head = self.head[: config.tokens or config.vocab]
        self.norm = norm("model.norm.weight")
        self.layers = []
        for i in range(config.layers):
            p = f"model.layers.{i}."
            a = p + "self_attn."
            bias = None
            if a + "q_proj.bias" in raw:
                bias = torch.cat([take(a + f"{x}_proj.bias") for x in "qkv"])
            self.layers.append({
                "qkv": torch.cat([take(a + f"{x}_proj.weight") for x in "qkv"]), "bias": bias, "o": take(a + "o_proj.weight"),
                "gate_up": torch.cat([take(p + "mlp.gate_proj.weight"), take(p + "mlp.up_proj.weight")]), "down": take(p + "mlp.down_proj.weight"),
                "q_norm": norm(a + "q_norm.weight"), "k_norm": norm(a + "k_norm.weight"),
                "in": norm(p + "input_layernorm.weight"), "mid": norm(p + "post_attention_layernorm.weight"),
                "out": norm(p + "post_feedforward_layernorm.weight"),
            })
        self.inverse = rope_frequencies(config).to(device)

    def last_layer(self):
        """f32 weights of the last layer by short name, to start a drafter from."""
        c, layer = self.config, self.layers[-1]
        q, k, v = layer["qkv"].float().split([c.heads * c.head_dim, c.kv_heads * c.head_dim, c.kv_heads * c.head_dim])
        gate, up = layer["gate_up"].float().chunk(2)
        found = dict(q=q, k=k, v=v, o=layer["o"].float(), gate=gate, up=up, down=layer["down"].float())
        found["in"] = layer["in"] if layer["in"] is not None else torch.ones(c.hidden)
        found["mid"] = layer["mid"] if layer["out"] is None else torch.ones(c.hidden)
        return {name: value.cpu() for name, value in found.items()}

    def _qkv(self, layer, x, cos, sin):
        """x [B, T, d] f32 -> q, k, v as [B, heads, T, head_dim]."""
        c, (batch, length, _) = self.config, x.shape
        h = x if layer["in"] is None else rms(x, layer["in"], c.eps)
        qkv = F.linear(h.to(self.dtype), layer["qkv"], layer["bias"])
        q, k, v = qkv.split([c.heads * c.head_dim, c.kv_heads * c.head_dim, c.kv_heads * c.head_dim], -1)
        wide = c.architecture == "olmo2"
        if wide:
            q, k = rms(q.float(), layer["q_norm"], c.eps), rms(k.float(), layer["k_norm"], c.eps)
        shape = lambda t, n: t.reshape(batch, length, n, c.head_dim).transpose(1, 2)
        q, k, v = shape(q, c.heads).float(), shape(k, c.kv_heads).float(), shape(v, c.kv_heads)
        if layer["q_norm"] is not None and not wide:
            q, k = rms(q, layer["q_norm"], c.eps), rms(k, layer["k_norm"], c.eps)
        return rotate(q, cos, sin).to(self.dtype), rotate(k, cos, sin).to(self.dtype), v

    def _rest(self, layer, x, attention):
        """Residual adds around attention's output [B, T, heads * head_dim] and the MLP."""
        c, post = self.config, layer["out"] is not None
        a = F.linear(attention, layer["o"]).float()
        x = x + (rms(a, layer["mid"], c.eps) if post else a)
        gate, up = F.linear((x if post else rms(x, layer["mid"], c.eps)).to(self.dtype), layer["gate_up"]).chunk(2, -1)
        m = F.linear(F.silu(gate) * up, layer["down"]).float()
        return x + (rms(m, layer["out"], c.eps) if post else m)

    def _aux(self, entering):
        """The states of the aux layers side by side, from a table by layer; small targets use a layer twice."""
        return torch.cat([entering[i] for i in self.config.aux_layers], -1)

    @torch.inference_mode()
    def forward(self, ids, cache=None):
        """Whole texts, right-padded ids [B, L] -> hidden after the final norm [B, L, d] and aux [B, L, 3d], f32. With a
        cache (fresh) the keys and values of all L columns go in; the caller sets its lengths."""
        c, (batch, length) = self.config, ids.shape
        cos, sin = rope_tables(self.inverse, torch.arange(length, device=ids.device))

        def mixed(i, q, k, v):
            if cache is not None:
                cache.keys[i][:, :, :length], cache.values[i][:, :, :length] = k, v
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            return o.transpose(1, 2).reshape(batch, length, -1)

        x, entering = F.embedding(ids, self.embedding).float(), {}
        for i, layer in enumerate(self.layers):
            if i in c.aux_layers:
                entering[i] = x
            x = self._rest(layer, x, mixed(i, *self._qkv(layer, x, cos, sin)))
        return rms(x, self.norm, c.eps), self._aux(entering)

    @torch.inference_mode()
    def step(self, ids, cache):
        """One token for each sequence, [B] -> hidden [B, d], aux [B, 3d]; grows the cache by one."""
        c, batch, group = self.config, len(ids), self.config.heads // self.config.kv_heads
        cos, sin = rope_tables(self.inverse, cache.lengths)
        lengths = cache.lengths + 1
        x, entering, rows = F.embedding(ids[:, None], self.embedding).float(), {}, torch.arange(batch, device=ids.device)
        longest = int(lengths.max())
        seen = (torch.arange(longest, device=ids.device)[None] < lengths[:, None])[:, None, None]
        for i, layer in enumerate(self.layers):
            if i in c.aux_layers:
                entering[i] = x[:, 0]
            q, k, v = self._qkv(layer, x, cos[:, None, None], sin[:, None, None])
            cache.keys[i][rows, :, cache.lengths], cache.values[i][rows, :, cache.lengths] = k[:, :, 0], v[:, :, 0]
            q = q.reshape(batch, c.kv_heads, group, c.head_dim)
            o = F.scaled_dot_product_attention(q, cache.keys[i][:, :, :longest], cache.values[i][:, :, :longest], attn_mask=seen)
            x = self._rest(layer, x, o.reshape(batch, 1, -1))
        cache.lengths = lengths
        return rms(x[:, 0], self.norm, c.eps), self._aux(entering)

    @torch.inference_mode()
    def logits(self, hidden):
        return F.linear(hidden.to(self.dtype), self.head)


def load(path, dtype=torch.bfloat16, device="cpu"):
    """(Target, Text) of a GGUF file or a Hugging Face folder."""
    path = pathlib.Path(path)
    if not path.exists():
        raise SystemExit(f"{path}: no such target")
    from . import read_gguf, read_hf

    config, raw, text = (read_hf if path.is_dir() else read_gguf).read(path)
    if config.architecture not in SUPPORTED:
        raise SystemExit(f"{path}: architecture '{config.architecture}' is none of {', '.join(SUPPORTED)}")
    return Target(config, raw, dtype, device), text
