#!/usr/bin/env python3
"""Runs the commands that a page of the documentation shows: run_docs.py PAGE.md --braid PROGRAM

A fenced block whose language is `console` holds commands, each a line that begins with "$ " (a backslash at its end
continues it), and below each command what it prints, standard output and standard error together. Every command runs
in bash, in one folder for the page: `braid` is on the PATH, $MODEL is the demo model, and configs, docs, examples,
tests and tools of the source are there. A command has to end with status 0 and print the lines shown, in which

  - any number stands for any other number, and a run of spaces or dashes for any other;
  - "..." stands for anything in a line, and alone in its line for any lines;
  - empty lines do not count, nor does the line that says that other programs use the cores.

A command that ends because the next in its pipe wants no more (status 141) did not fail. GPUs are hidden.

A block that shows no output compares none. Words behind `console` change this:

  exact       numbers are compared, too: the output does not depend on the machine
  exit=N      the last command of the block ends with status N
  varies      what is printed is an example and not compared: text that a model writes
  gpu, root, network, terminal, clone
              not run: it needs a GPU, an administrator, the network, a person at a terminal, or a whole clone of
              the source

A block without a language, an indented block and a word that is not known are errors, so that no command escapes.
Ends with 0, 1 if a command failed, 77 (skipped) if the page needs a model and --model names none.
"""

import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

NOT_RUN = {"gpu": "needs a GPU", "root": "needs an administrator", "network": "needs the network",
           "terminal": "needs a terminal", "clone": "needs a whole clone"}
DEADLINE_S = 300  # of a command
BROKEN_PIPE = 141
BUSY = "braid: other programs use the cores"
SKIPPED = 77
NUMBER = r"[-+]?[0-9](?:[0-9,.]*[0-9])?(?:e[-+]?[0-9]+)?"
PIECE = re.compile(rf"(?P<any>\.\.\.)|(?P<hex>\b[0-9a-f]{{16}}\b)|(?P<number>{NUMBER})|(?P<space>\s+)|(?P<rule>-{{2,}})")


class PageError(Exception):
    """A page that cannot be read as described above."""


class Command:
    def __init__(self, line, text, words):
        self.line, self.text, self.words = line, text, words
        self.shown = []  # lines of output below it
        self.status = 0

    def why_not_run(self):
        return next((NOT_RUN[word] for word in self.words if word in NOT_RUN), None)


def words_of(info, line):
    words = info.split()[1:]
    for word in words:
        if word not in NOT_RUN and word not in ("exact", "varies") and not re.fullmatch(r"exit=\d+", word):
            raise PageError(f"line {line}: console block with the word '{word}', known are exact, varies, exit=N, "
                            + ", ".join(NOT_RUN))
    return words


def block_commands(lines, first, words):
    """Commands of one block whose lines begin at line `first` of the page."""
    commands, continued = [], False
    for number, line in enumerate(lines, first):
        if continued:
            commands[-1].text += "\n" + line
        elif line.startswith("$ "):
            commands.append(Command(number, line[2:], words))
        elif commands:
            commands[-1].shown.append(line)
        else:
            raise PageError(f"line {number}: a console block begins with a command, '$ ...'")
        continued = line.endswith("\\") and (continued or line.startswith("$ "))
    if not commands:
        raise PageError(f"line {first}: a console block without a command")
    for word in words:
        if word.startswith("exit="):
            commands[-1].status = int(word[5:])
    return commands


def page_commands(text):
    """Every command of a page, in order."""
    commands, block, info, first, fence = [], [], None, 0, ""
    in_list = blank = False
    for number, line in enumerate(text.splitlines(), 1):
        opened = re.match(r"(\s*)(```+|~~~+)(.*)$", line)
        if info is None and opened:
            fence, info, first, block = opened[2], opened[3].strip(), number + 1, []
            indent = opened[1]
            if not info:
                raise PageError(f"line {number}: a block without a language: console for commands, else text")
        elif info is not None and line.strip() == fence:
            if info.split()[0] == "console":
                commands += block_commands(block, first, words_of(info, first - 1))
            info = None
        elif info is not None:
            block.append(line[len(indent):] if line.startswith(indent) else line)
        else:
            if line.startswith("    ") and blank and not in_list:
                raise PageError(f"line {number}: an indented block: fence it, so that it can be run")
            if line.strip():
                in_list = bool(re.match(r"\s*([-*]|\d+\.) ", line)) or (in_list and line.startswith(" "))
        blank = not line.strip()
    if info is not None:
        raise PageError(f"line {first - 1}: a block that does not end")
    return commands


def pattern_of(line, exact):
    """The regular expression for a line of output as a page shows it."""
    pattern, at = "", 0
    for piece in PIECE.finditer(line.strip()):
        pattern += re.escape(line.strip()[at:piece.start()])
        at = piece.end()
        kind = piece.lastgroup
        if kind == "any":
            pattern += ".*"
        elif kind == "space":
            pattern += r"\s+"
        elif kind == "rule":
            pattern += "-{2,}"
        elif exact:
            pattern += re.escape(piece[0])
        else:
            pattern += {"hex": "[0-9a-f]{16}", "number": NUMBER}[kind]
    return re.compile(pattern + re.escape(line.strip()[at:]))


def difference(shown, printed, exact):
    """Why `printed` is not what `shown` says, in a line; None where it is."""
    shown = [line for line in shown if line.strip()]
    printed = [line for line in printed if line.strip() and not line.startswith(BUSY)]
    at, free = 0, False  # free: any lines may come before the next
    for line in shown:
        if line.strip() == "...":
            free = True
            continue
        pattern = pattern_of(line, exact)
        while at < len(printed) and not pattern.fullmatch(printed[at].strip()):
            if not free:
                return f"wanted '{line.strip()}', got '{printed[at].strip()}'"
            at += 1
        if at == len(printed):
            return f"wanted '{line.strip()}', which was not printed"
        at, free = at + 1, False
    if at < len(printed) and not free:
        return f"'{printed[at].strip()}' was printed and is not shown"
    return None


class Place:
    """The folder in which a page's commands run, and their environment."""

    def __init__(self, folder, braid, model, source, build):
        self.folder = folder
        for name in ("configs", "docs", "examples", "tests", "tools"):
            (folder / name).symlink_to(source / name)
        (folder / "bin").mkdir()
        (folder / "bin" / "braid").symlink_to(braid)
        self.environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ.get('PATH', '')}", "HOME": str(folder),
                            "XDG_CACHE_HOME": str(folder / ".cache"), "LC_ALL": "C.UTF-8", "COLUMNS": "100",
                            "CUDA_VISIBLE_DEVICES": ""}
        if model:
            models = folder / ".cache" / "braid" / "models"
            models.mkdir(parents=True)
            (models / model.name).symlink_to(model)
            self.environment["MODEL"] = str(models / model.name)
        if build:  # what `make install PREFIX=~/braid` leaves
            done = subprocess.run(["cmake", "--install", build, "--prefix", folder / "braid"], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, timeout=DEADLINE_S)
            if done.returncode != 0:
                sys.exit(f"cmake --install {build} ended with {done.returncode}:\n{done.stdout[-1000:]}")

    def run(self, command):
        """(what is wrong or None, what was printed)"""
        with subprocess.Popen(["bash", "-o", "pipefail", "-c", command.text], cwd=self.folder, env=self.environment,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              start_new_session=True) as done:
            try:
                output = done.communicate(timeout=DEADLINE_S)[0]
            except subprocess.TimeoutExpired:
                os.killpg(done.pid, signal.SIGKILL)  # with all that it started
                return f"did not end in {DEADLINE_S} s", done.communicate()[0].decode("utf-8", "replace")
        printed = output.decode("utf-8", "replace")
        if done.returncode != command.status and not (done.returncode == BROKEN_PIPE and command.status == 0):
            return f"ended with {done.returncode}, wanted {command.status}", printed
        if not command.shown or "varies" in command.words:
            return None, printed
        return difference(command.shown, printed.splitlines(), "exact" in command.words), printed


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("page", type=pathlib.Path)
    parser.add_argument("--braid", type=pathlib.Path, required=True, help="the program")
    parser.add_argument("--model", default=os.environ.get("BRAID_TEST_MODEL", ""),
                        help="the demo model; BRAID_TEST_MODEL unless said")
    parser.add_argument("--build", help="a build that is installed for pages that speak of ~/braid")
    args = parser.parse_args(arguments)
    source = pathlib.Path(__file__).resolve().parents[2]
    text = args.page.read_text()
    try:
        commands = page_commands(text)
    except PageError as error:
        sys.exit(f"{args.page}: {error}")
    model = pathlib.Path(args.model).resolve() if args.model else None
    if not (model and model.is_file()) and any("$MODEL" in c.text for c in commands if not c.why_not_run()):
        print("Skipped\nno demo model: make model fetches it")
        sys.exit(SKIPPED)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="braid_docs_"))
    failed = ran = 0
    try:
        place = Place(folder, args.braid.resolve(), model, source, args.build if "~/braid" in text else None)
        for command in commands:
            where = f"{args.page.name}:{command.line}: {command.text}"
            if why := command.why_not_run():
                print(f"not run, {why}: {where}")
                continue
            wrong, printed = place.run(command)
            ran += 1
            failed += wrong is not None
            print(f"FAILED: {where}\n  {wrong}\n{printed}" if wrong else f"ran: {where}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{ran} commands ran, {failed} failed, {len(commands) - ran} were not run")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
