"""Two servers behind nginx with examples/nginx.conf: a conversation stays with its server, a server drains, is killed, loads and comes
back while every request is answered, and what Prometheus reads of both is all that was asked.

usage: proxy.py LINNET ROOT"""
import http.server
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

LINNET, ROOT = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
LIMIT = 120  # seconds for a request or an end; only a hang reaches it


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    def __init__(self, folder, port=0):
        self.log = open(f"{folder}/{time.monotonic_ns()}.log", "w")
        self.process = subprocess.Popen([LINNET, "serve", ROOT + "/models/tiny", "--port", str(port), "--threads", "1", "--log-format", "none"],
                                        stderr=self.log, stdin=subprocess.DEVNULL)
        self.port = int(self.wait_for(r"listening on http://127\.0\.0\.1:(\d+)"))

    def wait_for(self, pattern):
        while True:
            with open(self.log.name) as f:
                found = re.search(pattern, f.read())
            if found:
                return found[1]
            assert self.process.poll() is None, "the server ended"
            time.sleep(0.02)

    def end(self, number):
        self.process.send_signal(number)
        return self.process.wait(LIMIT)

    def count(self, metric):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=LIMIT) as r:
            lines = r.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if re.match(metric + r"[{ ]", line))


class Proxy:
    """nginx with the example, whose addresses, name and certificates are those of the test."""

    def __init__(self, folder, ports):
        self.port = free_port()
        with open(ROOT + "/examples/nginx.conf") as f:
            text = f.read()
        for number, port in zip(("11", "12"), ports):
            address = f"10.0.0.{number}:8080"
            assert text.count(address) == 1, address
            text = text.replace(address, f"127.0.0.1:{port}")
        text = text.replace("listen 443 ssl;", f"listen 127.0.0.1:{self.port};").replace("fail_timeout=10s", "fail_timeout=1s")
        text = re.sub(r"(?m)^    (ssl_certificate|server_name).*\n", "", text)
        assert "ssl" not in text and "10.0.0" not in text
        places = "".join(f"{name}_temp_path {folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        with open(folder + "/nginx.conf", "w") as f:
            f.write(f"{'user root;' if os.getuid() == 0 else ''}\ndaemon off;\nworker_processes 1;\npid {folder}/pid;\nerror_log {folder}/error;\nevents {{}}\n"
                    f"http {{\naccess_log off;\nadd_header X-Server $upstream_addr;\n{places}{text}}}\n")
        self.process = subprocess.Popen(["nginx", "-p", folder, "-e", folder + "/error", "-c", folder + "/nginx.conf"], stdin=subprocess.DEVNULL)
        while self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.02)
        raise AssertionError(open(folder + "/error").read())

    def open(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"})
        return urllib.request.urlopen(request, timeout=LIMIT)

    def ask(self, path, body):
        """The answer, and the port of the server that gave it: the last one that nginx tried."""
        with self.open(path, body) as r:
            return json.load(r), int(r.headers["X-Server"].rsplit(":", 1)[1])

    def end(self):
        self.process.terminate()
        self.process.wait(LIMIT)


def conversation(number, turns, **more):
    """A body with so many turns of a conversation, whose first message differs from those of all others."""
    messages = [{"role": "system", "content": "You tell {stories} to \"children\"."}]
    for t in range(turns):
        messages += [{"role": "user", "content": f"{number if t == 0 else ''} Tell me about a bird, part {t}."}, {"role": "assistant", "content": "A bird."}]
    return {"model": "tiny", "messages": messages[:-1], "max_tokens": 1, "temperature": 0} | more


def test_affinity(proxy, servers):
    """Returns the server of each conversation."""
    home = []
    for number in range(16):
        places = []
        for turns in (1, 2, 3):
            answer, port = proxy.ask("/v1/chat/completions", conversation(number, turns, seed=turns))
            places.append(port)
            cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
            assert turns == 1 or cached > 0, f"turn {turns} reuses nothing: {answer['usage']}"
        assert len(set(places)) == 1, f"conversation {number} moves: {places}"
        home.append(places[0])
    assert set(home) == {s.port for s in servers}, f"one server has all conversations: {home}"
    named = {proxy.ask("/v1/chat/completions", conversation(n, 1, prompt_cache_key="k"))[1] for n in range(6)}
    assert len(named) == 1, "prompt_cache_key does not choose the server"
    begun = {proxy.ask("/v1/completions", {"prompt": "Once" + " upon" * 300 + str(n), "max_tokens": 1})[1] for n in range(4)}
    assert len(begun) == 1, "the beginning of a prompt does not choose the server"
    return home


def test_metrics(proxy, servers, asked):
    """The figures of both servers together are all that was asked; those of one are not shown as if they were."""
    total = sum(s.count("linnet_choices_total") for s in servers)
    assert total == asked, f"{total} choices, {asked} were asked for"
    assert all(s.count("linnet_choices_total") > 0 for s in servers)
    for path in ("/metrics", "/v1/status"):
        try:
            proxy.open(path).close()
            raise AssertionError(path + " of one server passes the proxy")
        except urllib.error.HTTPError as e:
            assert e.code == 404
    with open(ROOT + "/examples/prometheus.yml") as f, open(ROOT + "/examples/nginx.conf") as g:
        assert re.findall(r"10\.0\.0\.\d+:\d+", f.read()) == re.findall(r"10\.0\.0\.\d+:\d+", g.read())
    if shutil.which("promtool"):
        subprocess.run(["promtool", "check", "config", ROOT + "/examples/prometheus.yml"], check=True, stdout=subprocess.DEVNULL)


def test_drain(proxy, servers, home, folder):
    """A server that stops answers what it has begun; the next turn of its conversations goes to the other one, and back later."""
    leaving = servers[0]
    number = home.index(leaving.port)
    with proxy.open("/v1/chat/completions", conversation(number, 1, max_tokens=200, ignore_eos=True, stream=True)) as stream:
        first = stream.readline()
        leaving.process.send_signal(signal.SIGTERM)
        while socket.socket().connect_ex(("127.0.0.1", leaving.port)) == 0:
            time.sleep(0.02)
        _, port = proxy.ask("/v1/chat/completions", conversation(number, 2))
        assert port == servers[1].port, "a draining server gets new requests"
        text = (first + stream.read()).decode()
    assert '"finish_reason":"length"' in text and text.rstrip().endswith("[DONE]"), f"a stream was cut: {text[-300:]}"
    assert leaving.process.wait(LIMIT) == 0
    servers[0] = Server(folder, leaving.port)
    end = time.monotonic() + LIMIT
    while proxy.ask("/v1/chat/completions", conversation(number, 2))[1] != leaving.port:
        assert time.monotonic() < end, "the conversation does not come back"
        time.sleep(0.2)


class Loading(http.server.BaseHTTPRequestHandler):
    """A server that loads."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


def test_killed(proxy, servers, home):
    """A server is killed, then loads: every request is answered by the other."""
    killed = servers[0]
    killed.end(signal.SIGKILL)
    for number in range(6):
        assert proxy.ask("/v1/chat/completions", conversation(number, 2))[1] == servers[1].port
    loading = http.server.ThreadingHTTPServer(("127.0.0.1", killed.port), Loading)
    threading.Thread(target=loading.serve_forever, daemon=True).start()
    time.sleep(1.2)  # fail_timeout: nginx tries it again
    for number in range(6):
        assert proxy.ask("/v1/chat/completions", conversation(number, 3))[1] == servers[1].port
    loading.shutdown()


def main():
    with tempfile.TemporaryDirectory(prefix="linnet-proxy-") as folder:
        servers = [Server(folder), Server(folder)]
        proxy = Proxy(folder, [s.port for s in servers])
        try:
            home = test_affinity(proxy, servers)
            test_metrics(proxy, servers, 16 * 3 + 6 + 4)
            test_drain(proxy, servers, home, folder)
            test_killed(proxy, servers, home)
        finally:
            proxy.end()
            for s in servers:
                if s.process.poll() is None:
                    s.process.kill()
                    s.process.wait()
    print("[  PASSED  ] 4 test(s).")


main()
