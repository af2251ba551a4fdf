#!/usr/bin/env python3
"""Golden data of typical acceptance (Medusa, arXiv 2401.10774): tests/golden/engine/typical.json.

The rule written out over root-to-leaf paths with numpy, in the form in which it was published: a candidate's
probability, the row's entropy with 1e-5 inside the logarithm, the threshold min(epsilon, delta exp(-H)), the
longest accepted prefix of any path, of several the likeliest. The engine walks nodes instead of paths.

usage: make_typical_golden.py OUT.json      (needs numpy)
"""
import json
import sys

import numpy as np

EPSILON, DELTA = 0.09, 0.3


def random_tree(generator, nodes, vocab):
    """Tokens and parents of a tree with distinct siblings; parents come first."""
    tokens, parents = [int(generator.integers(vocab))], [-1]
    while len(tokens) < nodes:
        parent = int(generator.integers(len(tokens)))
        token = int(generator.integers(vocab))
        if any(p == parent and t == token for p, t in zip(parents, tokens)):
            continue
        tokens.append(token)
        parents.append(parent)
    return tokens, parents


def paths_of(parents):
    """Root-to-leaf rows of node numbers, padded with -1."""
    leaves = [i for i in range(len(parents)) if i not in parents]
    rows = []
    for leaf in leaves:
        row = []
        while leaf >= 0:
            row.insert(0, leaf)
            leaf = parents[leaf]
        rows.append(row)
    width = max(map(len, rows))
    return [row + [-1] * (width - len(row)) for row in rows]


def judge(logits, tokens, parents, temperature):
    """Accepted nodes (root first) and the bonus."""
    rows = paths_of(parents)
    best_length, best_likelihood, best_path = 0, 0.0, [0]
    for row in rows:
        length, likelihood = 0, 0.0
        for parent, node in zip(row, row[1:]):
            if node < 0:
                break
            weights = np.exp((logits[parent] - logits[parent].max()) / temperature)
            p = weights / weights.sum()
            entropy = -np.sum(p * np.log(p + 1e-5))
            threshold = min(EPSILON, DELTA * np.exp(-entropy))
            if not p[tokens[node]] > threshold:
                break
            length += 1
            likelihood += np.log(p[tokens[node]])
            better = length > best_length or (length == best_length and likelihood > best_likelihood)
            if better:
                best_length, best_likelihood, best_path = length, likelihood, row[: length + 1]
    return best_path, int(np.argmax(logits[best_path[-1]]))


def main():
    generator = np.random.default_rng(5)
    cases = []
    for number in range(60):
        nodes, vocab = 2 + number % 17, 11 + number % 7
        temperature = [0.5, 0.7, 1.0, 1.5][number % 4]
        tokens, parents = random_tree(generator, nodes, vocab)
        # Two decimals are exact enough in the file and leave no near-ties.
        logits = np.round(generator.standard_normal((nodes, vocab)) * 2, 2)
        # Drafts are usually likely tokens.
        for node in range(1, nodes):
            logits[parents[node], tokens[node]] += 2.0
        path, bonus = judge(logits, tokens, parents, temperature)
        cases.append({
            "temperature": temperature, "tokens": tokens, "parents": parents,
            "logits": [[round(float(x), 2) for x in row] for row in logits],
            "path": path, "bonus": bonus,
        })
    document = {"about": "made by tools/make_typical_golden.py with numpy", "epsilon": EPSILON, "delta": DELTA,
                "cases": cases}
    with open(sys.argv[1], "w") as file:
        file.write(json.dumps(document).replace('{"temperature"', '\n{"temperature"') + "\n")
    print(sum(len(case["path"]) - 1 for case in cases), "drafts accepted in", len(cases), "cases")


if __name__ == "__main__":
    main()
