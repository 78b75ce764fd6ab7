"""A server as a child process, for tools that test or measure one."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
BRAID = ROOT / "build" / "release" / "bin" / "braid"
START_SECONDS = 300


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def demo_model():
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(cache) / "braid" / "models" / "smollm2-135m-instruct-q4_1.gguf"


class Served:
    def __init__(self, process, port):
        self.process, self.port = process, port
        self.url = f"http://127.0.0.1:{port}"

    def memory(self):
        """Resident bytes of the server."""
        with open(f"/proc/{self.process.pid}/status") as file:
            line = next(line for line in file if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024

    def metric(self, name):
        """The sum of a metric's samples."""
        with urllib.request.urlopen(self.url + "/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines
                   if line.startswith((name + "{", name + " ")))


@contextlib.contextmanager
def serve(command, port, log):
    """Starts `command` with its output in the file `log`, waits until /health answers 200, and ends
    it with SIGTERM."""
    with open(log, "w") as output:
        process = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL,
                                   stdout=output, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + START_SECONDS
        while True:
            if process.poll() is not None:
                raise RuntimeError(f"{command[0]} ended with {process.returncode}, see {log}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"{command[0]} is not ready after {START_SECONDS} s, see {log}")
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                    break
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        yield Served(process, port)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
