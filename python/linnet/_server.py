"""The command linnet, and its server as a child process."""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
from typing import Optional, Sequence, Union

from ._library import FileError, exception


def command() -> str:
    """Returns the path of the command linnet: LINNET_COMMAND, that of this package, else that on PATH."""
    named = os.environ.get("LINNET_COMMAND")
    if named:
        return named
    packed = pathlib.Path(__file__).parent / "bin" / "linnet"
    if packed.exists():
        return str(packed)
    found = shutil.which("linnet")
    if not found:
        raise FileError("linnet: no such command in this package or on PATH. Install linnet, or name the command in "
                        "LINNET_COMMAND")
    return found


def main() -> None:
    """The script `linnet` that pip installs: replaces this process by the command."""
    path = command()
    if os.path.realpath(path) == os.path.realpath(sys.argv[0]):  # it would replace itself for ever
        sys.exit(f"linnet: {path} is this script, not the command; name the command in LINNET_COMMAND, or unset it")
    os.execv(path, [path] + sys.argv[1:])


class Server:
    """A server that runs as a child process until `close()`, the end of a `with` block or the end of this process.

    `url` is its address, such as http://127.0.0.1:40123; the OpenAI API is below url + "/v1". `log` has the last lines that
    it wrote to standard error."""

    def __init__(self, model: Union[str, os.PathLike] = "tiny", *flags: str, port: int = 0, timeout: float = 600):
        self.url = ""
        self.log: Sequence[str] = []
        self._lines: list = []
        self._ready = threading.Event()
        arguments = [command(), "serve", os.fspath(model), "--port", str(port), *flags]
        self._child: Optional[subprocess.Popen] = subprocess.Popen(
            arguments, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            errors="replace", start_new_session=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._ready.wait(timeout) or not self.url:
            code = self._child.poll() if self._ready.is_set() else None
            self.close()
            raise exception(code or 7, "\n".join(self.log) or f"the server was not ready after {timeout} s")

    def _read(self) -> None:
        for line in self._child.stderr:
            self._lines = (self._lines + [line.rstrip("\n")])[-100:]
            self.log = self._lines
            found = re.search(r"listening on (http://\S+)", line)
            if found and not self.url:
                self.url = found[1].rstrip("/")
                self._ready.set()
        self._child.wait()
        self._ready.set()

    def close(self) -> None:
        """Ends the server: requests that run get the time that the command gives them on SIGTERM."""
        if self._child is None:
            return
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)
        self._child.wait()
        self._reader.join()
        self._child.stderr.close()
        self._child = None

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *raised) -> None:
        self.close()

    def __del__(self):
        if getattr(self, "_child", None) is not None:
            self.close()


def serve(model: Union[str, os.PathLike] = "tiny", *flags: str, port: int = 0, timeout: float = 600) -> Server:
    """Starts `linnet serve MODEL` as a child process, with further flags of the command, and returns when it listens. `port` 0
    takes a free one."""
    return Server(model, *flags, port=port, timeout=timeout)
