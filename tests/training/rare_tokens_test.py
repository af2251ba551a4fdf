#!/usr/bin/env python3
"""A low-rank head trained with drawn tokens also learns tokens that its rows do not have, from those that are near them in the LM head.

usage: PYTHON_WITH_TORCH rare_tokens_test.py"""
import json
import sys
import tempfile
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from drafter_training import heads

TOKENS, HIDDEN, RANK, ROWS = 400, 32, 8, 4096
SETTINGS = {"kind": "divergence", "batch": 64, "teacher": "drafter", "held_out_rows": 512, "drafted_share": 0, "level_decay": 1, "negatives": 40, "epochs": 4,
            "rate": 5e-3, "seed": 1}


def rows(generator, lm_head, basis, tokens):
    """Hidden states in the span of `basis`, each in the direction of one of the tokens."""
    chosen = tokens[torch.randint(len(tokens), (ROWS,), generator=generator)]
    z = torch.nn.functional.normalize(lm_head[chosen] @ basis, dim=1) * 5
    return (z + 0.3 * torch.randn(z.shape, generator=generator)) @ basis.T


def held_out_losses(folder):
    """Before and after: the first half of the tokens is trained, and the second half is held out."""
    generator = torch.Generator().manual_seed(7)
    lm_head = torch.randn(TOKENS, HIDDEN, generator=generator)
    basis, wrong = torch.linalg.qr(torch.randn(HIDDEN, 2 * RANK, generator=generator))[0].split(RANK, 1)
    ids = torch.arange(TOKENS)
    trained, held = (rows(generator, lm_head, basis, part) for part in ids.chunk(2))
    levels, none = torch.zeros(2 * ROWS, dtype=torch.uint8), torch.zeros(0, dtype=torch.uint8)
    tensors = {"text.hidden": torch.cat([trained, held]).bfloat16(), "text.level": levels, "text.held_out": (torch.arange(2 * ROWS) >= ROWS).byte(),
               "drafted.hidden": torch.zeros(0, HIDDEN).bfloat16(), "drafted.level": none, "drafted.held_out": none, "target_rows": lm_head.half(),
               # All rows are wrong in the same way, and no `down` can make up for it.
               "up": lm_head @ (basis + 0.5 * wrong), "down.0": basis.T.contiguous()}
    save_file(tensors, folder / "data.safetensors", {name: str(value) for name, value in SETTINGS.items()})
    heads.run(folder, "cpu", 1)
    with safe_open(folder / "result.safetensors", "pt") as file:
        assert sorted(file.keys()) == ["down.0", "up"], list(file.keys())
        notes = json.loads(file.metadata()["notes"])
    return notes["loss_before"], notes["loss_after"]


def main():
    heads.print = lambda *words, **more: None  # its progress
    together = heads.Divergence.parameters
    with tempfile.TemporaryDirectory() as folder:
        before, after = held_out_losses(Path(folder))
        heads.Divergence.parameters = lambda task: together(task)[1:] + [{"params": list(task.module.down)}]
        alone = held_out_losses(Path(folder))[1]
    print(f"divergence of tokens without a row: {before:.3f} at first, {after:.3f} with the shared change, {alone:.3f} without")
    assert after < 0.3 * before and after < 0.5 * alone


if __name__ == "__main__":
    main()
