"""A browser for tests: Chromium without a window, driven over its DevTools protocol.

Needs the package websocket-client. One page; what goes wrong in it (errors in the console, violations of its policy, requests
to other hosts) is kept in `problems`."""
import base64
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request

import websocket

KEYS = {"Enter": 13, "Escape": 27, "ArrowUp": 38, "Tab": 9}


def find():
    return next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)


class Browser:
    def __init__(self, origin):
        self.origin, self.problems, self.number, self.dialogs = origin, [], 0, 0
        self.home = tempfile.mkdtemp(prefix="linnet-page-")
        self.process = subprocess.Popen(
            [find(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
             "--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--remote-debugging-port=0",
             "--remote-allow-origins=*", f"--user-data-dir={self.home}", "about:blank"],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True)
        port = None
        for line in self.process.stderr:
            found = re.search(r"DevTools listening on ws://[^:]+:(\d+)/", line)
            if found:
                port = found.group(1)
                break
        if port is None:
            raise SystemExit("the browser did not start")
        target = next(t for t in json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/json")) if t["type"] == "page")
        self.socket = websocket.create_connection(target["webSocketDebuggerUrl"], timeout=60, max_size=None)
        for domain in ("Page", "Runtime", "Log", "Network", "DOM"):
            self.call(domain + ".enable")

    def close(self):
        self.socket.close()
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        shutil.rmtree(self.home, ignore_errors=True)

    # ---- the protocol ----

    def note(self, message):
        method, p = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            d = p["exceptionDetails"]
            self.problems.append("exception: " + d.get("exception", {}).get("description", d["text"]))
        elif method == "Log.entryAdded" and p["entry"]["level"] == "error":
            self.problems.append(f"{p['entry']['text']} {p['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            url = p["request"]["url"]
            if not url.startswith((self.origin + "/", "data:", "blob:" + self.origin, "about:")):
                self.problems.append("a request to " + url)
        elif method == "Page.javascriptDialogOpening":
            self.problems.append("a dialog: " + p["message"])
            self.number += 1
            self.socket.send(json.dumps({"id": self.number, "method": "Page.handleJavaScriptDialog", "params": {"accept": True}}))

    def call(self, method, **params):
        self.number += 1
        number = self.number
        self.socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self.socket.recv())
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                return message["result"]
            self.note(message)

    # ---- the page ----

    def run(self, script):
        """The value of an expression; promises are awaited."""
        r = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in r:
            raise RuntimeError(f"{script}: {r['exceptionDetails'].get('exception', {}).get('description')}")
        return r["result"].get("value")

    def holds(self, script):
        try:
            return self.run(f"!!({script})")
        except RuntimeError: # a page that is being left, or whose script has not begun
            return False

    def wait(self, script, what=None, timeout=20):
        """Waits until an expression is true."""
        until = time.monotonic() + timeout
        while not self.holds(script):
            if time.monotonic() > until:
                raise SystemExit(f"page: not after {timeout} s: {what or script}\n  {self.problems}\n  {self.run('document.body.innerText')[-800:]}")
            time.sleep(0.02)

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait(f"location.href.startsWith({json.dumps(url)}) && document.readyState === 'complete'")

    def reload(self):
        self.run("window.isOld = true")
        self.call("Page.reload")
        self.wait("!window.isOld && document.readyState === 'complete' && typeof models === 'object' && models.length > 0")

    def press(self, name, modifiers=0):
        text = {"Enter": "\r", "Tab": "\t"}.get(name)
        code = KEYS.get(name, ord(name[0].upper()))
        common = {"key": name, "code": name if name in KEYS else "Key" + name.upper(), "windowsVirtualKeyCode": code, "modifiers": modifiers}
        self.call("Input.dispatchKeyEvent", type="keyDown", **common, **({"text": text} if text and not modifiers & 2 else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def click(self, selector):
        place = self.run(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'nearest'}});"
                         "const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def choose_file(self, selector, path):
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[path])

    def size(self, width, height, mobile=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if mobile else 1, mobile=mobile)
        self.call("Emulation.setTouchEmulationEnabled", enabled=mobile)

    def dark(self, on):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if on else "light"}])

    def slow(self, bytes_per_second):
        """Limits what the page receives; -1: not any more."""
        self.call("Network.emulateNetworkConditions", offline=False, latency=0, downloadThroughput=bytes_per_second, uploadThroughput=-1)

    def shot(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
