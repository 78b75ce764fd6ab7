#!/usr/bin/env python3
"""Runs a build's tests with ctest and says what came out: scripts/run_tests.py BUILD [ctest's options]

A failed test's output is shown at once, all output is in BUILD/test.log. The last lines count the tests, with why
some were skipped, as "1,684 passed, 301 skipped: 301 no GPU here", then "1684 passed, 0 failed, 301 skipped".
"""

import collections
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

RESULT = re.compile(r"^ *(\d+)/(\d+) Test +#\d+: (.+?) \.*( |\*\*\*)\S")
WITHOUT_GPU = re.compile(r"\bno (CUDA device|Hopper GPU|GPU)|^0 GPUs|keys arrive on Hopper")


def why_skipped(case):
    """What the test said when it left, in a line; the tests of label gpu want one."""
    labels = [p.get("value") for p in case.iter("property") if p.get("name") == "cmake_labels"]
    output = case.findtext("system-out") or ""
    said = re.search(r"Skipped\n(.+)", output)
    reason = said.group(1).strip() if said else "no reason given"
    if WITHOUT_GPU.search(reason):
        return "no GPU here" if "Hopper" not in reason else "no Hopper GPU here"
    return f"{reason} (a test of GPUs)" if "gpu" in labels else reason


def count(junit):
    """(passed, names of the failed, reasons of the skipped with how often)"""
    passed, failed, skipped = 0, [], collections.Counter()
    for case in xml.etree.ElementTree.parse(junit).getroot().iter("testcase"):
        left = case.find("skipped")  # also of a test whose program is not there
        if case.get("status") == "run":
            passed += 1
        elif left is not None and left.get("message", "").startswith("SKIP_"):
            skipped[why_skipped(case)] += 1
        elif case.get("status") != "disabled":
            failed.append(case.get("name"))
    return passed, failed, skipped


def summary(passed, failed, skipped):
    total = sum(skipped.values())
    line = f"{passed:,} passed"
    if failed:
        line += f", {len(failed):,} failed"
    if total:
        reasons = [why if len(skipped) == 1 else f"{n:,} {why}" for why, n in skipped.most_common()]
        line += f", {total:,} skipped: " + ", ".join(reasons)
    names = [f"failed: {name}" for name in failed]
    return "\n".join([*names, line, f"{passed} passed, {len(failed)} failed, {total} skipped"])


class Progress:
    """One line on a terminal, ten lines elsewhere."""

    def __init__(self):
        self.tenth, self.terminal = 0, sys.stdout.isatty()

    def show(self, done, total):
        if self.terminal:
            print(f"\r{done:,} of {total:,} tests ", end="", flush=True)
        elif 10 * done // total > self.tenth:
            self.tenth = 10 * done // total
            print(f"{done:,} of {total:,} tests", flush=True)

    def close(self):
        if self.terminal:
            print()


def run(build, options):
    junit = build / "test_results.xml"
    junit.unlink(missing_ok=True)
    command = ["ctest", "--test-dir", build, "--output-on-failure", "--no-tests=error", "--output-junit",
               junit.resolve(), *options]
    progress, failing = Progress(), False
    with open(build / "test.log", "w") as log, subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as ctest:
        for line in ctest.stdout:
            log.write(line)
            if result := RESULT.match(line):
                failing = "***" in line and "***Skipped" not in line
                progress.show(int(result[1]), int(result[2]))
            elif line.startswith(("100% tests", "The following tests")) or " tests passed, " in line:
                failing = False
            if failing:
                sys.stdout.write(line)
    progress.close()
    return ctest.returncode, junit


def main():
    if len(sys.argv) < 2:
        sys.exit("run_tests: wanted the build's folder")
    build = pathlib.Path(sys.argv[1])
    status, junit = run(build, sys.argv[2:])
    if not junit.is_file():
        sys.exit(f"run_tests: ctest ended with {status}: {build / 'test.log'} says why")
    results = count(junit)
    print(summary(*results))
    sys.exit(1 if status or results[1] else 0)


if __name__ == "__main__":
    main()
