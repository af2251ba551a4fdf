#!/usr/bin/env python3
"""Writes a model folder of real size with random bf16 weights: what loading costs, without a download.

The folder has config.json, sharded safetensors and the tokenizer of a tiny model of tests/golden/models. Its
text means nothing. Delete it when done: llama-3.2-3b takes 6.4 GB.

Example: tools/make_random_hf_folder.py llama-3.2-3b /tmp/llama-3b
"""
import argparse
import json
import pathlib
import shutil
import struct

import numpy as np

# hidden, layers, heads, key/value heads, head size, feed-forward, vocabulary, tied (published config.json)
SHAPES = {
    "llama-3.2-1b": (2048, 16, 32, 8, 64, 8192, 128256, True),
    "llama-3.2-3b": (3072, 28, 24, 8, 128, 8192, 128256, True),
    "llama-3.1-8b": (4096, 32, 32, 8, 128, 14336, 128256, False),
}


def tensors(shape):
    d, layers, heads, kv, size, ffn, vocab, tied = shape
    yield "model.embed_tokens.weight", (vocab, d)
    for i in range(layers):
        p = f"model.layers.{i}."
        yield p + "input_layernorm.weight", (d,)
        yield p + "self_attn.q_proj.weight", (heads * size, d)
        yield p + "self_attn.k_proj.weight", (kv * size, d)
        yield p + "self_attn.v_proj.weight", (kv * size, d)
        yield p + "self_attn.o_proj.weight", (d, heads * size)
        yield p + "post_attention_layernorm.weight", (d,)
        yield p + "mlp.gate_proj.weight", (ffn, d)
        yield p + "mlp.up_proj.weight", (ffn, d)
        yield p + "mlp.down_proj.weight", (d, ffn)
    yield "model.norm.weight", (d,)
    if not tied:
        yield "lm_head.weight", (vocab, d)


def bf16(values):
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


class Numbers:
    """bf16 numbers from one pool of random ones, each tensor from a place of its own."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.pool = bf16(self.rng.standard_normal(1 << 25, dtype=np.float32) * 0.02)

    def write(self, file, shape):
        if len(shape) == 1:
            file.write(bf16(np.ones(shape)).tobytes())
            return
        left = shape[0] * shape[1]
        while left > 0:
            start = int(self.rng.integers(0, self.pool.size // 2))
            part = self.pool[start:start + min(left, self.pool.size // 2)]
            file.write(part.tobytes())
            left -= part.size


def write_shard(path, entries, numbers):
    header, offset = {}, 0
    for name, shape in entries:
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, shape in entries:
            numbers.write(file, shape)
    return offset


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=SHAPES)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--shard-gb", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    shape = SHAPES[args.model]
    d, layers, heads, kv, size, ffn, vocab, tied = shape
    args.folder.mkdir(parents=True)
    tiny = pathlib.Path(__file__).parent.parent / "tests/golden/models/llama"
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tiny / name, args.folder / name)
    (args.folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": d, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": size, "intermediate_size": ffn,
        "vocab_size": vocab, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
        "tie_word_embeddings": tied, "hidden_act": "silu", "torch_dtype": "bfloat16"}, indent=1))
    shards, held = [[]], 0
    for name, extent in tensors(shape):
        bytes_ = 2 * int(np.prod(extent))
        if shards[-1] and held + bytes_ > args.shard_gb * 1e9:
            shards.append([])
            held = 0
        shards[-1].append((name, extent))
        held += bytes_
    numbers, where, total = Numbers(args.seed), {}, 0
    for i, entries in enumerate(shards):
        file = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        total += write_shard(args.folder / file, entries, numbers)
        where.update({name: file for name, _ in entries})
    (args.folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": total}, "weight_map": where}, indent=1))
    print(f"{args.folder}: {total / 1e9:.2f} GB in {len(shards)} files")


if __name__ == "__main__":
    main()
