#!/usr/bin/env python3
"""Load on `linnet serve`: overload, slow connections, and throughput beside llama.cpp's llama-server.

usage: bench/serve_load.py overload [MODEL]          goodput at 10 times the capacity, as a share of the peak
       bench/serve_load.py slow [MODEL]              the p99 of answers beside 5,000 connections that drip their heads
       bench/serve_load.py peer MODEL LLAMA_SERVER FILE.gguf
                                                     tokens per second and time to the first one, 1, 4 and 16 clients, in turn
                                                     with llama-server on the same shape

MODEL: the bundled one without it. The environment variable LINNET is the path of the command, SECONDS the length of a run (10). Only Python's
standard library is needed. The client runs on the machine of the server and takes processor time from it; it prints how much."""
import json
import os
import random
import resource
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LINNET = os.environ.get("LINNET", os.path.join(HERE, "../build/linnet"))
SECONDS = float(os.environ.get("SECONDS", "10"))


class Server:
    """A server process; `port` once it listens."""

    def __init__(self, argv, port=None):
        self.log = open(os.devnull if port else f"/tmp/serve_load.{os.getpid()}", "w+b")
        self.process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=self.log)
        self.port = port
        for _ in range(1200):
            time.sleep(0.05)
            if port is None:
                self.log.seek(0)
                said = self.log.read().decode(errors="replace")
                if "listening on http://" in said:
                    self.port = int(said.split("listening on http://")[1].split("\n")[0].rsplit(":", 1)[1])
                    return
            elif get(port, "/health")[0] == 200:
                return
            if self.process.poll() is not None:
                sys.exit(f"{argv[0]} ended: {self.process.returncode}")
        sys.exit(f"{argv[0]} does not listen")

    def stop(self):
        self.process.terminate()
        self.process.wait()


def linnet(model, *more):
    return Server([LINNET, "serve", model, "--port", "0", "--log-format", "none", *more])


def get(port, path):
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as s:
            s.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            data = b""
            while more := s.recv(65536):
                data += more
        return int(data[9:12]), data
    except (OSError, ValueError):
        return 0, b""


def post(path, body):
    text = json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text


class Call:
    """A request on a connection of its own, read to the connection's end."""

    def __init__(self, loop, port, data, done):
        self.began, self.first, self.got, self.done = time.monotonic(), None, b"", done
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.connect_ex(("127.0.0.1", port))
        self.data, self.loop = data, loop
        loop.register(self.socket, selectors.EVENT_WRITE, self)

    def ready(self, mask):
        try:
            if mask & selectors.EVENT_WRITE:
                self.data = self.data[self.socket.send(self.data):]
                if not self.data:
                    self.loop.modify(self.socket, selectors.EVENT_READ, self)
                return
            more = self.socket.recv(65536)
        except OSError:
            more = b""
        self.got += more
        if self.first is None and b"\ndata: " in self.got:
            self.first = time.monotonic()
        if not more:
            self.loop.unregister(self.socket)
            self.socket.close()
            self.done(self)

    @property
    def status(self):
        return int(self.got[9:12]) if len(self.got) > 12 else 0


def turn(loop, wait):
    for key, mask in loop.select(wait):
        key.data.ready(mask)


def engine_share(pid, before=None):
    """(seconds that the server's busiest thread ran, seconds that it waited for a processor), less those of `before`."""
    best = (0.0, 0.0)
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as f:
            ran, waited = (int(v) / 1e9 for v in f.read().split()[:2])
        best = max(best, (ran, waited))
    return (best[0] - before[0], best[1] - before[1]) if before else best


def quantile(values, q):
    return sorted(values)[min(len(values) - 1, int(q * len(values)))] if values else float("nan")


# ---- goodput at ten times the capacity ----

def closed_loop(port, clients, body, seconds):
    """Answers per second of `clients`, each of which asks again once it has its answer."""
    loop, good, times = selectors.DefaultSelector(), 0, []
    end = time.monotonic() + seconds
    running = 0

    def done(call):
        nonlocal good, running
        running -= 1
        if call.status == 200:
            good += time.monotonic() <= end
            times.append(time.monotonic() - call.began)
        start()

    def start():
        nonlocal running
        if time.monotonic() < end:
            running += 1
            Call(loop, port, post("/v1/chat/completions", body()), done)

    for _ in range(clients):
        start()
    while running:
        turn(loop, 0.1)
    return good / seconds, times


def open_loop(port, rate, body, seconds):
    """What becomes of requests that come at a rate, whatever the server does."""
    loop, good, refused, other, refusals, late = selectors.DefaultSelector(), 0, 0, 0, [], 0
    begin = time.monotonic()
    sent = running = 0

    def done(call):
        nonlocal good, refused, other, running
        running -= 1
        now = time.monotonic()
        if call.status == 200:
            good += begin + seconds / 4 <= now <= begin + seconds
        elif call.status in (429, 503):
            refused += 1
            refusals.append(now - call.began)
        else:
            other += 1

    while (now := time.monotonic()) < begin + seconds:
        while sent < (now - begin) * rate and running < 8000:
            sent += 1
            running += 1
            Call(loop, port, post("/v1/chat/completions", body()), done)
        late = max(late, (now - begin) * rate - sent)
        turn(loop, 0.001)
    end = time.monotonic() + 60
    while running and time.monotonic() < end:
        turn(loop, 0.1)
    return good / (seconds * 3 / 4), sent / seconds, refused, other, refusals, late


def story(tokens):
    return lambda: {"messages": [{"role": "user", "content": f"Tell me story {random.randrange(10**6)}."}], "max_tokens": tokens, "ignore_eos": True, "temperature": 0}


def overload(model):
    server = linnet(model, "--parallel", "16", "--max-queue", "64", "--threads", "1")
    body = story(64)
    try:
        closed_loop(server.port, 16, body, 2)
        for _ in range(3):
            pid, at = server.process.pid, engine_share(server.process.pid)
            peak, _ = closed_loop(server.port, 32, body, SECONDS)
            ran = engine_share(pid, at)
            at = engine_share(pid)
            goodput, rate, refused, other, refusals, late = open_loop(server.port, 10 * peak, body, SECONDS)
            ran = [r / (r + w) for r, w in (ran, engine_share(pid, at))]
            again, times = closed_loop(server.port, 16, body, SECONDS / 2)
            print(f"peak {peak:.1f}/s; at {rate:.0f}/s ({rate / peak:.1f} times; the client was {late:.0f} requests late at most): goodput {goodput:.1f}/s = "
                  f"{100 * goodput / peak:.1f} %, {refused} refused (p99 after {1e3 * quantile(refusals, 0.99):.0f} ms), {other} other; afterwards {again:.1f}/s. The engine's thread "
                  f"had a processor {100 * ran[0]:.0f} and {100 * ran[1]:.0f} % of its time: goodput per second of it {100 * goodput * ran[0] / peak / ran[1]:.1f} %", flush=True)
    finally:
        server.stop()
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(f"the client used {used.ru_utime + used.ru_stime:.1f} s of processor time")


# ---- slow connections ----

def slow(model):
    server = linnet(model, "--threads", "1")
    body = story(16)
    n = int(os.environ.get("CONNECTIONS", "5000"))
    head = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "
    try:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))
        closed_loop(server.port, 1, body, 2)
        child = None
        for round_ in range(3):
            _, alone = closed_loop(server.port, 1, body, SECONDS)
            child = os.fork()
            if child == 0:  # drips a byte on every connection every five seconds, and opens those again that were closed
                sockets = [None] * n
                while True:
                    begin = time.monotonic()
                    for i in range(n):
                        try:
                            if sockets[i]:
                                sockets[i].send(b"x")
                                continue
                        except OSError:
                            sockets[i].close()
                        sockets[i] = socket.create_connection(("127.0.0.1", server.port))
                        sockets[i].setblocking(False)
                        sockets[i].send(head)
                        time.sleep(0.0002)
                    time.sleep(max(0, 5 - (time.monotonic() - begin)))
            time.sleep(4)
            _, beside = closed_loop(server.port, 1, body, SECONDS)
            os.kill(child, 9)
            os.waitpid(child, 0)
            time.sleep(1)
            print(f"alone: median {1e3 * statistics.median(alone):.2f} ms, p99 {1e3 * quantile(alone, 0.99):.2f} ms ({len(alone)} answers); beside {n} slow heads: median "
                  f"{1e3 * statistics.median(beside):.2f} ms, p99 {1e3 * quantile(beside, 0.99):.2f} ms ({len(beside)}): p99 {100 * (quantile(beside, 0.99) / quantile(alone, 0.99) - 1):+.1f} %", flush=True)
    finally:
        server.stop()


# ---- against llama-server ----

def clients(port, n, each, prompt, tokens):
    """Tokens per second of n clients that ask `each` times, and the times to the first event."""
    loop, firsts, left, running = selectors.DefaultSelector(), [], n * each, 0
    begin = time.monotonic()

    def start():
        nonlocal left, running
        if left:
            left -= 1
            running += 1
            ids = [random.randrange(1000, 100000) for _ in range(prompt)]
            Call(loop, port, post("/v1/completions", {"prompt": ids, "max_tokens": tokens, "ignore_eos": True, "temperature": 0, "stream": True}), done)

    def done(call):
        nonlocal running
        running -= 1
        if call.status != 200 or b"[DONE]" not in call.got:
            sys.exit(f"an answer failed: {call.got[:300]!r}")
        firsts.append(call.first - call.began)
        start()

    for _ in range(n):
        start()
    while running:
        turn(loop, 0.1)
    return n * each * tokens / (time.monotonic() - begin), statistics.median(firsts)


def peer(model, llama, gguf):
    most, prompt, tokens = 16, 128, int(os.environ.get("TOKENS", "64"))
    threads = os.environ.get("THREADS", "2")
    spare = socket.socket()
    spare.bind(("127.0.0.1", 0))
    port = spare.getsockname()[1]
    spare.close()
    ours = linnet(model, "--parallel", str(most), "--ctx", "512", "--threads", threads)
    theirs = Server([llama, "-m", gguf, "--port", str(port), "-np", str(most), "-c", str(512 * most), "-t", threads, "-tb", threads, "-ub", "512"], port)
    try:
        for server in (ours, theirs):
            clients(server.port, 1, 1, prompt, 8)
        for n in (1, 4, 16):
            rows = []
            for _ in range(int(os.environ.get("TIMES", "3"))):
                rows.append([clients(server.port, n, max(2, 4 // n), prompt, tokens) for server in (ours, theirs)])
            speed = [statistics.median(r[k][0] for r in rows) for k in (0, 1)]
            first = [statistics.median(r[k][1] for r in rows) for k in (0, 1)]
            ratio = statistics.median(r[0][0] / r[1][0] for r in rows)
            print(f"{n:2} clients: {speed[0]:.1f} / {speed[1]:.1f} tokens/s = {ratio:.2f}; first event after {1e3 * first[0]:.0f} / {1e3 * first[1]:.0f} ms", flush=True)
    finally:
        ours.stop()
        theirs.stop()


def main(argv):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # the servers end too
    if len(argv) == 5 and argv[1] == "peer":
        peer(*argv[2:])
    elif len(argv) in (2, 3) and argv[1] in ("overload", "slow"):
        {"overload": overload, "slow": slow}[argv[1]](argv[2] if len(argv) == 3 else "tiny")
    else:
        sys.exit(__doc__)


main(sys.argv)
