#!/usr/bin/env python3
"""Runs lm-eval and llm on the Python module: a task of two kinds through `linnet` and through a server gives the same numbers.

usage: ecosystem.py MODEL      in a Python that has lm_eval[api], transformers and llm; with the variables of module.sh"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import linnet

CHOICE = """task: linnet_choice
dataset_path: json
dataset_kwargs: {{data_files: {{test: {0}/choice.jsonl}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: choices
doc_to_target: gold
target_delimiter: ""
metric_list: [{{metric: acc}}]
"""
ANSWER = """task: linnet_answer
dataset_path: json
dataset_kwargs: {{data_files: {{test: {0}/answer.jsonl}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "x"
generation_kwargs: {{until: ["\\n"], max_gen_toks: 12, do_sample: false}}
metric_list: [{{metric: exact_match}}]
"""
NAMES = ["Lily", "Tom", "Ben", "Sara", "Max"]


def evaluate(work, model, arguments):
    """Runs both tasks and returns what the model answered, by task and sample."""
    out = work / model
    subprocess.run([sys.executable, "-m", "linnet.lm_eval", "run", "--model", model, "--model_args", arguments, "--tasks",
                    "linnet_choice,linnet_answer", "--include_path", work, "--log_samples", "--output_path", out],
                   check=True, stdout=subprocess.DEVNULL, stderr=(work / f"{model}.log").open("w"))
    found = {}
    for file in out.rglob("samples_*.jsonl"):
        for line in file.read_text().splitlines():
            sample = json.loads(line)
            found[file.name.split("_2")[0], sample["doc_id"]] = sample["filtered_resps"]
    return found


def check_lm_eval(work, model):
    (work / "choice.jsonl").write_text("".join(json.dumps({
        "question": f"Once upon a time, there was a child named {n}. {n} was very", "choices": [" happy.", " sad and blue.", " banana."],
        "gold": 0}) + "\n" for n in NAMES))
    (work / "answer.jsonl").write_text("".join(json.dumps({"question": f"Tell me about {n}."}) + "\n" for n in NAMES))
    (work / "choice.yaml").write_text(CHOICE.format(work))
    (work / "answer.yaml").write_text(ANSWER.format(work))
    own = evaluate(work, "linnet", f"model={model},numerics=exact,n_parallel=3")
    with linnet.serve(model, "--numerics", "exact", "--log-format", "none") as server:
        other = evaluate(work, "local-completions", f"model=tiny,base_url={server.url}/v1/completions,tokenizer_backend=huggingface,"
                         f"tokenizer={model},num_concurrent=1")
    assert len(own) == 10 and own.keys() == other.keys(), (own.keys(), other.keys())
    for key, value in own.items():
        if "choice" in key[0]:
            for (a, greedy_a), (b, greedy_b) in zip(value, other[key]):
                assert abs(float(a) - float(b)) < 1e-4 and str(greedy_a) == str(greedy_b), (key, value, other[key])
        else:
            assert value == other[key], (key, value, other[key])
    print("lm-eval good")


def check_llm(work):
    site = next(p for p in sys.path if p and (pathlib.Path(p) / "linnet").is_dir())
    facts = pathlib.Path(site) / f"linnet-{linnet.__version__}.dist-info"
    if not facts.exists():  # the module is not installed but on PYTHONPATH: the entry point of its package
        facts.mkdir()
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: linnet\nVersion: {linnet.__version__}\n")
        (facts / "entry_points.txt").write_text("[llm]\nlinnet = linnet.llm_plugin\n")
    environment = {**os.environ, "LLM_USER_PATH": str(work / "llm")}
    command = [sys.executable, "-m", "llm", "-m", "linnet", "Tell me a story.", "-o", "temperature", "0", "-o", "max_tokens", "200"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    pieces, first = [], None
    while piece := os.read(child.stdout.fileno(), 4096):
        first = first or time.monotonic()
        pieces.append(piece.decode())
    assert child.wait() == 0
    assert len(pieces) > 3, pieces  # it streams
    with linnet.Model("tiny") as model:
        assert "".join(pieces).strip() == model.chat([{"role": "user", "content": "Tell me a story."}], temperature=0,
                                                     max_tokens=200).text.strip()
    again = subprocess.run([sys.executable, "-m", "llm", "-c", "And then?", "-o", "max_tokens", "5"], capture_output=True, text=True,
                           env=environment)
    assert again.returncode == 0 and again.stdout.strip(), again.stderr
    print("llm good")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        check_lm_eval(pathlib.Path(folder), sys.argv[1])
        check_llm(pathlib.Path(folder))
