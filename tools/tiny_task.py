#!/usr/bin/env python3
"""Makes examples/recommend: a small task that the bundled model does not know, for the example of `linnet train` in the README. The question
"Would you recommend it?" about a review is answered Yes or No; the model knows what a good review is, and would answer with other words.

usage: python tools/tiny_task.py [OUT]

OUT/train.jsonl and valid.jsonl have prompt and completion, test.jsonl text and label, for `linnet classify`. No review occurs in two files.
"""
import json
import os
import random
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tiny_corpus import review  # noqa: E402

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")


def main(out):
    rng, seen, rows = random.Random(7), set(), []
    while len(rows) < 400:
        text, label = review(rng)
        if text not in seen:
            seen.add(text)
            rows.append(("Would you recommend it? " + text, "Yes" if label == "positive" else "No"))
    os.makedirs(out, exist_ok=True)
    for name, part in (("train", rows[:240]), ("valid", rows[240:280]), ("test", rows[280:])):
        keys = ("text", "label") if name == "test" else ("prompt", "completion")
        with open(os.path.join(out, name + ".jsonl"), "w") as f:
            f.writelines(json.dumps(dict(zip(keys, row))) + "\n" for row in part)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "examples/recommend"))
