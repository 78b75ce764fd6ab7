#!/usr/bin/env python3
"""Compares Braid's masks of tokens with llguidance's, token by token, on random walks.

`build/release/bin/grammar_masks` (target grammar_masks) prints Braid's masks for a model's vocabulary. The schemas and
regular expressions are those of tools/check_grammars.py. llguidance gets the schema as Braid rewrites it for its own
compiler, so that both engines know the same words, and the same blanks between tokens. Each step compares the bits of
all tokens, and goes on with a random token that both engines allow. Differences are counted by their kind, with one
example each; a kind that is not known ends with 1.

    ninja -C build/release grammar_masks
    python3 tools/compare_masks.py -m MODEL --schemas 400 --regexes 100
"""

import argparse
import collections
import json
import random
import re
import subprocess
import sys

import llguidance
import llguidance.numpy
import numpy

import check_grammars

# What JSON leaves open, as Braid has it.
OPTIONS = {"whitespace_flexible": True, "whitespace_pattern": r"[\x20\x0A\x0D\x09]{1,8}",
           "json_allow_general_unicode_escapes": True}
# Tokens as they come, not only those into which a forced text is divided.
HEAD = '%llguidance {"no_forcing": true}\n'


class Vocabulary:
    """What llguidance asks of a tokenizer."""

    def __init__(self, texts, ends):
        self.tokens = [text if text else b"\xff[%d]" % id for id, text in enumerate(texts)]
        self.special_token_ids = [id for id, text in enumerate(texts) if not text]
        self.eos_token_id, self.bos_token_id = ends[0], None
        self.by_text = {text: id for id, text in enumerate(texts) if text}
        self.longest = max(map(len, self.by_text))

    def __call__(self, text):
        data, ids, at = text if isinstance(text, bytes) else text.encode(), [], 0
        while at < len(data):
            size = next(n for n in range(min(self.longest, len(data) - at), 0, -1) if data[at:at + n] in self.by_text)
            ids.append(self.by_text[data[at:at + size]])
            at += size
        return ids


class Masks:
    """Braid's masks, from its process."""

    def __init__(self, program, model, braid):
        self.process = subprocess.Popen([program, model, braid], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        head = json.loads(self.process.stdout.readline())
        self.texts, self.ends = [bytes.fromhex(text) for text in head["texts"]], head["ends"]

    def ask(self, **line):
        self.process.stdin.write(json.dumps(line) + "\n")
        self.process.stdin.flush()
        reply = json.loads(self.process.stdout.readline())
        if "mask" in reply:
            words = numpy.frombuffer(bytes.fromhex(reply["mask"]), dtype=numpy.uint8)
            reply["mask"] = numpy.unpackbits(words, bitorder="little")[:len(self.texts)].astype(bool)
        return reply


KNOWN = {
    "Braid alone: digits at a bound with a fraction, some of which llguidance refuses",
    "Braid alone: U+007F, which JSON allows in texts",
    "Braid alone: the escape \\/, which llguidance does not know",
    "Braid alone: escapes of half a surrogate pair, which JSON's grammar allows",
    "llguidance alone: blanks inside const and enum, which Braid writes in one way",
    "llguidance alone: escapes in texts with a length, pattern or format, which Braid writes plainly",
    "llguidance alone: -0 as an integer",
    "llguidance alone: digits behind the sixth place of a number with bounds",
}
CONTAINERS = re.compile(r'"const": [{[]|"enum": \[[^"]*?[{[]')


def kind_of(wanted, text, token, ours):
    """Why the engines differ on a token behind a text."""
    if ours and b"\x7f" in token:
        return "Braid alone: U+007F, which JSON allows in texts"
    if ours and token.strip(b"0123456789.eE+-") == b"" and check_grammars.misjudged(wanted):
        return "Braid alone: digits at a bound with a fraction, some of which llguidance refuses"
    if ours and text.endswith(b"\\") and token.startswith(b"/"):
        return "Braid alone: the escape \\/, which llguidance does not know"
    if ours and re.search(rb"\\ud[89a-f][0-9a-f]*$", text + token, re.IGNORECASE):
        return "Braid alone: escapes of half a surrogate pair, which JSON's grammar allows"
    if ours:
        return "Braid alone: other text"
    if token.isdigit() and re.search(rb"\.\d{6,}$", text) and check_grammars.misjudged(wanted):
        return "llguidance alone: digits behind the sixth place of a number with bounds"
    if b"\\" in token:
        return "llguidance alone: escapes in texts with a length, pattern or format, which Braid writes plainly"
    if token == b"0" and text.endswith(b"-") or token in (b"-0", b"-00"):
        return "llguidance alone: -0 as an integer"
    # Behind a blank that stands in one, whatever goes on with the constant.
    behind = re.search(rb'[{\[,:]\s+"?$', text) and CONTAINERS.search(json.dumps(wanted))
    if token.strip(b" \n\t\r") != token or behind:
        return "llguidance alone: blanks inside const and enum, which Braid writes in one way"
    return "llguidance alone: other text"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--schemas", type=int, default=400)
    parser.add_argument("--regexes", type=int, default=100)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    masks = Masks(f"{args.bin}/grammar_masks", args.model, f"{args.bin}/braid")
    vocabulary = Vocabulary(masks.texts, masks.ends)
    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(vocabulary), eos_token=masks.ends)
    rng = random.Random(args.seed)
    trials = [("schema", check_grammars.schema(rng)) for _ in range(args.schemas)]
    trials += [("regex", check_grammars.regex(rng)) for _ in range(args.regexes)]
    counts, kinds, examples = collections.Counter(), collections.Counter(), {}
    for index, (kind, wanted) in enumerate(trials):
        reply = masks.ask(**{kind: wanted})
        if "error" in reply:
            counts["refused by Braid"] += 1
            continue
        if kind == "schema":
            grammar = HEAD + "start: %json " + json.dumps({**reply["schema"], "x-guidance": OPTIONS})
        else:
            grammar = HEAD + "start: /" + reply["regex"].replace("/", r"\/") + "/"
        grammar = llguidance.LLMatcher.grammar_from_lark(grammar)
        matcher = llguidance.LLMatcher(tokenizer, grammar)
        if matcher.is_error():
            counts["unknown to llguidance"] += 1
            if args.verbose:
                print(index, matcher.get_error()[:200], json.dumps(wanted))
            continue
        counts["compared"] += 1
        same, text = True, b""
        other = llguidance.numpy.allocate_token_bitmask(1, len(masks.texts))
        for _ in range(args.steps):
            llguidance.numpy.fill_next_token_bitmask(matcher, other)
            theirs = numpy.unpackbits(other.view(numpy.uint8), bitorder="little")[:len(masks.texts)].astype(bool)
            ours = reply["mask"]
            counts["masks"] += 1
            differ = numpy.flatnonzero(ours != theirs)
            counts["masks that differ"] += len(differ) > 0
            for id in differ:
                same = False
                which = kind_of(wanted, text, masks.texts[id], ours[id])
                kinds[which] += 1
                examples.setdefault(which, (index, kind, wanted, text, masks.texts[id]))
            both = numpy.flatnonzero(ours & theirs)
            if len(both) == 0:
                break
            # Short answers end; a token of a group is as likely as a whole one of another.
            ends = [id for id in masks.ends if ours[id] and theirs[id]]
            if ends and rng.random() < 0.3:
                break
            id = int(rng.choice(both))
            if id in masks.ends:
                break
            text += masks.texts[id]
            reply = masks.ask(token=id)
            if "error" in reply or not matcher.consume_token(id):
                kinds["a token of both masks is refused"] += 1
                examples.setdefault("a token of both masks is refused", (index, kind, wanted, text, b""))
                break
        counts["grammars with equal masks"] += same
    print(", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    for name, count in kinds.most_common():
        index, kind, wanted, text, token = examples[name]
        print(f"{count} bits: {name}: as {token!r} behind {text!r} of {index}, {kind} {json.dumps(wanted)[:200]}")
    sys.exit(1 if kinds.keys() - KNOWN else 0)


if __name__ == "__main__":
    main()
