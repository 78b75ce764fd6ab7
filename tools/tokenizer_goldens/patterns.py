"""Patterns of tokenizer.json: Hugging Face's tokenizers reads them with Oniguruma.

`pattern_cases()` is what its Split makes of texts: patterns that people's models have, patterns
that other libraries read otherwise, and random ones; each behavior, inverted or not.
"""

import random

from tokenizers import Regex, pre_tokenizers

O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK_CODER = r"\s?\p{L}+|\s?\p{P}+|[一-龥ࠀ-一가-퟿]+|\p{N}|[\r\n]"
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"

MODELS = [O200K, CL100K, LLAMA3, DEEPSEEK3, DEEPSEEK_CODER, BLOOM]

DIALECT = [
    r"\p{N}{1,3}+", r"a{2}+", r"a{,2}", r"a{2,}?", r"(?:ab){1,2}+c?", r"[a-z]+$|\s|[^\s]",
    r"^[a-z]+|\s|[^\s]", r"\A[a-z]+", r"[a-z]+\z", r"[a-z]+\Z", r"\G[a-z]", r"\w+|\W+", r"\b", r"\B",
    r"\bw?", r"\d+", r"\h+", r"\s+", r"\S+", r"[[:alpha:]]+", r"[[:punct:]]+", r"[[:word:]]+",
    r"[[:^space:]]+", r"[[:upper:][:digit:]]+", r"\p{Han}+|\P{Han}+", r"\p{^Han}+", r"\p{Hiragana}+",
    r"\p{Punct}+|\P{Punct}+", r"\p{Alpha}+", r"\p{Space}+", r"\p{Lu}\p{Ll}*", r"\p{lowercase_letter}+",
    r"\p{Latin}+", r"\p{Cyrillic}+", r"\p{Emoji}+", r"\p{Any}", r"\p{M}+", r"\p{Sc}", r"\p{Nd}+",
    r"[\u4e00-\u9fff]+|[^\u4e00-\u9fff]+", r"\x{4e00}", r"\x41", r"\101", r"[a-w&&[^c-g]z]+",
    r"[^a-z&&[^aeiou]]+", r"[[a-c][x-z]]+", r"[]a]+", r"[a-]+", r"[^]]+", r"[\]\[]+", r"(?i)straße",
    r"(?i:ss)+", r"(?i)[k]+", r"(?i:é)", r"(?m:a.b)", r".", r".+", r"(?x: a b )", r"(?#comment)a",
    r"(?<=a)b", r"(?<!a)b", r"(?<=a+)b", r"(?<=\s)\w+", r"(?=b)", r"(?!b)", r"(?>a+)b?", r"a++", r"a*+a",
    r"(a)\1", r"(?<x>a)\k<x>", r"(?<x>a|b\g<x>c)", r"(a|b)+?c", r"\R", r"\X", r"\Ka", r"a\Kb", r"\N", r"\O",
    r"(?~ab)", r"(?y{g})\X", r"(?W:\w+)", r"(?D:\d+)", r"(?S:\s+)", r"(?P:[[:alpha:]]+)", r"", r"|", r"a|",
    r"x*", r"(?:)", r"\e|\a|\f|\v|\t", r"\cA", r"[\s\S]", r"\Qa.b\E", r"a{", r"a{b", r"{1}", r"a{1", r"[a&&]",
    r"\p{Script=Han}", r"(?P<n>a)", r"(?s).", r"(a", r"a)", r"[a", r"*a", r"a**", r"\p{Nope}", r"(?<n>", r"\k<n>",
    r"[z-a]", r"(?<=(?:a|b)*)c", r"\u00e9", r"\u{e9}", r"a{100001}",
]

BEHAVIORS = ["isolated", "removed", "merged_with_previous", "merged_with_next", "contiguous"]
# The serialized names.
NAMES = ["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"]

TEXTS = [
    "a",
    "the\nthe  quick\r\n\tbrown ",
    "1234567 tokens, 12,5% x3a",
    "I'M you'll they'D 'ſ it's",
    "हिन्दी नमस्ते é e\u0301 x\u0300",
    "漢字、漢字。ひらがな カタカナ 한국어",
    "Hei, maailma! (a|b) [c] {d}…",
    "aabbabcabx aaab zzxyca]-[a.b",
    "Straße STRASSE ﬁ K \u212a é É",
    "\u00a0\u2028\u0085\x07\x1b\x0b\x0c\x01 $€ _a_ ²½Ⅷ١٢",
    "👍🏽 👨‍👩‍👧‍👦 🇩🇪 #1",
]

ATOMS = [
    "a", "b", "[ab]", "[^a]", r"\w", r"\W", r"\s", r"\S", r"\d", r"\b", r"\p{L}", r"\p{N}", r"\p{M}", r"\p{P}",
    r"[\p{L}\p{M}]", r"[^\s\p{L}]", r"\p{Lu}", " ", ".", "^", "$", "é", "漢", r"[\r\n]", "(?i:s)", r"[[:punct:]]",
    r"(?=\s)", r"(?!\S)", r"(?<=a)", r"(?<!\s)", r"[a-z&&[^b]]", r"\X", "'", r"\p{Han}",
]
QUANTIFIERS = ["", "", "", "?", "*", "+", "??", "+?", "?+", "*+", "++", "{1,3}", "{2}", "{,2}", "{1,2}+", "{1,}"]


def random_pattern(rng, depth=0):
    branches = []
    for _ in range(rng.randint(1, 3)):
        parts = []
        for _ in range(rng.randint(1, 3)):
            group = depth < 2 and rng.random() < 0.2
            atom = f"(?:{random_pattern(rng, depth + 1)})" if group else rng.choice(ATOMS)
            parts.append(atom + rng.choice(QUANTIFIERS))
        branches.append("".join(parts))
    return "|".join(branches)


def split(pattern, text, behavior, invert):
    step = pre_tokenizers.Split(Regex(pattern), behavior, invert)
    return [piece for piece, _ in step.pre_tokenize_str(text)]


def case(pattern, texts, behavior=0, invert=False):
    row = {"pattern": pattern, "behavior": NAMES[behavior], "invert": invert}
    try:
        Regex(pattern)
    except Exception:  # the library has one type for all its errors
        return row | {"pieces": None}
    try:
        pieces = [[t, split(pattern, t, BEHAVIORS[behavior], invert)] for t in texts]
    except BaseException:  # a panic: its own bound on backtracking
        return None
    return row | {"pieces": pieces}


def pattern_cases(count, seed=1):
    """Those that are written out, and `count` random ones."""
    rng = random.Random(seed)
    rows = [case(p, TEXTS) for p in MODELS + DIALECT]
    for pattern in [LLAMA3, r"\d", r"\s+", r"[ab]", r"\w+|\W+", r"b*", ""]:
        for behavior in range(len(NAMES)):
            for invert in (False, True):
                rows.append(case(pattern, TEXTS[:4] + TEXTS[7:8], behavior, invert))
    for _ in range(count):
        texts = rng.sample(TEXTS, 2)
        rows.append(case(random_pattern(rng), texts, rng.randrange(5) * rng.randrange(2)))
    return [row for row in rows if row]
