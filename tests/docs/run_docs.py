#!/usr/bin/env python3
"""Runs the commands that a page of the documentation shows: run_docs.py PAGE.md --braid PROGRAM

A fenced block whose language is `console` holds commands, each a line that begins with "$ " (a backslash at its end
continues it), and below each command what it prints, standard output and standard error together. Every command runs
in bash, in one folder for the page: `braid` and the Python that runs this script, as `python3`, are on the PATH, $MODEL
and model.gguf are the demo model, and configs, docs, examples, tests and tools of the source are there. A command has
to end with status 0 and print the lines shown, in which

  - any number stands for any other number, and a run of spaces or dashes for any other;
  - "..." stands for anything in a line, and alone in its line for any lines;
  - empty lines do not count, nor does the line that says that other programs use the cores.

A command that ends because the next in its pipe wants no more (status 141) did not fail. GPUs are hidden.

A block that shows no output compares none. Words behind `console` change this:

  exact       numbers are compared, too: the output does not depend on the machine
  exit=N      the last command of the block ends with status N
  varies      what is printed is an example and not compared: text that a model writes
  terminal    each command runs in a terminal, at which somebody types Ctrl-D
  server      the first command runs beside the others until they have ended, then gets SIGTERM; a port that is free
              stands for port 8000
  mpirun      not run where mpirun, or PMIx in this build, is missing
  gpu, root, network, clone
              not run: it needs a GPU, an administrator, the network, or a whole clone of the source

A `python` block is a program of its own, which has to end with status 0; `network` behind it has the same meaning.
A block without a language, an indented block and a word that is not known are errors, so that no command escapes.
Ends with 0, 1 if a command failed, 77 (skipped) if the page needs a model and --model names none.
"""

import argparse
import contextlib
import os
import pathlib
import pty
import re
import select
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

NOT_RUN = {"gpu": "needs a GPU", "root": "needs an administrator", "network": "needs the network",
           "clone": "needs a whole clone"}
RUN = {"exact", "varies", "terminal", "server", "mpirun"}
TOOLS = {"server": "curl", "mpirun": "mpirun"}
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
        self.serves = False

    def why_not_run(self):
        missing = (f"needs {TOOLS[word]}" for word in self.words if word in TOOLS and not shutil.which(TOOLS[word]))
        return next((NOT_RUN[word] for word in self.words if word in NOT_RUN), None) or next(missing, None)


def words_of(info, line):
    words = info.split()[1:]
    for word in words:
        if word not in NOT_RUN and word not in RUN and not re.fullmatch(r"exit=\d+", word):
            raise PageError(f"line {line}: a block with the word '{word}', known are exit=N, "
                            + ", ".join(sorted(RUN | set(NOT_RUN))))
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
    commands[0].serves = "server" in words
    for word in words:
        if word.startswith("exit="):
            commands[-1].status = int(word[5:])
    return commands


def python_block(lines, first, words):
    return [Command(first, "python3 - <<'END_OF_BLOCK'\n" + "\n".join([*lines, "END_OF_BLOCK"]), words)]


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
            if read := {"console": block_commands, "python": python_block}.get(info.split()[0]):
                commands += read(block, first, words_of(info, first - 1))
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
        python = folder / "bin" / "python3"  # a link would leave its virtual environment
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        python.chmod(0o755)
        self.environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ.get('PATH', '')}", "HOME": str(folder),
                            "XDG_CACHE_HOME": str(folder / ".cache"), "LC_ALL": "C.UTF-8", "COLUMNS": "100",
                            "CUDA_VISIBLE_DEVICES": "", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
        if model:
            models = folder / ".cache" / "braid" / "models"
            models.mkdir(parents=True)
            (models / model.name).symlink_to(model)
            self.environment["MODEL"] = str(models / model.name)
            (folder / "model.gguf").symlink_to(model)
        if build:  # what `make install PREFIX=~/braid` leaves
            done = subprocess.run(["cmake", "--install", build, "--prefix", folder / "braid"], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, timeout=DEADLINE_S)
            if done.returncode != 0:
                sys.exit(f"cmake --install {build} ended with {done.returncode}:\n{done.stdout[-1000:]}")

    def lacks(self, command):
        """What this build cannot do."""
        if "mpirun" not in command.words:
            return None
        version = subprocess.run([self.folder / "bin" / "braid", "--version"], capture_output=True, text=True)
        return None if "PMIx" in version.stdout else "needs a build with PMIx"

    def start(self, text, **options):
        return subprocess.Popen(["bash", "-o", "pipefail", "-c", text], cwd=self.folder, env=self.environment,
                                start_new_session=True, **options)

    def run(self, command, port=None):
        """(what is wrong or None, what was printed)"""
        text = command.text.replace(":8000", f":{port}") if port else command.text
        reader, writer = pty.openpty() if "terminal" in command.words else (None, subprocess.PIPE)
        with self.start(text, stdin=subprocess.DEVNULL if reader is None else writer, stdout=writer,
                        stderr=subprocess.STDOUT) as done:
            late = threading.Timer(DEADLINE_S, os.killpg, (done.pid, signal.SIGKILL))  # with all that it started
            late.start()
            output = done.communicate()[0] if reader is None else at_terminal(reader, writer)
            done.wait()
            ended = late.is_alive()
            late.cancel()
        printed = output.decode("utf-8", "replace")
        if not ended:
            return f"did not end in {DEADLINE_S} s", printed
        if done.returncode != command.status and not (done.returncode == BROKEN_PIPE and command.status == 0):
            return f"ended with {done.returncode}, wanted {command.status}", printed
        if not command.shown or "varies" in command.words:
            return None, printed
        return difference(command.shown, printed.splitlines(), "exact" in command.words), printed

    @contextlib.contextmanager
    def serving(self, command):
        """The port at which the server answers, until the body has ended."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        log = self.folder / "server.log"
        with open(log, "wb") as out, self.start(f"exec {command.text} --port {port}", stdin=subprocess.DEVNULL,
                                                stdout=out, stderr=subprocess.STDOUT) as server:
            try:
                wait_for_health(port, server)
                yield port
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(server.pid, signal.SIGTERM)
                try:
                    server.wait(DEADLINE_S)
                except subprocess.TimeoutExpired:
                    os.killpg(server.pid, signal.SIGKILL)
        if server.returncode != 0:
            sys.exit(f"{command.text} ended with {server.returncode}:\n{log.read_text()}")


def at_terminal(reader, writer):
    """What a program shows that gets Ctrl-D whenever it waits behind a prompt, until it has left the terminal."""
    os.close(writer)
    shown = b""
    with contextlib.suppress(OSError):  # EIO: nobody holds the other end
        while True:
            if select.select([reader], [], [], 0.3)[0]:
                shown += os.read(reader, 4096)
            elif b"> " in shown:
                os.write(reader, b"\x04")
    os.close(reader)
    return shown


def wait_for_health(port, server):
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline and server.poll() is None:
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return
        time.sleep(0.05)


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
    needs_model = any(re.search(r"\$MODEL|model\.gguf", c.text) for c in commands if not c.why_not_run())
    if needs_model and not (model and model.is_file()):
        print("Skipped\nno demo model: make model fetches it")
        sys.exit(SKIPPED)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="braid_docs_"))
    failed = ran = 0
    try:
        place = Place(folder, args.braid.resolve(), model, source, args.build if "~/braid" in text else None)
        with contextlib.ExitStack() as servers:
            port = None
            for command in commands:
                where = f"{args.page.name}:{command.line}: {command.text}"
                if "server" not in command.words or command.serves:
                    servers.close()
                    port = None
                if why := command.why_not_run() or place.lacks(command):
                    print(f"not run, {why}: {where}")
                    continue
                ran += 1
                if command.serves:
                    port = servers.enter_context(place.serving(command))
                    print(f"serves: {where}")
                    continue
                wrong, printed = place.run(command, port)
                failed += wrong is not None
                print(f"FAILED: {where}\n  {wrong}\n{printed}" if wrong else f"ran: {where}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{ran} commands ran, {failed} failed, {len(commands) - ran} were not run")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
