#!/usr/bin/env python3
"""A target writes the user's prompts: its own continuations, without repeats and without evaluation prompts, the same for a seed.

usage: PYTHON_WITH_TORCH magpie_test.py"""
import dataclasses
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from drafter_training import magpie, selfcheck

ENDS = tuple(range(20))  # a fifth of the tiny vocabulary, so that turns end soon
DRAWN = 6.0  # temperature: the tiny target is sure of itself


class Numbers(selfcheck.Numbers):
    """Text of token ids, in which a conversation begins with 90 91 and the user's turn ends with 0."""

    def __init__(self):
        super().__init__()
        self.template = "as in render()"

    def render(self, messages):
        return f"90 91 {messages[0]['content']} 0 92"

    def encode(self, text):
        return [int(x) for x in text.split()]

    def decode(self, ids):
        return " ".join(map(str, ids))


def greedy(target, ids):
    """What the target says next until a token that ends the turn, by forwards over the whole text."""
    begin = len(ids)
    while len(ids) - begin < magpie.LONGEST:
        hidden, _ = target.forward(torch.tensor([ids]))
        token = int(target.logits(hidden[0, -1:]).argmax())
        if token in target.config.eos:
            return ids[begin:]
        ids = ids + [token]
    return None


def refused(*call):
    try:
        magpie.write(*call)
    except SystemExit as error:
        return str(error)
    raise AssertionError("not refused")


def main():
    magpie.print = lambda *words, **more: None  # its progress
    torch.set_num_threads(1)
    target, text = selfcheck.tiny(), Numbers()
    target.config = dataclasses.replace(target.config, eos=ENDS)
    begin = magpie.opening(text)
    assert begin == [90, 91], begin
    for first in range(20, 60):
        expected = greedy(target, [first, 91])
        found = magpie.turns(target, [first, 91], 1e-6, torch.Generator().manual_seed(1))
        assert found == ([] if expected is None else [expected] * magpie.TOGETHER), (first, expected, found[:2])
    drawn = magpie.turns(target, begin, DRAWN, torch.Generator().manual_seed(1))
    assert len(drawn) > 200 and len(set(map(tuple, drawn))) > 100 and not any(set(turn) & set(ENDS) for turn in drawn)

    write = lambda seed, unwanted=lambda prompt: False: [r["prompt"] for r in magpie.write(target, text, 300, seed, DRAWN, unwanted)]
    made = write(1)
    assert len(made) == len(set(made)) == 300 and min(len(p.split()) for p in made) == magpie.LEAST
    assert write(1) == made != write(2)
    others = write(1, lambda prompt: prompt in made[:50])
    assert not set(others) & set(made[:50]) and set(others) > set(made[50:])
    assert "must be above 0" in refused(target, text, 1, 1, 0.0, lambda prompt: False)
    target.config = dataclasses.replace(target.config, eos=())
    assert "ends within" in refused(target, text, 1, 1, 1.0, lambda prompt: False)
    text.template = None
    assert "no chat template" in refused(target, text, 1, 1, 1.0, lambda prompt: False)
    print("a target writes its own prompts")


if __name__ == "__main__":
    main()
