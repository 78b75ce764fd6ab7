#!/usr/bin/env python3
"""Asks a server for answers that fulfil random schemas and regular expressions, and checks each answer.

`braid serve` runs at --url. Schemas come from a seed; answers are sampled at temperature 1, so that masks alone
keep them valid. Two judges look at an answer: jsonschema (formats, too) or Python's `re`, and llguidance, a second
engine of grammars, which has to accept each byte. Counts answers that are whole, cut by `length` (where llguidance has
to accept what came), and refused with 400; prints each wrong answer and ends with 1 if there is one.

    python3 tools/check_grammars.py --url http://127.0.0.1:8000 --schemas 400 --regexes 100
"""

import argparse
import collections
import concurrent.futures
import json
import random
import re
import sys
import urllib.error
import urllib.request

import jsonschema
import llguidance

FORMATS = ["date", "time", "date-time", "uuid", "ipv4", "email", "uri", "hostname"]
PATTERNS = [r"^[a-z]{2,6}$", r"\d{3}-\d{4}", r"^(foo|bar)+$", r"^[A-Z]\w*$", r"x", r"^[^a-m]{1,4}$", r"^\S+ \S+$"]
PIECES = ["a", "[a-f]", r"\d", r"\w", "(?:xy|z)", "[^a-z\\s]", r"\.", "(b|cc)", "q{2}", r"\s"]
TIMES = ["", "", "?", "+", "{1,3}", "{2}"]


def schema(rng, depth=0):
    """A random schema of the words that docs/server.md lists."""
    kinds = ["string", "integer", "number", "boolean", "enum", "const", "length", "pattern", "format", "range"]
    kinds += ["object", "object", "array", "anyOf", "oneOf", "tuple", "map", "nullable"] if depth < 3 else []
    kind = rng.choice(["object", "object", "array", "anyOf"]) if depth == 0 and rng.random() < 0.7 else rng.choice(kinds)
    inner = lambda: schema(rng, depth + 1)
    if kind in ("string", "integer", "number", "boolean"):
        return {"type": kind}
    if kind == "enum":
        return {"enum": rng.sample(["red", "green", 'q"uote', 1, 2.5, None, True, [1], {"k": "v"}, "é\n"], 3)}
    if kind == "const":
        return {"const": rng.choice(["fixed", 7, None, {"a": [1, 2]}])}
    if kind == "length":
        low = rng.randrange(4)
        return {"type": "string", "minLength": low, "maxLength": low + rng.randrange(8)}
    if kind == "pattern":
        return {"type": "string", "pattern": rng.choice(PATTERNS)}
    if kind == "format":
        return {"type": "string", "format": rng.choice(FORMATS)}
    if kind == "range":
        low = rng.randrange(-50, 50)
        if rng.random() < 0.5:
            return {"type": "integer", "minimum": low, "exclusiveMaximum": low + rng.randrange(1, 90)}
        return {"type": "number", "minimum": low / 4, "maximum": low / 4 + rng.randrange(9)}
    if kind == "object":
        names = rng.sample(["name", "id", "tags", "when", "größe", "x y", "n"], rng.randrange(1, 5))
        made = {"type": "object", "properties": {name: inner() for name in names},
                "required": rng.sample(names, rng.randrange(len(names) + 1))}
        if rng.random() < 0.6:
            made["additionalProperties"] = False
        return made
    if kind == "map":
        return {"type": "object", "additionalProperties": inner(), "maxProperties": rng.randrange(1, 4)}
    if kind == "array":
        low = rng.randrange(3)
        return {"type": "array", "items": inner(), "minItems": low, "maxItems": low + rng.randrange(1, 4)}
    if kind == "tuple":
        return {"type": "array", "prefixItems": [inner(), inner()], "items": False, "minItems": 2}
    if kind == "nullable":
        return {"type": [rng.choice(["string", "integer", "boolean"]), "null"]}
    if kind == "anyOf":
        return {"anyOf": [inner(), inner()]}
    return {"oneOf": [{"type": "object", "properties": {"kind": {"const": k}, "v": inner()},
                       "required": ["kind", "v"], "additionalProperties": False} for k in "ab"]}


def regex(rng):
    part = lambda: "".join(rng.choice(PIECES) + rng.choice(TIMES) for _ in range(rng.randrange(1, 5)))
    return part() if rng.random() < 0.7 else f"(?:{part()}|{part()})"


def ask(url, wanted, seed):
    """The status, the answer's text and its finish_reason."""
    body = {"messages": [{"role": "user", "content": "Give an example."}], "temperature": 1, "seed": seed,
            "max_tokens": 160, **wanted}
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=600) as reply:
            choice = json.load(reply)["choices"][0]
            return 200, choice["message"]["content"], choice["finish_reason"]
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["error"]["message"], ""


OPTIONS = {"whitespace_flexible": True, "json_allow_general_unicode_escapes": True}


def misjudged(schema):
    """Whether llguidance 1.9 refuses right answers: 0.7 where the bound of a number is 0.75, -4.50 where it is -4.5."""
    if isinstance(schema, list):
        return any(map(misjudged, schema))
    if not isinstance(schema, dict):
        return False
    bounds = [schema.get(name) for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")]
    return any(isinstance(bound, float) and bound % 1 != 0 for bound in bounds) or any(map(misjudged, schema.values()))


class SecondEngine:
    """llguidance over single bytes."""

    def __init__(self):
        self.tokenizer = llguidance.LLTokenizer("byte")

    def accepts(self, kind, text, answer, whole):
        if kind == "schema":
            if misjudged(json.loads(text)):
                return None
            grammar = llguidance.LLMatcher.grammar_from_json_schema(text, defaults=OPTIONS)
            answer = re.sub(r"(\\\\)|\\/", lambda m: m[1] or "/", answer)  # it does not know the escape
        else:
            grammar = llguidance.LLMatcher.grammar_from_regex(text)
        matcher = llguidance.LLMatcher(self.tokenizer, grammar)
        if matcher.is_error():
            return None
        data = list(answer.encode())
        if matcher.validate_tokens(data) != len(data):
            return False
        return not whole or (matcher.consume_tokens(data) and matcher.is_accepting())


def valid(kind, wanted, answer):
    if kind == "regex":
        return re.fullmatch(wanted, answer, re.ASCII) is not None
    try:
        value = json.loads(answer)
    except ValueError:
        return False
    return jsonschema.Draft202012Validator(
        wanted, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER).is_valid(value)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--schemas", type=int, default=400)
    parser.add_argument("--regexes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=16)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    trials = [("schema", schema(rng)) for _ in range(args.schemas)]
    trials += [("regex", regex(rng)) for _ in range(args.regexes)]
    engine, counts, wrong = SecondEngine(), collections.Counter(), 0

    def run(index):
        kind, wanted = trials[index]
        field = ({"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": wanted}}}
                 if kind == "schema" else {"structured_outputs": {"regex": wanted}})
        return index, ask(args.url, field, index)

    with concurrent.futures.ThreadPoolExecutor(args.clients) as pool:
        for index, (status, answer, reason) in pool.map(run, range(len(trials))):
            kind, wanted = trials[index]
            text = json.dumps(wanted) if kind == "schema" else wanted
            if status != 200:
                counts[f"{kind} refused"] += 1
                print(f"{index}: {status} {answer}: {text}")
                continue
            whole = reason == "stop"
            counts[f"{kind} {'whole' if whole else 'cut'}"] += 1
            first = not whole or valid(kind, wanted, answer)
            second = engine.accepts(kind, text, answer, whole)
            counts["without llguidance"] += second is None
            if not first or second is False:
                wrong += 1
                print(f"{index}: WRONG ({'jsonschema' if not first else 'llguidance'}): {text}\n  {answer!r}")
    print(", ".join(f"{name} {count}" for name, count in sorted(counts.items())), f"; wrong {wrong}", sep="")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
