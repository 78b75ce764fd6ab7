"""Random templates from a seed: mostly well-formed, typed loosely so that many run to the end."""

import random

from template_goldens.snippets import VARIABLES  # noqa: F401, the same for these

NUMBERS = ["a", "b", "z", "neg", "f", "0", "1", "2", "-3", "2.5", "1e3", "t", "num | int", "l | sum"]
TEXTS = ["s", "e", "pad", "uni", "quo", "lines", "num", "'x'", "'a b'", "\"it's\"", "'\\n'", "'<|im_end|>'"]
LISTS = ["l", "words", "el", "nested", "[1, 2, 3]", "['a', 'b']", "(1, 'x', none)", "range(3)", "msgs"]
DICTS = ["d", "ed", "tool", "msgs[1]", "{'k': 1, 'b': [1]}", "{'role': 'user', 'content': s}"]
ANY = NUMBERS + TEXTS + LISTS + DICTS + ["n", "none", "true", "false", "undefined_thing", "d.missing", "x", "y"]

TEXT_FILTERS = [
    "upper", "lower", "title", "capitalize", "trim", "length", "list", "first", "last", "reverse", "e", "safe",
    "replace('a', 'b')", "replace('\\n', ' ')", "indent", "indent(2, true)", "string", "int", "float", "tojson",
    "default('q')", "default('q', true)", "wordcount", "truncate(6)", "center(12)", "join('.')", "sort | join",
    "unique | join", "int(3)", "count", "batch(2) | list", "e | e", "safe | e", "map('upper') | list",
    "select('in', 'abc') | list", "format", "trim('x ')", "min", "max", "forceescape", "title | trim",
]
LIST_FILTERS = [
    "length", "first", "last", "join(',')", "list", "sort", "reverse | list", "unique | list", "max", "min", "sum",
    "map('string') | list", "map('upper') | join('-')", "select | list", "reject | list", "select('odd') | list",
    "select('string') | list", "reject('none') | list", "tojson", "tojson(indent=2)", "string", "default(1)",
    "batch(2) | list", "batch(2, 'f') | list", "map(attribute='role') | list", "map(attribute=0) | list",
    "selectattr('role', 'equalto', 'user') | list", "rejectattr('role', 'in', ['user']) | list | length",
    "selectattr('n', 'defined') | map(attribute='n') | list", "sort(reverse=true)", "sum(start=1)", "dictsort",
    "groupby('role') | list", "join('|', attribute='role')", "map('tojson') | join", "items | list", "count",
    "map('length') | list", "map('default', 'z') | list", "first | default('none')", "last | string",
]
NUMBER_FILTERS = ["abs", "int", "float", "round", "round(1)", "round(0, 'ceil')", "string", "tojson", "default(0)", "string | length", "e"]
DICT_FILTERS = ["items | list", "dictsort", "length", "list", "tojson", "tojson(indent=1)", "string", "first", "default(1)", "join(',')", "tojson(sort_keys=true)", "sort"]
TESTS = [
    "defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "true", "false", "mapping",
    "iterable", "sequence", "callable", "odd", "even", "lower", "upper", "divisibleby 3", "divisibleby(2)",
    "equalto 3", "eq 'x'", "ne 1", "gt 1", "lt(2)", "in [1, 2, 'x']", "in 'abcx'", "sameas none", "escaped",
]
METHODS = [
    "upper()", "lower()", "title()", "capitalize()", "strip()", "lstrip()", "rstrip()", "strip('x d')", "split()",
    "split(' ')", "split('o', 1)", "rsplit(None, 1)", "splitlines()", "startswith('H')", "endswith(('d', 'x'))",
    "replace('o', '0')", "replace('', '.')", "find('o')", "rfind('o')", "count('l')", "isdigit()", "isupper()",
    "join(words)", "partition(' ')", "zfill(5)", "rjust(8)", "center(9, '*')", "isalnum()", "split('\\n')[0]",
]
SPACES = ["", "", " ", "\n", "\n  ", "  ", "\n\n", " \n ", "\t"]


class Maker:
    def __init__(self, rng):
        self.rng = rng
        self.names = []
        self.loops = 0

    def pick(self, items):
        return self.rng.choice(items)

    def chance(self, p):
        return self.rng.random() < p

    # Expressions by the type they probably have.

    def number(self, depth):
        if depth <= 0:
            return self.pick(NUMBERS)
        kind = self.rng.randrange(9)
        if kind < 4:
            return f"{self.number(depth - 1)} {self.pick(['+', '-', '*', '/', '//', '%'])} {self.number(depth - 1)}"
        if kind == 4:
            return f"({self.number(depth - 1)})"
        if kind == 5:
            return f"{self.number(depth - 1)} | {self.pick(NUMBER_FILTERS)}"
        if kind == 6:
            return f"{self.pick(['l', 'words', 's', 'd'])} | length"
        if kind == 7:
            return f"{self.pick(['-', '+'])}{self.pick(NUMBERS)}"
        return f"{self.pick(['2', 'a', 'f'])} ** {self.pick(['2', '3', 'z', '-1'])}"

    def text(self, depth):
        if depth <= 0:
            return self.pick(TEXTS)
        kind = self.rng.randrange(9)
        if kind == 0:
            return f"{self.text(depth - 1)} + {self.text(depth - 1)}"
        if kind == 1:
            return f"{self.any(depth - 1)} ~ {self.any(depth - 1)}"
        if kind in (2, 3):
            return f"{self.text(depth - 1)} | {self.pick(TEXT_FILTERS)}"
        if kind in (4, 5):
            return f"({self.text(depth - 1)}).{self.pick(METHODS)}"
        if kind == 6:
            return f"{self.pick(TEXTS)}{self.subscript(depth)}"
        if kind == 7:
            return f"'%s|%s' % ({self.any(depth - 1)}, {self.any(0)})"
        return f"{self.text(depth - 1)} * {self.pick(['2', '0', 'a'])}"

    def list(self, depth):
        if depth <= 0:
            return self.pick(LISTS)
        kind = self.rng.randrange(6)
        if kind == 0:
            return "[" + ", ".join(self.any(depth - 1) for _ in range(self.rng.randrange(4))) + "]"
        if kind == 1:
            return f"({self.any(depth - 1)}, {self.any(depth - 1)})"
        if kind == 2:
            return f"{self.list(depth - 1)} + {self.list(depth - 1)}"
        if kind == 3:
            return f"{self.list(depth - 1)} | {self.pick(LIST_FILTERS)}"
        if kind == 4:
            return f"{self.pick(LISTS)}{self.subscript(depth)}"
        return self.pick(["d.keys() | list", "d.items() | list", "s.split()", "range(1, 6, 2)", "msgs[1:]"])

    def dict(self, depth):
        if depth <= 0:
            return self.pick(DICTS)
        kind = self.rng.randrange(4)
        if kind == 0:
            pairs = (f"{self.pick(TEXTS + ['1', 'none', 'true'])}: {self.any(depth - 1)}" for _ in range(self.rng.randrange(3)))
            return "{" + ", ".join(pairs) + "}"
        if kind == 1:
            return f"dict({self.pick(DICTS)}, q={self.any(depth - 1)})"
        if kind == 2:
            return f"{self.pick(DICTS)} | {self.pick(DICT_FILTERS)}"
        return f"{self.pick(DICTS)}{self.attribute()}"

    def attribute(self):
        return self.pick([".x", ".y", "['x']", ".role", "['content']", ".missing", ".get('x')", ".get('q', 5)", ".zz.deep[1]", ".items()", ".function.name"])

    def subscript(self, depth):
        return self.pick(["[0]", "[-1]", "[1:]", "[:2]", "[::-1]", "[1:-1]", "[::2]", "[9]", f"[{self.number(depth - 1)}]"])

    def boolean(self, depth):
        if depth <= 0:
            return self.pick(["t", "true", "false", "z", "a", "el", "s", "n"])
        kind = self.rng.randrange(8)
        if kind == 0:
            return f"{self.number(depth - 1)} {self.pick(['==', '!=', '<', '<=', '>', '>='])} {self.number(depth - 1)}"
        if kind == 1:
            return f"{self.any(depth - 1)} {self.pick(['==', '!='])} {self.any(depth - 1)}"
        if kind == 2:
            return f"{self.any(0)} {self.pick(['in', 'not in'])} {self.pick([self.list, self.text, self.dict])(depth - 1)}"
        if kind == 3:
            return f"{self.boolean(depth - 1)} {self.pick(['and', 'or'])} {self.boolean(depth - 1)}"
        if kind == 4:
            return f"not {self.boolean(depth - 1)}"
        if kind == 5:
            return f"({self.boolean(depth - 1)})"
        return f"{self.any(0)} is {self.pick(['', 'not '])}{self.pick(TESTS)}"

    def any(self, depth):
        if depth <= 0:
            return self.pick(self.names + ANY if self.names else ANY)
        kind = self.rng.randrange(8)
        if kind == 0:
            other = f" else {self.any(depth - 1)}" if self.chance(0.7) else ""
            return f"({self.any(depth - 1)} if {self.boolean(depth - 1)}{other})"
        if kind == 1 and self.loops:
            return "loop." + self.pick(["index", "index0", "first", "last", "length", "revindex", "revindex0", "previtem", "nextitem", "cycle(1, 2)", "changed(x)", "depth"])
        make = self.pick([self.number, self.text, self.list, self.dict, self.boolean, self.text, self.list])
        return make(depth - 1)

    # Statements.

    def space(self):
        return self.pick(SPACES)

    def open(self):
        return self.pick(["{%", "{%", "{%", "{%-", "{%-", "{%+"])

    def close(self):
        return self.pick(["%}", "%}", "%}", "-%}", "-%}", "+%}"])

    def tag(self, inside):
        return f"{self.space()}{self.open()} {inside} {self.close()}{self.space()}"

    def print(self, depth):
        open_mark, close_mark = self.pick(["{{", "{{", "{{-"]), self.pick(["}}", "}}", "-}}"])
        return f"{open_mark} {self.any(depth)} {close_mark}"

    def body(self, depth):
        names = list(self.names)
        result = "".join(self.statement(depth) for _ in range(self.rng.randrange(1, 4)))
        self.names = names
        return result

    def statement(self, depth):
        kind = self.rng.randrange(16) if depth > 0 else self.rng.randrange(5)
        if kind < 1:
            return self.pick(["text", "a b", "<s>", "line\n", "  ", "{ ", "# "])
        if kind < 4:
            return self.space() + self.print(3)
        if kind == 4:
            return self.space() + self.pick(["{# c #}", "{#- c -#}", "{# c\nd #}", "{% raw %} {{ x }}\n{% endraw %}", "{#+ c +#}"])
        if kind in (5, 6):
            return self.branch(depth - 1)
        if kind in (7, 8, 9):
            return self.loop(depth - 1)
        if kind in (10, 11):
            return self.assignment(depth - 1)
        if kind == 12:
            return self.macro(depth - 1)
        if kind == 13:
            name = self.pick(["upper", "trim", "indent(1)", "replace('a', 'o')", "length", "e", "title | trim"])
            return self.tag(f"filter {name}") + self.body(depth - 1) + self.tag("endfilter")
        if kind == 14:
            return self.namespace(depth - 1)
        tag = self.pick(["generation", f"with x = {self.any(1)}", f"with w = {self.any(1)}, y = {self.any(1)}"])
        return self.tag(tag) + self.body(depth - 1) + self.tag("end" + tag.split()[0])

    def branch(self, depth):
        text = self.tag(f"if {self.boolean(2)}") + self.body(depth)
        if self.chance(0.3):
            text += self.tag(f"elif {self.boolean(2)}") + self.body(depth)
        if self.chance(0.5):
            text += self.tag("else") + self.body(depth)
        return text + self.tag("endif")

    def loop(self, depth):
        pairs = self.chance(0.2)
        names = ["k", "v"] if pairs else [self.pick(["x", "y", "item"])]
        source = self.pick(["d.items()", "d | items", "ed.items()", "d | dictsort", "[[1, 2], 'ab']"]) if pairs else self.pick([self.list, self.list, self.text, self.dict])(1)
        old, self.names = self.names, self.names + names
        test = f" if {self.boolean(1)}" if self.chance(0.25) else ""
        text = self.tag(f"for {', '.join(names)} in {source}{test}")
        self.loops += 1
        text += self.body(depth)
        if self.chance(0.2):
            text += self.tag(f"if {self.boolean(1)}") + self.tag(self.pick(["break", "continue"])) + self.tag("endif") + self.body(0)
        self.loops -= 1
        self.names = old
        if self.chance(0.2):
            text += self.tag("else") + self.body(depth)
        return text + self.tag("endfor")

    def assignment(self, depth):
        name = self.pick(["x", "y", "v1", "v2"])
        if self.chance(0.25):
            text = self.tag(f"set {name}{self.pick(['', ' | upper', ' | trim | length'])}") + self.body(depth) + self.tag("endset")
        else:
            text = self.tag(f"set {name} = {self.any(2)}")
        self.names = self.names + [name]
        return text

    def namespace(self, depth):
        text = self.tag(f"set ns = namespace(c={self.number(0)}, s={self.text(0)})")
        old, self.names = self.names, self.names + ["ns.c", "ns.s"]
        text += self.tag(f"for x in {self.list(1)}")
        self.loops += 1
        text += self.tag(self.pick(["set ns.c = ns.c + 1", "set ns.s = ns.s ~ x", f"set ns.c = {self.any(1)}"])) + self.body(depth)
        self.loops -= 1
        text += self.tag("endfor") + "{{ ns.c }}/{{ ns.s }}"
        self.names = old
        return text

    def macro(self, depth):
        loops, self.loops = self.loops, 0
        old, self.names = self.names, self.names + ["p", "q"]
        text = self.tag(f"macro m(p, q={self.any(1)})") + self.body(depth)
        if self.chance(0.3):
            text += "{{ varargs }}"
        if self.chance(0.3):
            text += "{{ kwargs }}"
        call_block = self.chance(0.3)
        if call_block:
            text += "{{ caller(1) }}"
        text += self.tag("endmacro")
        self.loops, self.names = loops, old
        arguments = self.pick(["1", "s, 2", "p=a", "1, q=l", "", "*l", "1, 2, 3", "q=1", "**{'p': 1}", "1, r=2"])
        if call_block:
            return text + self.tag(f"call(c) m({arguments})") + self.body(0) + self.tag("endcall")
        return text + f"{{{{ m({arguments}) }}}}"


def spoil(rng, text):
    """Deletes or repeats a piece, so that syntax errors are met too."""
    at = rng.randrange(len(text) + 1)
    length = rng.randrange(1, 4)
    return text[:at] + (text[at + length :] if rng.random() < 0.6 else text[at : at + length] * 2 + text[at + length :])


def templates(count, seed):
    rng = random.Random(seed)
    result = []
    while len(result) < count:
        maker = Maker(rng)
        text = maker.body(2) if rng.random() < 0.5 else "{{ " + maker.any(4) + " }}"
        if rng.random() < 0.15:
            text = spoil(rng, text)
        if len(text) < 700:
            result.append(text)
    return result
