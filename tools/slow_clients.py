#!/usr/bin/env python3
"""Measures whether clients that are slow, half open or silent hold up others of `braid serve`.

  tools/slow_clients.py                       1,000 such clients, the demo model

Measures times to the first token (TTFT) in turns without and with these clients, so that what else
the machine does hits both alike. Exits with 1 where the median is more than 1.1 times as long.
"""

import argparse
import json
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True

import served  # noqa: E402


def raise_file_limit():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class BadClients:
    """Connections that hold a server's attention and want nothing; each is opened again when the
    server has closed it."""

    def __init__(self, port, count):
        self.port, self.ended = port, threading.Event()
        self.sockets = [self.open(i) for i in range(count)]
        self.thread = threading.Thread(target=self.trickle)
        self.thread.start()

    def open(self, i):
        s = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        if i % 4 == 1:  # half open
            s.shutdown(socket.SHUT_WR)
        elif i % 4 == 2:  # a header that never ends
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nX: ")
        elif i % 4 == 3:  # a body that comes slowly
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
                      b"Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n{")
        s.setblocking(False)
        return s

    def trickle(self):
        """A byte a second for each slow client."""
        while not self.ended.wait(1.0):
            for i, s in enumerate(self.sockets):
                try:
                    if i % 4 in (2, 3):
                        s.send(b" ")
                    if s.recv(4096) == b"" or i % 4 == 1:
                        raise OSError
                except BlockingIOError:
                    pass
                except OSError:
                    s.close()
                    if not self.ended.is_set():
                        self.sockets[i] = self.open(i)

    def close(self):
        self.ended.set()
        self.thread.join()
        for s in self.sockets:
            s.close()


def load(o, server, seed, requests):
    """TTFTs in seconds, of a load that the machine carries with ease."""
    command = [o.braid, "bench", "serve", "--url", server.url, "-n", requests, "--concurrency", 2,
               "--input-len", 64, "--output-len", 8, "--ignore-eos", "--seed", seed, "--details"]
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                            timeout=900, check=True)
    return json.loads(result.stdout)["ttfts"]


def check_clients(o, server):
    alone, among = [], []
    for turn in range(o.rounds):
        alone += load(o, server, 2 * turn, o.requests)
        bad = BadClients(server.port, o.clients)
        try:
            time.sleep(1)
            among += load(o, server, 2 * turn + 1, o.requests)
        finally:
            bad.close()
    def ms(values, share):
        return 1e3 * sorted(values)[int(share * (len(values) - 1))]
    ratio = statistics.median(among) / statistics.median(alone)
    print(f"{o.clients} slow, half open or silent clients, {len(alone)} requests each way: TTFT P50 "
          f"{ms(alone, .5):.1f} ms alone, {ms(among, .5):.1f} ms among them ({ratio:.3f}x); P90 "
          f"{ms(alone, .9):.1f} and {ms(among, .9):.1f} ms")
    return ratio <= 1.10


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("-m", "--model", default=served.demo_model())
    parser.add_argument("--braid", default=served.BRAID)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=40, help="of a turn")
    parser.add_argument("--rounds", type=int, default=3)
    o = parser.parse_args()
    raise_file_limit()
    port = served.free_port()
    with tempfile.TemporaryDirectory() as folder:
        command = [o.braid, "serve", "-m", o.model, "--port", port, "--log", "none",
                   "--kv-memory", "256M", "--no-prefix-cache"]
        with served.serve(command, port, f"{folder}/log") as server:
            sys.exit(0 if check_clients(o, server) else 1)


if __name__ == "__main__":
    main()
