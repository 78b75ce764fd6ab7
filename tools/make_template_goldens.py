#!/usr/bin/env python3
"""Writes the expected outputs of the chat template tests with Python's jinja2.

    make_template_goldens.py [--random N] [--seed S]

Reads tests/golden/templates/*.jinja and the tables in tools/template_goldens, and writes
tests/golden/templates/{chats,snippets,random}.json. `random` holds N templates made from the seed;
a large N is a differential test of the interpreter (run test_unit_io_jinja after it).
The environment is the one that Hugging Face's apply_chat_template uses.
"""

import argparse
import copy
import datetime
import json
import pathlib
import re
import sys

try:
    import jinja2
    import jinja2.ext
    import jinja2.nodes
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError as error:
    sys.exit(f"make_template_goldens: needs the package jinja2 ({error})")

from template_goldens import chats, randomized, snippets

sys.dont_write_bytecode = True
FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "templates"
NOW = datetime.datetime(2024, 7, 26, 13, 5, 9)


class Generation(jinja2.ext.Extension):
    """{% generation %}: a block that is its own function, whose text is passed through."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_body")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


def render(env, source, variables):
    """The output, or None and the error's text."""
    try:
        return env.from_string(source).render(**copy.deepcopy(variables)), None
    except Exception as error:  # a template may raise anything
        return None, f"{type(error).__name__}: {error}"


def write(name, data, lines):
    """One element of `lines` per line, so that changes can be read."""
    body = ",\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    head = json.dumps(data, ensure_ascii=False)[1:-1]
    key = "cases"
    text = "{" + (head + ",\n" if head else "") + f'"{key}": [\n{body}\n]}}\n'
    (FOLDER / name).write_text(text, encoding="utf-8")
    print(f"{name}: {len(lines)} cases, {len(text)} bytes")


def write_chats(env):
    cases = []
    for file, name, tools, more in chats.cases():
        variables = chats.variables(chats.CONVERSATIONS[name], tools, more)
        output, error = render(env, (FOLDER / file).read_text(encoding="utf-8"), variables)
        case = {"file": file, "messages": name, "tools": tools, "more": more}
        case["error" if output is None else "output"] = error if output is None else output
        cases.append(case)
    unused = {p.name for p in FOLDER.glob("*.jinja")} - {case["file"] for case in cases}
    assert not unused, unused
    shared = {"messages": chats.CONVERSATIONS, "tools": chats.TOOLS, "tokens": chats.TOKENS}
    write("chats.json", shared, cases)


# Where Python prints an address or the like, and the interpreter may print something else.
UNSTABLE = re.compile(r"<(function|built-in|bound|class|generator|Macro|Loop|list_rev|dict_rev|jinja)| at 0x")


def write_table(env, name, variables, sources):
    cases = []
    for source in sources:
        output, _ = render(env, source, variables)
        if output is None or not UNSTABLE.search(output):
            cases.append([source, output])  # a null output stands for an error
    write(name, {"variables": variables}, cases)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--random", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    env = environment()
    write_chats(env)
    write_table(env, "snippets.json", snippets.VARIABLES, snippets.SNIPPETS)
    random_sources = randomized.templates(arguments.random, arguments.seed)
    write_table(env, "random.json", randomized.VARIABLES, random_sources)


if __name__ == "__main__":
    main()
