#!/usr/bin/env python3
"""Compares the program's greedy text of real GGUF models with a float32 forward pass in PyTorch.

The program records its greedy text of a few prompts in f32 (`draftscope record`). The reference dequantises the same file with
gguf-py, runs one forward pass over prompt and text, and takes the best token of every position. A position whose best token is not
the program's is a difference: it is printed with the gap between the two logits. Gaps below --near-tie are near ties, which rounding
decides; any larger gap fails.

usage: greedy_reference.py --program BINARY [--max-new 48] [--near-tie 0.02] [--work FOLDER] FILE.gguf...
Needs torch, gguf and safetensors (tools/with_torch.sh prints a Python that has them).
"""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import torch
from gguf.quants import dequantize
from safetensors import safe_open

PROMPTS = [
    "Write a Python function that returns the n-th Fibonacci number.",
    "Explain in two sentences why the sky is blue.",
    "用一句话介绍北京。",
    "Fix this C code and say what was wrong:\nint sum(int *a, int n) { int s; for (int i = 0; i <= n; i++) s += a[i]; return s; }",
]


class Model:
    """A llama or qwen2 model as GGUF stores it, in float32."""

    def __init__(self, path):
        self.reader = gguf.GGUFReader(path)
        self.tensors = {tensor.name: tensor for tensor in self.reader.tensors}
        self.arch = self.field("general.architecture")
        if self.arch not in ("llama", "qwen2"):
            sys.exit(f"{path}: no reference for the architecture {self.arch}")
        self.layers = self.own("block_count")
        self.heads = self.own("attention.head_count")
        self.kv_heads = self.own("attention.head_count_kv")
        self.eps = self.own("attention.layer_norm_rms_epsilon")
        self.theta = self.own("rope.freq_base") or 10000.0
        if self.own("rope.scaling.type") not in (None, "none") or "rope_freqs.weight" in self.tensors:
            sys.exit(f"{path}: no reference for scaled rotations")

    def field(self, name):
        found = self.reader.fields.get(name)
        return None if found is None else found.contents()

    def own(self, name):
        return self.field(f"{self.arch}.{name}")

    def get(self, name):
        tensor = self.tensors.get(name)
        return None if tensor is None else torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy()).float()

    def norm(self, x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.get(name)

    def product(self, x, name):
        y = x @ self.get(f"{name}.weight").T
        bias = self.get(f"{name}.bias")
        return y if bias is None else y + bias

    def rotate(self, x):
        """x [rows, heads, head size]: pairs are neighbours in llama, halves in qwen2."""
        rows, _, size = x.shape
        angles = torch.arange(rows, dtype=torch.float64)[:, None] * self.theta ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
        cos, sin = angles.cos().float()[:, None], angles.sin().float()[:, None]
        if self.arch == "llama":
            a, b = x[..., 0::2], x[..., 1::2]
            return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    def logits(self, ids):
        """Returns the logits [rows, V] of one sequence."""
        x = self.get("token_embd.weight")[ids]
        rows = len(ids)
        mask = torch.full((rows, rows), float("-inf")).triu(1)
        for layer in range(self.layers):
            name = f"blk.{layer}."
            h = self.norm(x, name + "attn_norm.weight")
            q, k, v = (self.product(h, name + part) for part in ("attn_q", "attn_k", "attn_v"))
            size = q.shape[1] // self.heads
            q = self.rotate(q.view(rows, self.heads, size))
            k = self.rotate(k.view(rows, self.kv_heads, size))
            v = v.view(rows, self.kv_heads, size)
            k, v = (part.repeat_interleave(self.heads // self.kv_heads, 1) for part in (k, v))
            scores = torch.einsum("ihd,jhd->hij", q, k) / size**0.5 + mask
            attended = torch.einsum("hij,jhd->ihd", scores.softmax(-1), v).reshape(rows, -1)
            x = x + self.product(attended, name + "attn_output")
            h = self.norm(x, name + "ffn_norm.weight")
            x = x + self.product(torch.nn.functional.silu(self.product(h, name + "ffn_gate")) * self.product(h, name + "ffn_up"), name + "ffn_down")
        x = self.norm(x, "output_norm.weight")
        head = "output.weight" if "output.weight" in self.tensors else "token_embd.weight"
        return x @ self.get(head).T


def record(options, path, work):
    prompts, out = work / "prompts.jsonl", work / "recording"
    prompts.write_text("".join(json.dumps({"prompt": one}) + "\n" for one in PROMPTS), encoding="utf-8")
    subprocess.run([options.program, "record", "--model", path, "--prompts", prompts, "--precision", "f32", "--max-new", str(options.max_new),
                    "--out", out, "--overwrite", "--quiet"], check=True, stdout=subprocess.DEVNULL)
    trace = json.loads((out / "trace.json").read_text(encoding="utf-8"))
    with safe_open(out / "trace.safetensors", "pt") as rows:
        tokens = rows.get_tensor("tokens").long()
    return trace, tokens


def compare(options, path):
    """Returns the number of differences that are no near ties."""
    with tempfile.TemporaryDirectory(dir=options.work) as work:
        trace, tokens = record(options, path, Path(work))
    model = Model(path)
    positions = ties = wrong = 0
    for number, prompt in enumerate(trace["prompts"]):
        first, length, new = prompt["first_row"], prompt["prompt_tokens"], prompt["generated_tokens"]
        ids = tokens[first:first + length + new]
        logits = model.logits(ids)[length - 1:length + new - 1]
        for at, (row, ours) in enumerate(zip(logits, ids[length:])):
            positions += 1
            best = int(row.argmax())
            if best == int(ours):
                continue
            gap = float(row[best] - row[ours])
            tie = gap < options.near_tie
            ties, wrong = ties + tie, wrong + (not tie)
            print(f"{Path(path).name}: prompt {number}, token {at}: the program has {int(ours)}, the reference {best}, {gap:.4f} above it"
                  f"{' (near tie)' if tie else ''}")
    print(f"{Path(path).name}: {positions - ties - wrong} of {positions} tokens equal, {ties} near ties, {wrong} wrong", flush=True)
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--max-new", type=int, default=48)
    parser.add_argument("--near-tie", type=float, default=0.02, help="largest gap of two logits that counts as one")
    parser.add_argument("--work", help="folder for recordings while they are compared")
    parser.add_argument("files", nargs="+")
    options = parser.parse_args()
    torch.set_grad_enabled(False)
    sys.exit(1 if sum(compare(options, path) for path in options.files) else 0)


if __name__ == "__main__":
    main()
