#!/usr/bin/env python3
"""Ranks a vocabulary by how often each token occurs in texts a target wrote: the artefact of `fr-spec` and of every
other head with a static vocabulary.

usage: tools/make_ranking.py CORPUS OUT --vocab V [--target NAME] [--fingerprint HEX] [--source TEXT]

CORPUS is JSON Lines, gzipped when its name ends in .gz; the token ids counted are those of each line's `response`
(change it with --field). OUT is a safetensors file: `ids` i32[V], most frequent first, ties to the lower id, tokens
that never occur behind them by id; `counts` i32[V] beside them. The metadata say what was counted.
"""
import argparse
import gzip
import json
import struct
from array import array
from collections import Counter


def count_tokens(path, field):
    counts, lines = Counter(), 0
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8") as corpus:
        for number, line in enumerate(corpus, 1):
            if not line.strip():
                continue
            record = json.loads(line)
            if field not in record:
                raise SystemExit(f"{path}:{number}: no field '{field}'")
            counts.update(record[field])
            lines += 1
    return counts, lines


def write_safetensors(path, tensors, metadata):
    header, data = {"__metadata__": metadata}, b""
    for name, values in tensors.items():
        packed = array("i", values)
        assert packed.itemsize == 4
        header[name] = {"dtype": "I32", "shape": [len(values)], "data_offsets": [len(data), len(data) + 4 * len(values)]}
        data += packed.tobytes()
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + data)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus")
    parser.add_argument("out")
    parser.add_argument("--vocab", type=int, required=True, help="number of real tokens of the target")
    parser.add_argument("--field", default="response")
    parser.add_argument("--target", default="")
    parser.add_argument("--fingerprint", default="", help="of the target's tokenizer, as `tokenizer_fingerprint` in the config_json of a run")
    parser.add_argument("--source", default="", help="one line on where the corpus comes from")
    args = parser.parse_args()

    counts, lines = count_tokens(args.corpus, args.field)
    outside = [t for t in counts if not 0 <= t < args.vocab]
    if outside:
        raise SystemExit(f"{args.corpus}: token {outside[0]} is outside the vocabulary of {args.vocab}")
    ids = sorted(range(args.vocab), key=lambda t: (-counts[t], t))
    metadata = {
        "format": "draftscope-ranking",
        "target": args.target,
        "tokenizer_fingerprint": args.fingerprint,
        "source": args.source,
        "texts": str(lines),
        "tokens": str(sum(counts.values())),
        "tokens_seen": str(len(counts)),
    }
    write_safetensors(args.out, {"ids": ids, "counts": [counts[t] for t in ids]}, metadata)
    for size in (2048, 4096, 8192, 16384):
        share = sum(counts[t] for t in ids[:size]) / sum(counts.values())
        print(f"first {size}: {100 * share:.2f} % of {sum(counts.values())} tokens")


if __name__ == "__main__":
    main()
