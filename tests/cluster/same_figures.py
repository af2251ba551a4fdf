#!/usr/bin/env python3
"""Compares two captures in every figure that is not a time, bit for bit: same_figures.py A B. Exit code 1 names the tables that differ."""
import sqlite3
import sys

QUERIES = {
    "prompt": "SELECT id, run_id, ordinal, external_id, turn, category, output, prompt_tokens, generated_tokens, finish FROM prompt ORDER BY id",
    "step": "SELECT id, run_id, ordinal FROM step ORDER BY id",
    "round": "SELECT id, run_id, step_id, prompt_id, ordinal, context_length, tree_nodes, tree_depth, drafted, accepted, committed, clipped FROM round ORDER BY id",
    "node": "SELECT * FROM node ORDER BY rowid",
    "node_top": "SELECT * FROM node_top ORDER BY rowid",
    "token": "SELECT prompt_id, position, round_id, token_id, source, depth, rank, covered FROM token ORDER BY prompt_id, position",
    "head_eval": "SELECT run_id, round_id, head, mode, active_rows, bytes, accepted, committed, covered, covered_mass, flops FROM head_eval ORDER BY rowid",
    "v_head": "SELECT run_id, head, mode, rounds, tau, rho_tau, coverage, covered_mass, active_rows, bytes, tau_unclipped, flops FROM v_head",
    "v_coverage": "SELECT run_id, suite, category, depth, emitted, covered, coverage FROM v_coverage",
}


def rows(path, query):
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True).execute(query).fetchall()


def main():
    a, b = sys.argv[1:3]
    differing = []
    for table, query in QUERIES.items():
        of_a, of_b = rows(a, query), rows(b, query)
        if of_a != of_b:
            differing.append(f"{table} ({len(of_a)} and {len(of_b)} rows)")
        elif table == "round":
            print(f"{len(of_a)} rounds, equal in every bit")
    if differing:
        sys.exit(f"{a} and {b} differ in {', '.join(differing)}")


if __name__ == "__main__":
    main()
