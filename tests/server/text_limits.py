#!/usr/bin/env python3
"""The memory limit for texts, and fairness between clients that send them.

usage: tests/server/text_limits.py LINNET MODEL [--whole]

memory: serve, batch, tokenize, train and classify run in a memory cgroup of plan x 1.2 + 32 MB, or, where no group can be made, with --memory
of that size and their VmHWM below it. They get the largest inputs that their limits allow, and larger ones. None is killed; what is too
large is refused: 400, 413, 429 or 503 of the server, exit 3 or 6 of the others, with both numbers in the message of a 413 and of exit 6.

fairness: beside eight bodies of 14 MB of one key a request of another key is answered before these bodies are. With --whole the first token
must come within max(2 x alone, 500 ms), the median of five rounds; without it nothing depends on time, and inputs are fewer."""
import collections
import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

LINNET, MODEL, WHOLE = os.path.abspath(sys.argv[1]), sys.argv[2], "--whole" in sys.argv[3:]
WORK = tempfile.mkdtemp(prefix="linnet-texts-")
TWO_NUMBERS = re.compile(r"takes \d[\d.]* [kMG]?B or more.* leaves \d[\d.]* [kMG]?B")
MEASURE = "import resource,subprocess,sys;c=subprocess.run(sys.argv[1:],stdout=subprocess.DEVNULL).returncode;" \
          "print(c,resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss*1024)"
failures = []


def check(ok, what):
    if not ok:
        failures.append(what)
        print("FAILED:", what)


# ---- a memory cgroup of a size ----

class Group:
    """A memory cgroup, version 2 or 1; self.dir is None where none can be made."""

    def __init__(self, limit):
        self.dir = None
        for root, leaf in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
            path = f"{root}/linnet-texts-{os.getpid()}"
            try:
                os.mkdir(path)
                with open(f"{path}/{leaf}", "w") as f:
                    f.write(str(limit))
                self.dir = path
                return
            except OSError:
                with contextlib.suppress(OSError):
                    os.rmdir(path)

    def enter(self):
        if self.dir:
            with open(f"{self.dir}/cgroup.procs", "w") as f:
                f.write(str(os.getpid()))

    def close(self):
        for _ in range(50):
            if not self.dir:
                return
            try:
                os.rmdir(self.dir)
                return
            except OSError:
                time.sleep(0.1)


def plan(*flags):
    out = subprocess.run([LINNET, "plan", MODEL, "--json", *flags], stdout=subprocess.PIPE, check=True).stdout
    p = json.loads(out)
    check("text_bytes" in p or "train" in flags, "plan names the share of texts")
    return p


def allowed(*flags):
    return int(plan(*flags)["peak_bytes"] * 1.2) + 32000000


def run(what, limit, args, stdin=None, codes=(0, 3, 6)):
    """Runs a verb within a limit. Checks that it is not killed, says why it ended, and keeps the limit."""
    group = Group(limit)
    within = [] if group.dir else ["--memory", str(limit)]
    # a small process in between: the peak of a child begins with that of its parent
    p = subprocess.Popen([sys.executable, "-c", MEASURE, LINNET, *args, *within], stdin=stdin or subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=group.enter)
    out, err = p.communicate()
    said = err.decode(errors="replace")
    code, peak = (int(x) for x in out.split()) if out else (-9, limit)
    group.close()
    print(f"  {what}: exit {code}, {peak / 1e6:.0f} of {limit / 1e6:.0f} MB"
          f"{' (cgroup)' if group.dir else ''}; {said.strip().splitlines()[-1][:150] if said.strip() else ''}")
    check(code in codes, f"{what}: exit {code}: {said[-300:]}")
    check(peak <= limit, f"{what}: {peak} bytes at the peak, {limit} are allowed")
    if code == 6:
        check(TWO_NUMBERS.search(said) or "are needed" in said, f"{what}: a refusal without both numbers: {said[-300:]}")
    return code


# ---- inputs ----

KINDS = {  # texts that take much memory: prose, one word of marks, blanks, long words, characters of four bytes
    "prose": "Once upon a time there was a girl. ", "marks": "\u0301\u0323", "blanks": " ", "word": "abcdefgh", "wide": "\U0001d400"}


def text_of(kind, size):
    unit = KINDS[kind]
    return (unit * (size // len(unit.encode()) + 1))[:max(1, size * len(unit) // len(unit.encode()))]


def file_of(name, data):
    path = os.path.join(WORK, name)
    with open(path, "w", encoding="utf-8") as f:
        for piece in data:
            f.write(piece)
    return path


SIZES = (1 << 20, 8 << 20, 31 << 20, 60 << 20) if WHOLE else (4 << 20,)
SOME = tuple(KINDS) if WHOLE else ("prose", "marks")


# ---- the verbs ----

def test_tokenize():
    limit = allowed()
    for kind in SOME:
        for size in SIZES:
            path = file_of("text", [text_of(kind, size)])
            run(f"tokenize {size >> 20} MiB of {kind}", limit, ["tokenize", MODEL, "-f", path])
    lines = file_of("lines", (json.dumps({"text": text_of("prose", 4 << 20)}) + "\n" for _ in range(8)))
    run("tokenize --jsonl, eight lines of 4 MiB", limit, ["tokenize", MODEL, "--jsonl", "-f", lines])
    check(run("tokenize a text", limit, ["tokenize", MODEL, "-f", file_of("text", ["Hello"])]) == 0, "a small text is tokenised")


def test_classify():
    for n, size in ((50000, 60), (4, 8 << 20), (400000, 60), (2, 60 << 20)) if WHOLE else ((50000, 60), (2, 4 << 20)):
        line = json.dumps({"text": text_of("prose", size)}) + "\n"
        path = file_of("inputs", (line for _ in range(n)))
        few = file_of("few", [line if size < 1000 else '{"text": "Hello"}\n'])
        labels = ["--labels", "yes,no", "--jsonl"]
        limit = allowed("--for", "classify", *labels, "-f", few)
        if n >= 50000:  # reading them is what is tested, not the answers
            run(f"classify {n} inputs of {size} bytes (plan)", limit, ["plan", MODEL, "--for", "classify", *labels, "-f", path])
        else:
            run(f"classify {n} inputs of {size >> 20} MiB", limit, ["classify", MODEL, *labels, "-f", path])


def test_train():
    few = file_of("few", [json.dumps({"text": text_of("prose", 2000)}) + "\n"] * 8)
    limit = allowed("--for", "train", "--data", few)
    for n, size in ((64, 100000), (3, 12 << 20), (400000, 100)) if WHOLE else ((3, 6 << 20),):
        data = file_of("data", (json.dumps({"text": text_of("prose", size)}) + "\n" for _ in range(n)))
        run(f"train on {n} samples of {size} bytes", limit, ["train", MODEL, "--data", data, "-o", os.path.join(WORK, f"adapter-{n}"), "--steps", "1"])


def line_of(k, content, n=1):
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": n}
    return json.dumps({"custom_id": str(k), "method": "POST", "url": "/v1/chat/completions", "body": body}) + "\n"


def test_batch():
    out = os.path.join(WORK, "answers")
    for kind in SOME:
        for size in SIZES:
            data = file_of("requests", (line_of(k, text_of(kind, size) if k % 2 else "Hello") for k in range(4)))
            limit = allowed("--for", "batch")
            code = run(f"batch with lines of {size >> 20} MiB of {kind}", limit, ["batch", MODEL, data, "-o", out, "--force"])
            with open(out) as f:
                good = [json.loads(a)["response"]["status_code"] for a in f]
            check(code == 6 or good.count(200) == 2, f"batch: small requests beside large ones are answered: {good}")


# ---- the server ----

class Server:
    def __init__(self, *flags, limit=None):
        self.keys = file_of("keys", ["attacker\nvictim\n"])
        self.group = Group(limit) if limit else None
        if self.group and not self.group.dir:
            flags = (*flags, "--memory", str(limit))
        self.p = subprocess.Popen([LINNET, "serve", MODEL, "--port", "0", "--api-key", "@" + self.keys, "--log-format", "none", *flags],
                                  stderr=subprocess.PIPE, text=True, preexec_fn=self.group.enter if self.group else None)
        self.port = None
        for text in self.p.stderr:
            if "listening on" in text:
                self.port = int(text.rsplit(":", 1)[1])
                break
        threading.Thread(target=lambda: collections.deque(self.p.stderr, 0), daemon=True).start()

    def post(self, path, body, key="victim"):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        start = time.time()
        try:
            c.request("POST", path, body, {"Content-Type": "application/json", "x-api-key": key})
            r = c.getresponse()
            return r.status, r.read(), time.time() - start, time.time()
        except OSError:  # rejected before the whole body was sent, and reset
            return 0, b"", time.time() - start, time.time()
        finally:
            c.close()

    def peak(self):
        with open(f"/proc/{self.p.pid}/status") as f:
            return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM"))

    def close(self):
        self.p.send_signal(signal.SIGTERM)
        code = self.p.wait(60)
        if self.group:
            self.group.close()
        return code


def bodies(size):
    for kind in SOME:
        text = text_of(kind, size)
        yield f"tokenize {kind}", "/tokenize", json.dumps({"content": text}, ensure_ascii=False)
        yield f"chat {kind}", "/v1/chat/completions", json.dumps({"messages": [{"role": "user", "content": text}], "max_tokens": 1})
        yield f"completion {kind}", "/v1/completions", json.dumps({"prompt": text, "max_tokens": 1}, ensure_ascii=False)
    yield "numbers", "/v1/completions", '{"prompt":[' + ",".join(["17"] * (size // 3)) + "]}"
    yield "texts", "/v1/embeddings", json.dumps({"input": ["x" * 100] * (size // 104)})
    yield "choices", "/v1/chat/completions", json.dumps({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, "response_format": {
        "type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": [f"value {i}" for i in range(size // 16)]}}}})
    if WHOLE:
        yield "messages", "/v1/responses", json.dumps({"input": [{"role": "user", "content": "x"}] * (size // 35)})
        yield "rerank", "/rerank", json.dumps({"query": "x", "documents": ["y" * 1000] * (size // 1004)})
        yield "template", "/apply-template", json.dumps({"messages": [{"role": "user", "content": "z " * (size // 2)}]})


def test_serve(name, limit, *flags):
    s = Server(*flags, limit=limit)
    seen = collections.Counter()
    for size in [1 << 20, 7 << 20, 30 << 20] if WHOLE else [7 << 20]:
        for what, path, body in bodies(size):
            data = body.encode()[:32 << 20]
            threads = [threading.Thread(target=lambda: answers.append(s.post(path, data, "attacker"))) for _ in range(8)]
            answers = []
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            for status, text, _, _ in answers:
                seen[status] += 1
                check(status in (0, 200, 400, 413, 429, 503), f"{name}: {what}: {status}: {text[:200]}")
                if status == 413:
                    check(TWO_NUMBERS.search(text.decode()), f"{name}: {what}: a refusal without both numbers: {text[:300]}")
            if s.p.poll() is not None:
                check(False, f"{name}: killed by {what} of {size >> 20} MiB: {s.p.returncode}")
                return
    status, text, _, _ = s.post("/v1/completions", json.dumps({"prompt": "Once", "max_tokens": 1}))
    check(status == 200, f"{name}: a small request afterwards: {status}: {text[:200]}")
    peak = s.peak()
    print(f"  {name}: {peak / 1e6:.0f} of {limit / 1e6:.0f} MB{' (cgroup)' if s.group.dir else ''}, answers {dict(seen)}")
    check(peak <= limit, f"{name}: {peak} bytes at the peak, {limit} are allowed")
    check(s.close() == 0, f"{name}: the server ends with 0")


def test_fairness():
    s = Server()
    small = json.dumps({"prompt": "Once", "max_tokens": 1})
    large = {"/tokenize": json.dumps({"content": "abc " * 3500000}),
             "/v1/chat/completions": json.dumps({"messages": [{"role": "user", "content": "abc " * 3500000}]})}
    for path, body in list(large.items())[:None if WHOLE else 1]:
        alone = sorted(s.post("/v1/completions", small)[2] for _ in range(5))[2]
        times = []
        for _ in range(5 if WHOLE else 1):
            answers = []
            threads = [threading.Thread(target=lambda: answers.append(s.post(path, body.encode(), "attacker"))) for _ in range(8)]
            for t in threads:
                t.start()
            while WHOLE and not answers and path == "/tokenize":
                time.sleep(0.01)  # the server works on them
            status, text, seconds, end = s.post("/v1/completions", small)
            times.append(seconds)
            check(status == 200, f"fairness: the other key's request: {status}: {text[:200]}")
            for t in threads:
                t.join()
            later = sum(a[3] > end for a in answers)
            check(later > 0 or path != "/tokenize", "fairness: the small request was answered after all large bodies")
        median = sorted(times)[len(times) // 2]
        print(f"  beside eight bodies of 14 MB to {path}: {median * 1000:.0f} ms (alone {alone * 1000:.0f} ms, "
              f"answers {dict(collections.Counter(a[0] for a in answers))})")
        check(not WHOLE or median <= max(2 * alone, 0.5), f"fairness: {median:.3f} s beside {path}, alone {alone:.3f} s")
    check(s.close() == 0, "fairness: the server ends with 0")


def main():
    print("memory:")
    test_tokenize()
    test_batch()
    test_train()
    test_classify()
    test_serve("serve", allowed("--for", "serve"))
    small = int(plan("--for", "batch")["peak_bytes"] + 20000000)  # within the limit that the group or the flag sets
    test_serve("serve --memory", small, "--memory", str(small))
    print("fairness:")
    test_fairness()
    subprocess.run(["rm", "-rf", WORK], check=False)
    if failures:
        print(f"{len(failures)} checks failed")
        return 1
    print("all texts stay within their limits")
    return 0


sys.exit(main())
