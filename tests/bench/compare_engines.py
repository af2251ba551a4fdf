#!/usr/bin/env python3
"""Lays the rounds of one checkpoint in two engines side by side: two captures of the same prompts, of which one or both
may be imported. Rounds are compared where both texts are the same so far, which is where their contexts are equal.

Usage: compare_engines.py OURS.dscope THEIRS.dscope [--list N]
It prints a row: prompts, texts that are the same, rounds with the same accepted count and with the same drafts, and tau.
A difference of texts is followed by the probability that our target gave its token: a low one is a near tie.
"""
import argparse
import sqlite3
import sys


def read(path):
    """Returns {prompt: (tokens, {context: round})}; a round is (accepted, committed, clipped, drafts, probabilities)."""
    file = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    first = file.execute("SELECT min(id) FROM run").fetchone()[0]
    if first is None:
        sys.exit(f"compare_engines: {path}: has no run")
    out = {}
    prompts = file.execute("SELECT id, coalesce(external_id, ordinal), turn FROM prompt WHERE run_id = ?", (first,))
    for prompt, name, turn in prompts.fetchall():
        tokens = [row[0] for row in file.execute(
            "SELECT token_id FROM token WHERE prompt_id = ? AND source <> 'prompt' ORDER BY position", (prompt,))]
        rounds = {}
        for number, context, accepted, committed, clipped in file.execute(
                "SELECT id, context_length, accepted, committed, clipped FROM round WHERE prompt_id = ? ORDER BY ordinal",
                (prompt,)).fetchall():
            nodes = file.execute("SELECT token_id, target_token_prob FROM node WHERE round_id = ? ORDER BY node",
                                 (number,)).fetchall()
            rounds[context] = (accepted, committed, clipped, [one[0] for one in nodes[1:]], [one[1] for one in nodes])
        out[(str(name), turn or 0)] = (tokens, rounds)
    return out


def tau(rounds):
    return sum(one[1] for one in rounds) / len(rounds) if rounds else float("nan")


def compare(ours_path, theirs_path):
    """Returns what the two captures have in common: counts, tau, and lists `parted` (prompt, tokens before), `uneven`
    (prompt, context, fewer accepted) and `differences`."""
    ours, theirs = read(ours_path), read(theirs_path)
    common = [name for name in ours if name in theirs]
    if not common:
        sys.exit("compare_engines: the captures share no prompt; their ids are " +
                 ", ".join(sorted(name for name, _ in list(ours)[:3])) + " ... and " +
                 ", ".join(sorted(name for name, _ in list(theirs)[:3])) + " ...")
    out = {"prompts": len(common), "same_texts": 0, "rounds": 0, "same_accepted": 0, "rounds_with_ids": 0, "same_drafts": 0,
           "parted": [], "uneven": [], "differences": []}
    found, mine, other = out["differences"], [], []
    for name in common:
        (tokens, rounds), (their_tokens, their_rounds) = ours[name], theirs[name]
        shared = 0
        while shared < min(len(tokens), len(their_tokens)) and tokens[shared] == their_tokens[shared]:
            shared += 1
        same = shared == min(len(tokens), len(their_tokens))
        out["same_texts"] += same
        start = min(min(rounds, default=0), min(their_rounds, default=0))
        mine += rounds.values()
        other += their_rounds.values()
        for context in sorted(set(rounds) & set(their_rounds)):
            a, b = rounds[context], their_rounds[context]
            # A round is comparable if all that it accepted lies in the common text; limits cut the last one.
            if context - start + max(a[1], b[1]) > shared or a[2] or b[2]:
                continue
            out["rounds"] += 1
            out["same_accepted"] += a[0] == b[0]
            if a[0] != b[0]:
                out["uneven"].append((name, context, min(a[0], b[0])))
                found.append(f"{name[0]} at {context}: {a[0]} and {b[0]} accepted; our drafts {a[3]}")
            if a[3] and b[3]:
                out["rounds_with_ids"] += 1
                length = min(len(a[3]), len(b[3]))
                if a[3][:length] == b[3][:length]:
                    out["same_drafts"] += 1
                else:
                    found.append(f"{name[0]} at {context}: drafts {a[3]} and {b[3]}")
        if not same:
            out["parted"].append((name[0], shared))
            before = [one for context, one in rounds.items() if context - start <= shared]
            last = before[-1][4] if before else []
            found.append(f"{name[0]}: texts part after {shared} tokens; our target's probabilities there: " +
                         ", ".join("-" if one is None else f"{one:.2f}" for one in last[:8]))
    out["tau"], out["their_tau"] = tau(mine), tau(other)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ours")
    parser.add_argument("theirs")
    parser.add_argument("--list", type=int, default=5, help="differences to print")
    options = parser.parse_args()
    found = compare(options.ours, options.theirs)
    print("| prompts | same text | rounds with the same accepted count | rounds with the same drafts | tau, theirs / ours |")
    print("| --- | --- | --- | --- | --- |")
    print(f"| {found['prompts']} | {found['same_texts']} | {found['same_accepted']} of {found['rounds']} | "
          f"{found['same_drafts']} of {found['rounds_with_ids']} | {found['their_tau']:.3f} / {found['tau']:.3f} |")
    for one in found["differences"][:options.list]:
        print("-", one)


if __name__ == "__main__":
    main()
