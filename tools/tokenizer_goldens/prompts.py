"""Tokenizers of prompts for images, as diffusers' pipelines load them: CLIP's BPE and T5's unigram.

Both are trained here, written in the files that real model folders have, and loaded again by
transformers, which says the ids.
"""

import io
import json
import pathlib
import random
import tempfile

import sentencepiece
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Regex
from transformers import CLIPTokenizer, T5Tokenizer

import fetch_clip

PROMPTS = [
    "a big red circle on the left in the gray background",
    "A photo of an astronaut riding a horse on Mars, 8k, trending on artstation",
    "cinematic still, 35mm f/1.8 (bokeh:1.2), it's 12:30pm — \u201cgolden hour\u201d",
    "\uff21\uff22\uff23\uff11\uff12\uff13 \ufb01ne o\ufb03ce \u2460\u2461 \u33a5 \u00bd \u2163 \u212b",
    "e\u0301 e\u0301\u0323 \u1e69 s\u0323\u0307 \u0130stanbul I\u0307 \u01c5 \u1fb3 \u03a3\u03a3\u03c2 \u1e9e",
    "\u2028line\u2029para\u200bzero\u00adsoft\ufeffbom\u0000nul\u0007bell\u007fdel",
    "\uff1c/x\uff1e <extra_id_0> x<extra_id_99>y <pad> <unk> </s>",
    "<|startoftext|>a cat<|endoftext|> dog <|ENDOFTEXT|>",
    "caf\u00e9 CAFE\u0301 na\u00efve Stra\u00dfe \u01f1 \u13a0 \ua64a \U0001e900",
    "\r\n\r\n  two   spaces\t\ttabs \u3000 wide  ",
    "\u0e01\u0e33 \u0e19\u0e49\u0e33 \u0915\u094d\u0937\u093f \uac01 \u1100\u1161\u11a8 \U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\u2581 a \u2581b\u2581\u2581c",
    " ".join(f"word{i}" for i in range(60)),
]

CLIP_SPECIALS = fetch_clip.SPECIALS


def mixed(count):
    """Random texts out of the blocks in which normalization, case and clusters do something."""
    rng = random.Random(20260101)
    blocks = [
        (0x20, 0x7F), (0x20, 0x7F), (0xA0, 0x250), (0x300, 0x370), (0x370, 0x530), (0x900, 0x980),
        (0x1100, 0x1200), (0x1E00, 0x2070), (0x2100, 0x2190), (0x2460, 0x2500), (0x3000, 0x3100),
        (0x3200, 0x3400), (0xAC00, 0xAD00), (0xFB00, 0xFB50), (0xFE30, 0xFFEF), (0x1F300, 0x1F650),
        (0x0, 0x20), (0x61, 0x7B), (0x61, 0x7B),
    ]
    for _ in range(count):
        yield "".join(chr(rng.randrange(*rng.choice(blocks))) for _ in range(rng.randrange(1, 30)))


def train_clip(corpus, folder, size):
    """vocab.json and merges.txt with `size` entries, in the order of the real ones."""
    t = Tokenizer(models.BPE(end_of_word_suffix="</w>", unk_token=CLIP_SPECIALS[1]))
    t.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    words = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(words), "removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        end_of_word_suffix="</w>",
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    t.train_from_iterator([text.lower() for text in corpus], trainer)
    model = json.loads(t.to_str())["model"]
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = alphabet + [c + "</w>" for c in alphabet]
    vocab += [m.replace(" ", "") for m in merges] + CLIP_SPECIALS
    fetch_clip.write_files(folder, vocab, merges)


def train_t5(corpus, folder, rules):
    """spiece.model of some hundred pieces; `rules`: a name, or the text of a table of rules."""
    out = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as table:
        if "\t" in rules:
            table.write(rules)
            table.flush()
            normal = {"normalization_rule_tsv": table.name}
        else:
            normal = {"normalization_rule_name": rules}
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(line for text in corpus for line in text.split("\n")),
            model_writer=out,
            model_type="unigram",
            vocab_size=700,
            character_coverage=0.99,
            pad_id=0,
            eos_id=1,
            unk_id=2,
            bos_id=-1,
            num_threads=1,
            minloglevel=2,
            **normal,
        )
    (folder / "spiece.model").write_bytes(out.getvalue())


def newer_t5_json(folder):
    """tokenizer.json as converters write it today: Strip, runs of spaces, Metaspace alone."""
    t = T5Tokenizer.from_pretrained(folder).backend_tokenizer
    t.normalizer = normalizers.Sequence(
        [t.normalizer, normalizers.Strip(left=False), normalizers.Replace(Regex(" {2,}"), "\u2581")]
    )
    t.pre_tokenizer = pre_tokenizers.Metaspace("\u2581", prepend_scheme="always")
    return t


def cases(encode, decode, texts):
    return [[ids, decode(ids)] for ids in map(encode, texts)]


def of_transformers(tokenizer, texts):
    return cases(
        lambda text: tokenizer(text).input_ids,
        lambda ids: tokenizer.decode(ids, skip_special_tokens=True),
        texts,
    )


def all_texts(texts):
    return texts + PROMPTS + list(mixed(60))


def real_clip_cases(folder, texts):
    """What transformers makes of the texts with the tokenizer that tools/fetch_clip.py wrote."""
    return of_transformers(CLIPTokenizer.from_pretrained(folder), all_texts(texts))


def write(folder, corpus, texts, dump):
    """Folders clip, t5 and t5_json under `folder`, and what transformers makes of the texts."""
    texts = all_texts(texts)
    dump("prompts.json", texts)
    for name in ("clip", "t5", "t5_json"):
        (folder / name).mkdir(exist_ok=True)
    train_clip(corpus, folder / "clip", 1000)
    clip = CLIPTokenizer.from_pretrained(folder / "clip")
    dump("clip_cases.json", of_transformers(clip, texts))
    train_t5(corpus, folder / "t5", "nmt_nfkc")
    t5 = T5Tokenizer.from_pretrained(folder / "t5")
    dump("t5_cases.json", of_transformers(t5, texts))

    with tempfile.TemporaryDirectory() as name:
        other = pathlib.Path(name)
        # "e" and an acute accent, the ligature fi, a tab and a full-width A.
        train_t5(corpus, other, "65 301\tE9\nFB01\t66 69\n9\t20\nFF21\t41\n")
        t = newer_t5_json(other)
        (folder / "t5_json" / "tokenizer.json").write_text(t.to_str() + "\n")
        dump(
            "t5_json_cases.json",
            cases(lambda x: t.encode(x).ids, lambda ids: t.decode(ids), texts),
        )
