#!/usr/bin/env python3
"""Makes examples/recommend: a small task that the bundled model does not know, for the example of `linnet train` in the README. The question
"Would you recommend it?" about a review is answered Yes or No; the model knows what a good review is, and would answer with other words.

usage: python tools/tiny_task.py [OUT]
       python tools/tiny_task.py --fresh N SEED     prints N more questions, with text and label

OUT/train.jsonl and valid.jsonl have prompt and completion, test.jsonl text and label, for `linnet classify`. No review occurs in two files, and no fresh
one in any of them. Settings are chosen by valid.jsonl; fresh questions say how well the chosen ones do.
"""
import json
import os
import random
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tiny_corpus import review  # noqa: E402

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")


def questions(seed, n, seen):
    """n questions about reviews that are not in the set `seen`, which receives them."""
    rng, rows = random.Random(seed), []
    while len(rows) < n:
        text, label = review(rng)
        if text not in seen:
            seen.add(text)
            rows.append(("Would you recommend it? " + text, "Yes" if label == "positive" else "No"))
    return rows


def main(out):
    rows = questions(7, 400, set())
    os.makedirs(out, exist_ok=True)
    for name, part in (("train", rows[:240]), ("valid", rows[240:280]), ("test", rows[280:])):
        keys = ("text", "label") if name == "test" else ("prompt", "completion")
        with open(os.path.join(out, name + ".jsonl"), "w") as f:
            f.writelines(json.dumps(dict(zip(keys, row))) + "\n" for row in part)


def fresh(n, seed):
    seen = set()
    questions(7, 400, seen)
    for text, label in questions(seed, n, seen):
        print(json.dumps({"text": text, "label": label}))


if __name__ == "__main__":
    fresh(int(sys.argv[2]), int(sys.argv[3])) if len(sys.argv) == 4 and sys.argv[1] == "--fresh" else main(sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "examples/recommend"))
