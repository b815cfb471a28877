"""Writes an evaluation set as JSON lines: {"kind", "turns": [[user, model or null], ...], "expected"}.

    python3 make_eval_set.py [--seed 20260] [--items 350] > eval_set.jsonl
"""
import argparse
import json

import corpus


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seed", type=int, default=20260)
    p.add_argument("--items", type=int, default=350)
    a = p.parse_args()
    for kind, turns, expected in corpus.eval_set(a.seed, a.items):
        print(json.dumps({"kind": kind, "turns": turns, "expected": expected}, ensure_ascii=False))


if __name__ == "__main__":
    main()
