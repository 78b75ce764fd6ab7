#!/usr/bin/env python3
"""Runs schemathesis over /openapi.json of `braid serve`: requests made of the document, right and
wrong ones, of which none may get a 5xx and each has to be answered as the document says.

  python3 -m pip install schemathesis
  tools/check_openapi.py                    the demo model, 60 requests an operation
  tools/check_openapi.py --examples 500 -m MODEL.gguf

Exits with 1 where a check fails. Streams and long answers are bounded by --max-model-len.
"""

import argparse
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

import served  # noqa: E402

CHECKS = ["not_a_server_error", "status_code_conformance", "content_type_conformance",
          "response_headers_conformance", "response_schema_conformance",
          "negative_data_rejection", "unsupported_method", "allow_header_conformance"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("-m", "--model", default=served.demo_model())
    parser.add_argument("--braid", default=served.BRAID)
    parser.add_argument("--examples", type=int, default=60, help="requests an operation")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--path", help="of the one endpoint to check; else all")
    o = parser.parse_args()
    port = served.free_port()
    with tempfile.TemporaryDirectory() as folder:
        command = [o.braid, "serve", "-m", o.model, "--port", port, "--max-model-len", 256,
                   "--kv-memory", "512M"]
        with served.serve(command, port, f"{folder}/log") as server:
            # Descriptions of nested strategies are deeper than Python's default allows.
            start = ("import runpy, sys; sys.setrecursionlimit(20000); "
                     "runpy.run_module('schemathesis.cli', run_name='__main__')")
            program = [sys.executable, "-c", start, "run", server.url + "/openapi.json",
                       "--checks", ",".join(CHECKS), "--max-examples", str(o.examples),
                       "--phases", "examples,coverage,fuzzing", "--seed", str(o.seed),
                       "--request-timeout", "120", "--continue-on-failure",
                       "--suppress-health-check", "all", "--workers", "4"]
            if o.path:
                program += ["--include-path", o.path]
            result = subprocess.run(program, cwd=folder, check=False)
            alive = server.process.poll() is None
            statuses = {}
            for line in open(f"{folder}/log"):
                words = line.split()
                if len(words) > 3 and words[3].isdigit():
                    statuses[words[3]] = statuses.get(words[3], 0) + 1
            print("answers by status:", dict(sorted(statuses.items())),
                  "" if alive else "- and the server has ended")
    failed = result.returncode != 0 or not alive or any(s >= "500" for s in statuses)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
