"""Ranks over MPI against one process, on one host and on two that share nothing but a network: logits of golden models, a file of
requests with prefixes, adapters and schemas, training that is killed and resumed; and what happens when something fails.

usage: whole_ranks.py LINNET ROOT [--long] [--where one|two] [--sizes 2,3] [--model PART] [CASE...]

A sample, or all with --long. CASE: names of functions below; PART: of the names of golden models.
"""
import argparse
import ctypes
import functools
import glob
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

from launch import ENV, LIMIT, Local, Mpich, TwoHosts, need_mpirun

options = argparse.ArgumentParser()
options.add_argument("linnet", type=os.path.abspath)
options.add_argument("root", type=os.path.abspath)
options.add_argument("--long", action="store_true")
options.add_argument("--where", choices=["one", "two"])
options.add_argument("--sizes", type=lambda text: [int(n) for n in text.split(",")])
options.add_argument("--model", default="")
options.add_argument("cases", nargs="*")
HOW = options.parse_intermixed_args()
LINNET, ROOT, LONG = HOW.linnet, HOW.root, HOW.long
TINY = ROOT + "/models/tiny"
IDS = ",".join(str((37 * i + 11) % 200 + 3) for i in range(24))
ONE = ["--threads", "1"]


def alone(*command):
    """Runs the command as one process."""
    done = subprocess.run([LINNET, *command], env=ENV, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def ranks(where, n, *command):
    code, out, err = where.run(n, [LINNET, *command])
    assert code == 0, f"{where.name}, {n} ranks: exit {code}: {err}"
    return out


def read(path):
    with open(path, "rb") as f:
        return f.read()


def models():
    """Golden models of every family; in a sample the first."""
    found = sorted(glob.glob(ROOT + "/tests/golden/families/*/config.json") + glob.glob(ROOT + "/tests/golden/*/config.json"))
    found = [os.path.dirname(p) for p in found if os.path.exists(os.path.dirname(p) + "/golden.safetensors")]
    found = [m for m in found if HOW.model in os.path.basename(m)]
    return found if LONG else found[:1]


def sizes():
    return HOW.sizes or ([2, 3] if LONG else [2])


# ---- the same bits ----

def goldens(where, folder, most=None):
    for model in models()[:most]:
        score = ["score", model, "--ids", IDS, "--json", "--top", "3", *ONE, "--logits"]
        want = json.loads(alone(*score, folder + "/one.st"))
        for n in sizes():
            got = json.loads(ranks(where, n, *score, folder + "/all.st"))
            assert got["logprobs"] == want["logprobs"] and got["top"] == want["top"], f"{model}: {n} ranks: log-probabilities differ"
            assert read(folder + "/all.st") == read(folder + "/one.st"), f"{model}: {n} ranks: logits differ"
            os.unlink(folder + "/all.st")
        os.unlink(folder + "/one.st")
        print(f"  {os.path.basename(model)}", flush=True)


def write_samples(path):
    words, at = "the cat dog sat on a mat and ran away".split(), random.Random(7)
    with open(path, "w") as f:
        for i in range(40):
            f.write(json.dumps({"text": " ".join(at.choice(words) for _ in range(5 + i % 15))}) + "\n")


def training_command(folder, out):
    return ["train", TINY, "--data", folder + "/samples.jsonl", "-o", out, "--valid-split", "0.1", "--steps", "5", "--batch", "4", "--accum",
            "3", "--max-length", "24", "--save-every", "1", "--keep", "9", *ONE, "--rank", "2", "--dropout", "0.1", "--seed", "3"]


def preferences(where, folder):
    """Pairs of a chosen and a rejected answer, with the log-probabilities of the model before training, and a validation."""
    with open(folder + "/pairs.jsonl", "w") as f:
        for i in range(12):
            f.write(json.dumps({"prompt": f"Name {i}.", "chosen": "the cat " * (1 + i % 5), "rejected": "a dog ran " * (1 + i % 3)}) + "\n")
    for kind in ("dpo", "orpo") if LONG else ("dpo",):
        pairs = ["train", TINY, "--data", folder + "/pairs.jsonl", "--preference", kind, "--valid-split", "0.2", "--steps", "3", "--batch", "2",
                 "--accum", "2", "--max-length", "48", "--rank", "2", "--seed", "3", *ONE, "--json", "-o"]
        want = alone(*pairs, f"{folder}/{kind}-one")
        for n in sizes():
            out = f"{folder}/{kind}-{n}"
            got = ranks(where, n, *pairs, out)
            assert trained(out) == trained(f"{folder}/{kind}-one"), f"{kind}: {n} ranks: other bits"
            same = [[{k: v for k, v in json.loads(line).items() if k in ("loss", "margin", "accuracy", "valid_loss", "valid_margin")}
                     for line in text.splitlines()] for text in (got, want)]
            assert same[0] == same[1] and any("margin" in line for line in same[0]), f"{kind}: {n} ranks: {same}"


def trained(out):
    return [read(f"{out}/{leaf}") for leaf in ("adapter_model.safetensors", "best/adapter_model.safetensors")]


def checkpoint(out, step):
    return f"{out}/checkpoints/step-{step:08d}/train_state.safetensors"


def write_requests(path):
    prefix = "Once upon a time there was a boy who lived near the hill. " * 3
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer"}},
              "required": ["name", "age"], "additionalProperties": False}
    with open(path, "w") as f:
        for i in range(12):
            body = {"model": ("tiny", "story")[i % 2], "max_tokens": 6 + 3 * (i % 4), "seed": i, "temperature": 0.8, "logprobs": True,
                    "messages": [{"role": "user", "content": prefix + f"Tell me {i}."}]}
            if i % 3 == 0:
                body |= {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}, "max_tokens": 40}
            f.write(json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/chat/completions", "body": body}) + "\n")


def answers_of(path):
    """The choices of a file of answers by custom_id, and the number of prompt tokens that were reused."""
    choices, cached = {}, 0
    with open(path) as f:
        for line in map(json.loads, f):
            assert line["response"]["status_code"] == 200, line
            body = line["response"]["body"]
            choices[line["custom_id"]] = body["choices"]
            cached += (body["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    return choices, cached


def answers(where, folder):
    """Random schedules of requests with a common prefix, an adapter for half of them and a schema for a third."""
    write_samples(folder + "/samples.jsonl")
    write_requests(folder + "/in.jsonl")
    alone(*training_command(folder, folder + "/adapter"))
    batch = ["batch", TINY, folder + "/in.jsonl", "--lora", f"story={folder}/adapter", "--parallel", "4", *ONE, "-o"]
    alone(*batch, folder + "/one.jsonl")
    want, _ = answers_of(folder + "/one.jsonl")
    for n in sizes():
        ranks(where, n, *batch, f"{folder}/{n}.jsonl")
        got, cached = answers_of(f"{folder}/{n}.jsonl")
        assert got == want and len(want) == 12, f"{n} ranks: answers differ"
        assert cached > 0, "no prefix was reused"


def training(where, folder):
    """A run that is killed after a checkpoint and resumed by another number of ranks, and one process after several and before."""
    write_samples(folder + "/samples.jsonl")
    one, many = folder + "/one", folder + "/many"
    alone(*training_command(folder, one))
    job = where.start(3, [LINNET, *training_command(folder, many)])
    job.wait_for("a checkpoint", lambda: os.path.exists(checkpoint(many, 2)))
    rank = job.rank(1)
    assert rank, "rank 1 ended early"
    os.kill(rank, signal.SIGKILL)
    code, out, err = job.end()
    assert code != 0 and where.killed in out + err, f"exit {code}: {out} {err}"
    assert not os.path.exists(many + "/adapter_model.safetensors"), "it ended before it was killed"
    ranks(where, 2, *training_command(folder, many), "--resume")
    assert trained(many) == trained(one), "a killed and resumed run has other bits"
    assert read(checkpoint(many, 5)) == read(checkpoint(one, 5)), "a killed and resumed run has another state"
    full = ["train", TINY, "--data", folder + "/samples.jsonl", "--method", "full", "--steps", "2", "--batch", "2", "--accum", "2", "--max-length", "16",
            "--seed", "3", *ONE, "-o"]
    alone(*full, folder + "/full-one")
    ranks(where, 2, *full, folder + "/full-many")
    assert read(folder + "/full-many/model.safetensors") == read(folder + "/full-one/model.safetensors"), "training of all weights has other bits"
    for of, source, then in (("one", one, 3), ("many", many, 1), ("many", many, 3)):  # as if the first had stopped after step 2
        out = f"{folder}/{of}-{then}"
        start = training_command(folder, out)
        shutil.copytree(source, out)
        for leaf in os.listdir(out + "/checkpoints"):
            if leaf > "step-00000002":
                shutil.rmtree(f"{out}/checkpoints/{leaf}")
        shutil.rmtree(out + "/best")
        os.unlink(out + "/adapter_model.safetensors")
        if then > 1:
            ranks(where, then, *start, "--resume")
        else:
            alone(*start, "--resume")
        assert trained(out)[0] == trained(one)[0], f"{of}, then {then} ranks: other bits"


def text(where, folder):
    """The bytes of stdout, which mpirun reads from a pseudo-terminal and writes to a file."""
    run = ["run", TINY, "Tell me a story.", "--raw", "-n", "20", *ONE]
    for command in (run, ["tokenize", TINY, "one two"]):
        want = alone(*command)
        for n in sizes():
            assert ranks(where, n, *command) == want, f"{n} ranks: {command[0]}: other output"


# ---- replicas ----

def write_inputs(folder):
    at = random.Random(3)
    with open(folder + "/inputs.jsonl", "w") as f:
        for i in range(150):
            f.write(json.dumps({"text": "a good day " * at.randint(1, 6) + str(i), "label": at.choice(["good", "bad"])}) + "\n")
        f.write(json.dumps({"text": "long " * 2000}) + "\n")  # fails alone
        f.write(json.dumps({"text": "last"}) + "\n")
    with open(folder + "/text.txt", "w") as f:
        f.write("Near the hill lived a little boy called Peter. It was a windy day in spring. " * 30)


def replicas(where, folder):
    """Lines that are shared among ranks, each of which has the whole model, have the results of one process; a killed batch is
    continued by another number of ranks."""
    write_inputs(folder)
    write_requests(folder + "/in.jsonl")
    classify = ["classify", TINY, folder + "/inputs.jsonl", "--jsonl", "--labels", "good,very bad", "--prompt", "{text}?", "--raw", "--json", "--ctx",
                "512", "--parallel", "2", *ONE]
    chosen = [*classify[:4], "--next-token", "--temp", "0.9", "--seed", "4", *classify[6:]]
    evaluate = ["eval", TINY, folder + "/text.txt", "--window", "64", "--stride", "20", "--json", *ONE]
    batch = ["batch", TINY, folder + "/in.jsonl", "--alias", "story", "--parallel", "2", *ONE, "-o"]
    code = lambda *command: subprocess.run([LINNET, *command], env=ENV, capture_output=True, text=True, timeout=LIMIT)
    alone(*batch, folder + "/one.jsonl")
    want, _ = answers_of(folder + "/one.jsonl")
    for n in sizes():
        out = f"{folder}/{n}.jsonl"
        assert "12 of 12 requests answered" in ranks(where, n, *batch, out, "--replicas")
        assert answers_of(out)[0] == want, f"{n} replicas: answers differ"
    if not LONG:
        return
    one = [code(*classify, "--logits", folder + "/one.st"), code(*chosen), code(*evaluate)]
    assert [o.returncode for o in one] == [3, 3, 0], [o.stderr for o in one]
    for n in sizes():
        many = [where.run(n, [LINNET, *command, "--replicas"]) for command in ([*classify, "--logits", f"{folder}/{n}.st"], chosen, evaluate)]
        for a, b in zip(one, many):
            assert (b[0], b[1]) == (a.returncode, a.stdout), f"{n} replicas: exit {b[0]}: {b[2]}"
        assert read(f"{folder}/{n}.st") == read(folder + "/one.st"), f"{n} replicas: logits differ"
    rows = [int(o.split(" prompt ")[1].split()[0]) for o in
            (code(*evaluate, "--stats").stderr, where.run(2, [LINNET, *evaluate, "--stats", "--replicas"])[2])]
    assert 0 < rows[1] < rows[0], f"rank 0 has computed {rows[1]} of {rows[0]} rows"
    for command in (batch + [folder + "/x.jsonl"], classify, evaluate):
        assert code(*command, "--replicas").returncode == 2
    replicas_killed(where, folder, batch, want)


def replicas_killed(where, folder, batch, want):
    out = folder + "/killed.jsonl"
    job = where.start(2, [LINNET, *batch, out, "--replicas"])
    job.wait_for("an answer", lambda: os.path.exists(out) and os.path.getsize(out) > 0)
    os.kill(job.rank(1), signal.SIGKILL)
    code, _, err = job.end()
    assert code != 0 and "rank 1" in err, f"exit {code}: {err}"
    some = answers_of(out)[0]
    assert all(want[name] == choices for name, choices in some.items()) and os.path.exists(out + ".state"), "half an answer"
    ranks(where, 3, *batch, out, "--replicas")
    assert answers_of(out)[0] == want, "answers of a killed and continued batch differ"
    assert not os.path.exists(out + ".state")


# ---- failures ----

LONG_ANSWER = ["run", TINY, "Tell me a story.", "--raw", "-n", "900", "--ignore-eos", *ONE]


def answering(where, n, wrapper=()):
    """Starts a long answer and waits for its first text."""
    job = where.start(n, [*wrapper, LINNET, *LONG_ANSWER])
    job.wait_for("text", lambda: os.path.getsize(job.out.name) > 0)
    return job


def killed(where, folder):
    """mpirun ends the job, and names the rank."""
    job = answering(where, 2)
    os.kill(job.rank(1), signal.SIGKILL)
    since = time.monotonic()
    code, out, err = job.end()
    assert code != 0 and where.killed in out + err, f"exit {code}: {err}"
    print(f"  the job ended after {time.monotonic() - since:.1f} s", flush=True)


def survivors(where, folder):
    """A launcher that does not notice the end of a rank: the others do, and exit with 7."""
    with open(folder + "/stay", "w") as f:
        f.write(f'#!/bin/sh\n"$@"\necho $? >{folder}/code$OMPI_COMM_WORLD_RANK\nsleep 20\n')
    os.chmod(folder + "/stay", 0o755)
    job = answering(where, 3, [folder + "/stay"])
    os.kill(job.rank(1), signal.SIGKILL)
    since = time.monotonic()
    job.wait_for("exit codes", lambda: all(os.path.exists(f"{folder}/code{r}") for r in (0, 2)))
    took = time.monotonic() - since
    time.sleep(0.1)
    codes = [int(read(f"{folder}/code{r}") or -1) for r in (0, 2)]
    err = job.text(job.err)
    job.stop()
    assert codes == [7, 7], f"exit codes {codes}: {err}"
    assert "rank 1 of 3 (host " in err, err
    print(f"  the survivors ended after {took:.1f} s", flush=True)


def hung(where, folder):
    job = answering(where, 2)
    rank = job.rank(1)
    os.kill(rank, signal.SIGSTOP)
    since = time.monotonic()
    code, _, err = job.end()
    took = time.monotonic() - since
    try:
        os.kill(rank, signal.SIGKILL)
    except ProcessLookupError:
        pass
    assert code == 7 and "rank 1 of 2 (host " in err and "has not answered for 4 s" in err, f"exit {code}: {err}"
    print(f"  the job ended after {took:.1f} s", flush=True)


def unplugged(where, folder):
    """The network between two hosts fails: both ranks end. mpirun itself waits for its other daemon, as long as the system's TCP does."""
    if not isinstance(where, TwoHosts):
        return
    there = TwoHosts(folder)
    job = answering(there, 2)
    try:
        there.cut()
        since = time.monotonic()
        job.wait_for("end of the ranks", lambda: not job.rank(0) and not job.rank(1))
        print(f"  the ranks ended after {time.monotonic() - since:.1f} s", flush=True)
        err = job.text(job.err)
        assert "rank 1 of 2 (host linnet-b) has not answered for 4 s" in err, err
    finally:
        job.stop()
        there.close()


def half_answer(where, folder):
    """A stream that loses a rank has no end that says it was whole."""
    job = where.start(2, [LINNET, "serve", TINY, "--port", "0", *ONE])
    job.wait_for("port", lambda: "listening on http://" in job.text(job.err))
    address = job.text(job.err).split("listening on ")[1].split()[0]
    body = json.dumps({"model": "tiny", "prompt": "Tell me", "max_tokens": 900, "ignore_eos": True, "stream": True}).encode()
    fetch = [sys.executable, "-c", "import sys, urllib.request as u\n"
             "r = u.urlopen(u.Request(sys.argv[1] + '/v1/completions', sys.argv[2].encode(), {'Content-Type': 'application/json'}))\n"
             "while line := r.readline(): print(line.decode(), end='', flush=True)"]
    prefix = where.enter(where.hosts[0]) if isinstance(where, TwoHosts) else []
    client = subprocess.Popen([*prefix, *fetch, address, body.decode()], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    first = client.stdout.readline()
    assert first.startswith("data: "), first
    rank = job.rank(1)
    os.kill(rank, signal.SIGSTOP)
    rest = client.communicate(timeout=LIMIT)[0]
    code, _, err = job.end()
    try:
        os.kill(rank, signal.SIGKILL)
    except ProcessLookupError:
        pass
    events = [json.loads(line[6:]) for line in (first + rest).splitlines() if line.startswith("data: {")]
    assert code == 7, f"exit {code}: {err}"
    assert all(c["finish_reason"] is None for e in events for c in e.get("choices", [])), "a half answer ended as a whole one"
    assert "[DONE]" not in rest or any("error" in e for e in events), "a half answer ended as a whole one"


def other_weights(where, folder):
    """The first number of one tensor is another one on the second host, under the same path."""
    shutil.copytree(TINY, folder + "/model")
    shutil.copytree(TINY, folder + "/other")
    name = sorted(glob.glob(folder + "/other/*.safetensors"))[0]
    data = bytearray(read(name))
    at = 8 + int.from_bytes(data[:8], "little")
    data[at] ^= 1
    with open(name, "wb") as f:
        f.write(data)
    if not isinstance(where, TwoHosts):
        return
    where.on(where.hosts[1], "mount", "--bind", folder + "/other", folder + "/model")
    write_samples(folder + "/samples.jsonl")
    write_inputs(folder)
    code, out, err = where.run(2, [LINNET, "run", folder + "/model", "hi", *ONE])
    train = training_command(folder, folder + "/out")
    train[1] = folder + "/model"
    shared = [where.run(2, [LINNET, *command]) for command in (train, ["eval", folder + "/model", folder + "/text.txt", "--replicas", *ONE])]
    where.on(where.hosts[1], "umount", folder + "/model")
    assert code == 2 and not out and "rank 1 of 2: its model is another one than that of rank 0" in err, f"exit {code}: {err}"
    for code, out, err in shared:
        assert code == 2 and "rank 1 of 2: its model, " in err and "others than those of rank 0" in err, f"exit {code}: {err}"
    assert not os.path.exists(folder + "/out/adapter_model.safetensors")


def other_version(where, folder):
    """Another version on rank 1: a copy of the command whose text of the version differs by a digit."""
    version = alone("--version").split()[1].encode()
    other = folder + "/linnet"
    data = read(LINNET)
    assert b"\0" + version + b"\0" in data
    with open(other, "wb") as f:
        f.write(data.replace(b"\0" + version + b"\0", b"\0" + version[:-1] + b"x\0"))
    os.chmod(other, 0o755)
    choose = f'[ "$OMPI_COMM_WORLD_RANK" = 1 ] && exec {other} "$@"; exec {LINNET} "$@"'
    code, out, err = where.run(2, ["sh", "-c", choose, "linnet", "run", TINY, "hi", *ONE])
    assert code == 2 and not out and "rank 1 of 2: its version of linnet is another one" in err, f"exit {code}: {err}"


def world_size(where, folder):
    """MPI and its launcher disagree, as those of two installations do; and launchers of other kinds."""
    run = [LINNET, "run", TINY, "hi", "-n", "1", *ONE]
    try:
        ctypes.CDLL("libmpi_abi.so.1")
        alone_of_mpich = {}  # with this library, ranks of MPICH are joined
    except OSError:
        alone_of_mpich = {"PMI_SIZE": "2"}
    for env, code, text in (({"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_RANK": "0"}, 7, "rank 0 of 3, and MPI made it rank 0 of 1"),
                            (alone_of_mpich | {"PMI_RANK": "0"}, 0, "one of 2 processes that were started together" if alone_of_mpich else ""),
                            ({"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "0"}, 0, "one of 4 processes that were started together")):
        done = subprocess.run(run, env=ENV | env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT)
        assert done.returncode == code and text in done.stderr, f"{env}: exit {done.returncode}: {done.stderr}"
    # A task of srun: its variables are those of PMIx and Slurm, without those of mpirun.
    slurm = ["env", "-u", "OMPI_COMM_WORLD_SIZE", "-u", "OMPI_COMM_WORLD_RANK", "SLURM_NTASKS=8", "SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=0"]
    code, out, err = where.run(2, [*slurm, *(["taskset", "-c", "0"] if os.cpu_count() > 1 else []), *run])
    assert code == 0 and out and "rank 0 of 2" in err and "started together" not in err, f"exit {code}: {err}"
    assert os.cpu_count() == 1 or "as srun does by default; tell it to give each task more cores" in err, err
    for env in (alone_of_mpich | {"PMI_RANK": "1"}, {"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}):  # the others, and a batch script, say nothing
        done = subprocess.run(run, env=ENV | env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT)
        assert done.returncode == 0 and "started together" not in done.stderr, f"{env}: exit {done.returncode}: {done.stderr}"


def full_disk(where, folder):
    """Rank 0 cannot write a checkpoint: its message and its exit code are those of the job. Rank 1 has no place for temporary files:
    the job does not start."""
    write_samples(folder + "/samples.jsonl")
    os.makedirs(folder + "/small")
    if not isinstance(where, TwoHosts):
        return
    where.on(where.hosts[0], "mount", "-t", "tmpfs", "-o", "size=100k", "none", folder + "/small")
    code, _, err = where.run(2, [LINNET, *training_command(folder, folder + "/small/out")])
    where.on(where.hosts[0], "umount", folder + "/small")
    assert code == 5 and "No space left on device" in err, f"exit {code}: {err}"
    fill = f"{where.folder}/own/fill"
    where.on(where.hosts[1], "sh", "-c", f"head -c 64M /dev/zero >{fill} 2>/dev/null; [ -s {fill} ]")
    code, out, err = where.run(2, [LINNET, "run", TINY, "hi", "-n", "1", *ONE])
    where.on(where.hosts[1], "rm", fill)
    print(f"  without temporary files on the second host: exit {code}", flush=True)
    assert (code == 0 and out) or (code != 0 and not out and err), f"exit {code}: {out} {err}"


def slow_disk(where, folder):
    """Rank 0 writes its results for longer than a rank may be silent, after all steps."""
    if not shutil.which("cc"):
        print("SKIP: no C compiler: a slow disk is NOT tested", flush=True)
        return
    write_samples(folder + "/samples.jsonl")
    with open(folder + "/slow.c", "w") as f:
        f.write("#include <stdlib.h>\n#include <unistd.h>\n#include <sys/syscall.h>\nint fsync(int fd) {\n"
                "  static int slept;\n  if (!slept++) sleep(12);\n  return (int)syscall(SYS_fsync, fd);\n}\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder + "/slow.so", folder + "/slow.c"], check=True)
    command = training_command(folder, folder + "/out")
    command[command.index("--save-every") + 1] = "999"
    at = command.index("--valid-split")
    del command[at:at + 2]  # so that nothing is written before the end
    preload = f'[ "$OMPI_COMM_WORLD_RANK" = 0 ] && export LD_PRELOAD={folder}/slow.so; exec "$@"'
    code, _, err = where.run(2, ["sh", "-c", preload, "sh", LINNET, *command])
    assert code == 0, f"exit {code}: {err}"


def standard_abi(where, folder):
    """MPICH in place of Open MPI."""
    if isinstance(where, TwoHosts):
        return
    try:
        there = Mpich(folder)
    except SystemExit:
        return
    for case in (functools.partial(goldens, most=3), training, killed, hung):
        case(there, tempfile.mkdtemp(dir=folder))


SAMPLE = [goldens, replicas, other_weights, world_size]
ALL = [goldens, answers, training, preferences, text, replicas, killed, survivors, hung, unplugged, half_answer, other_weights, other_version, world_size, full_disk,
       slow_disk, standard_abi]


def main():
    need_mpirun()
    unknown = set(HOW.cases) - {c.__name__ for c in ALL}
    assert not unknown, f"unknown cases: {unknown}"
    cases = [c for c in ALL if c.__name__ in HOW.cases] if HOW.cases else ALL if LONG else SAMPLE
    with tempfile.TemporaryDirectory(prefix="linnet-ranks-") as folder:
        places = [Local(folder)] if HOW.where == "one" or (LONG and not HOW.where) else []
        try:
            places += [TwoHosts(folder)] if HOW.where != "one" else []
        except SystemExit:
            if not places:
                raise
        for where in places:
            for case in cases:
                print(f"{where.name}: {case.__name__}", flush=True)
                own = tempfile.mkdtemp(dir=folder)
                case(where, own)
        places[-1].close() if isinstance(places[-1], TwoHosts) else None
    print(f"[  PASSED  ] {len(places) * len(cases)} test(s).")


main()
