#!/usr/bin/env python3
"""Makes tests/golden/tokenizer: small tokenizers of each family, and what the originals do.

For each family it trains a vocabulary of some hundred pieces under exactly the normalizer,
pre-tokenizer, post-processor and decoder of the real models, and records the ids and texts that
Hugging Face's `tokenizers` and Google's `sentencepiece` give for texts that are easy to get wrong.
Two families are also written as GGUF files without tensors. patterns.json has what Split makes of
texts under patterns of Oniguruma's dialect.

    python3 tools/make_tokenizer_goldens.py [--model smollm2.gguf] [--prompts] [--clip FOLDER]

With --model it also records the ids of the demo model's tokenizer, rebuilt from its GGUF metadata.
With --prompts it makes the tokenizers of image prompts alone (tokenizer_goldens/prompts.py);
--clip, with the folder that tools/fetch_clip.py prints, records the ids of CLIP's own tokenizer alone;
the test reads the tokenizer where BRAID_TEST_CLIP names that folder.
Needs the PyPI packages tokenizers, sentencepiece, protobuf, gguf and transformers. Run from the
repository root.
"""

import argparse
import io
import json
import pathlib
import pydoc_data.topics
import random
import sys

try:
    import gguf
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2
    from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, trainers
    from tokenizers import decoders, pre_tokenizers, processors
except ImportError as error:
    sys.exit(f"make_tokenizer_goldens: needs the packages tokenizers, sentencepiece, protobuf and gguf ({error})")

from tokenizer_goldens import prompts
from tokenizer_goldens.patterns import pattern_cases
from tokenizer_goldens.texts import TEXTS, WORLD, random_texts

FOLDER = pathlib.Path("tests/golden/tokenizer")

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

def corpus():
    topics = pydoc_data.topics.topics
    return [topics[key] for key in sorted(topics)][:60] + [WORLD] * 4


def special(text):
    return AddedToken(text, special=True, normalized=False)


def train(tokenizer, size, specials):
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[special(s) for s in specials],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


def byte_level(split, regex):
    steps = [pre_tokenizers.Split(Regex(split), "isolated")] if split else []
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=regex))
    return pre_tokenizers.Sequence(steps) if len(steps) > 1 else steps[0]


def gpt2():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = byte_level(None, True)
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.decoder = decoders.ByteLevel()
    return train(t, 600, ["<|endoftext|>"])


def smollm():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    t.decoder = decoders.ByteLevel()
    return train(t, 700, ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<filename>"])


def llama3():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = byte_level(LLAMA3, False)
    t.decoder = decoders.ByteLevel()
    train(t, 700, [])
    # Pieces that no merge reaches: with ignore_merges they are found all the same.
    data = json.loads(t.to_str())
    data["model"]["ignore_merges"] = True
    data["model"]["merges"] = data["model"]["merges"][:300]
    t = Tokenizer.from_str(json.dumps(data))
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>"]
    t.add_special_tokens([special(s) for s in names + ["<|eot_id|>"]])
    bos = "<|begin_of_text|>"
    t.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=True),
            processors.TemplateProcessing(
                single=f"{bos} $A",
                pair=f"{bos} $A {bos}:1 $B:1",
                special_tokens=[(bos, t.token_to_id(bos))],
            ),
        ]
    )
    return t


def qwen2():
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = byte_level(QWEN2, False)
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.decoder = decoders.ByteLevel()
    train(t, 650, [])
    t.add_special_tokens([special(s) for s in ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]])
    t.add_tokens([AddedToken(s, normalized=False) for s in ["<tool_call>", "</tool_call>"]])
    # Each flag of an added token, and one that is matched in normalized text.
    t.add_tokens(
        [
            AddedToken("<mask>", lstrip=True, rstrip=True, normalized=False),
            AddedToken("one", single_word=True, normalized=False),
            AddedToken("cafe\u0301", normalized=True),
        ]
    )
    return t


def sentencepiece_model():
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(line for text in corpus() for line in text.split("\n")),
        model_writer=out,
        model_type="bpe",
        vocab_size=800,
        byte_fallback=True,
        character_coverage=0.995,
        split_digits=True,
        allow_whitespace_only_pieces=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        num_threads=1,
        minloglevel=2,
    )
    return out.getvalue()


def pieces_of(model):
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model)
    return [(p.piece, p.score, p.type) for p in proto.pieces]


def merges_of(pieces):
    """Every way to make a piece of two others, best score first."""
    ids = {piece: i for i, (piece, _, _) in enumerate(pieces)}
    out = []
    for piece, score, kind in pieces:
        if kind != 1:
            continue
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in ids and right in ids:
                out.append((-score, ids[left], ids[right], left, right))
    return [(left, right) for _, _, _, left, right in sorted(out)]


def llama2_like(model, metaspace):
    pieces = pieces_of(model)
    vocab = {piece: i for i, (piece, _, _) in enumerate(pieces)}
    t = Tokenizer(
        models.BPE(
            vocab, merges_of(pieces), unk_token="<unk>", fuse_unk=True, byte_fallback=True
        )
    )
    if metaspace:
        t.pre_tokenizer = pre_tokenizers.Metaspace("\u2581", prepend_scheme="first", split=False)
    else:
        t.normalizer = normalizers.Sequence(
            [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
        )
    t.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    t.add_special_tokens([special(s) for s in ["<unk>", "<s>", "</s>"]])
    single = "<s> $A </s>" if metaspace else "<s> $A"
    t.post_processor = processors.TemplateProcessing(
        single=single,
        pair=single + " <s>:1 $B:1",
        special_tokens=[("<s>", vocab["<s>"]), ("</s>", vocab["</s>"])],
    )
    if metaspace:
        t.add_tokens(["[INST]", "[/INST]"])
    return t


def compact(tokenizer):
    """The tokenizer's JSON with merges as Hugging Face's older files write them."""
    data = json.loads(tokenizer.to_str())
    if all(" " not in part for pair in data["model"]["merges"] for part in pair):
        data["model"]["merges"] = [" ".join(pair) for pair in data["model"]["merges"]]
    return data


def dump(path, data):
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    (FOLDER / path).write_text(text + "\n")


def encode(tokenizer, text, add, parse):
    tokenizer.encode_special_tokens = not parse
    return tokenizer.encode(text, add_special_tokens=add).ids


def cases_of(tokenizer, texts, byte_level_text, normalizes):
    """[plain ids, ids with special tokens parsed or null where equal] of each text."""
    frame = encode(tokenizer, "x", True, False)
    inner = encode(tokenizer, "x", False, False)
    start = next(i for i in range(len(frame)) if frame[i : i + len(inner)] == inner)
    prefix, suffix = frame[:start], frame[start + len(inner) :]
    ids = []
    for text in texts:
        plain = encode(tokenizer, text, False, False)
        assert encode(tokenizer, text, True, False) == prefix + plain + suffix
        parsed = encode(tokenizer, text, False, True)
        ids.append([plain, None if parsed == plain else parsed])
        if byte_level_text and not normalizes:
            assert tokenizer.decode(plain) == text
    rng = random.Random(7)
    decoded = []
    size = tokenizer.get_vocab_size()
    # Byte fallback of bytes that are not UTF-8 differs on purpose: only byte level is compared on
    # arbitrary ids, the others on ids that come from text.
    pool = [i for pair in ids for i in pair[1] or []]
    for _ in range(12):
        if byte_level_text:
            some = [rng.randrange(size) for _ in range(12)]
        else:
            some = rng.choice(ids)[1] or rng.choice(ids)[0]
            some = some[:40] + rng.sample(pool, 3)
            if "\ufffd" in tokenizer.decode(some):
                continue
        decoded.append([some, tokenizer.decode(some), tokenizer.decode(some, False)])
    return {"prefix": prefix, "suffix": suffix, "ids": ids, "decoded": decoded}


def write_gguf(path, arch_model, pre, tokens, types, merges, scores, extra):
    writer = gguf.GGUFWriter(FOLDER / path, "llama")
    writer.add_tokenizer_model(arch_model)
    if pre:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if merges:
        writer.add_token_merges(merges)
    if scores:
        writer.add_token_scores(scores)
    extra(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def write_smollm_gguf(tokenizer):
    data = json.loads(tokenizer.to_str())
    added = {t["content"] for t in data["added_tokens"]}
    tokens = sorted(data["model"]["vocab"], key=data["model"]["vocab"].get)

    def extra(writer):
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_unk_token_id(0)
        writer.add_add_bos_token(False)

    write_gguf(
        "smollm.gguf",
        "gpt2",
        "smollm",
        tokens,
        [3 if t in added else 1 for t in tokens],
        [" ".join(pair) for pair in data["model"]["merges"]],
        None,
        extra,
    )


def write_llama2_gguf(model):
    pieces = pieces_of(model)

    def extra(writer):
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_unk_token_id(0)

    write_gguf(
        "llama2.gguf",
        "llama",
        None,
        [p for p, _, _ in pieces],
        [k for _, _, k in pieces],
        None,
        [s for _, s, _ in pieces],
        extra,
    )


def sentencepiece_cases(model, texts):
    """What sentencepiece does with the same model: ids, and texts of any ids."""
    sp = sentencepiece.SentencePieceProcessor(model_proto=model)
    rng = random.Random(11)
    decoded = []
    for _ in range(40):
        some = [rng.randrange(3, sp.vocab_size()) for _ in range(6)]
        some += [rng.randrange(3, 259) for _ in range(6)]  # bytes, mostly not UTF-8
        decoded.append([some, sp.decode(some)])
    return {"ids": [sp.encode(text) for text in texts], "decoded": decoded}


def demo_model(path, texts):
    reader = gguf.GGUFReader(path)

    def strings(key):
        field = reader.fields[key]
        return [bytes(field.parts[i]).decode() for i in field.data]

    kinds = reader.fields["tokenizer.ggml.token_type"]
    kinds = [int(kinds.parts[i][0]) for i in kinds.data]
    tokens = strings("tokenizer.ggml.tokens")
    merges = [tuple(m.split(" ")) for m in strings("tokenizer.ggml.merges")]
    t = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    t.pre_tokenizer = smollm().pre_tokenizer
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([special(s) for s, kind in zip(tokens, kinds) if kind == 3])
    # This vocabulary lacks some bytes, so that not every text comes back.
    ids = [[encode(t, text, False, False), encode(t, text, False, True)] for text in texts]
    return {"ids": [[a, None if a == b else b] for a, b in ids]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="the demo model's GGUF file")
    parser.add_argument("--prompts", action="store_true", help="tokenizers of image prompts alone")
    parser.add_argument("--clip", type=pathlib.Path, help="the folder of tools/fetch_clip.py")
    arguments = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    texts = TEXTS + list(random_texts(25, 40))
    if arguments.clip:
        return dump("real_clip_cases.json", prompts.real_clip_cases(arguments.clip, texts))
    prompts.write(FOLDER, corpus(), texts, dump)
    if arguments.prompts:
        return
    dump("texts.json", texts)
    dump("patterns.json", pattern_cases(200))
    spm = sentencepiece_model()
    families = {
        "gpt2": (gpt2(), True, False),
        "smollm": (smollm(), True, False),
        "llama3": (llama3(), True, False),
        "qwen2": (qwen2(), True, True),
        "llama2": (llama2_like(spm, False), False, False),
        "mistral": (llama2_like(spm, True), False, False),
    }
    for name, (tokenizer, bytes_, normalizes) in families.items():
        dump(f"{name}.json", compact(tokenizer))
        dump(f"{name}_cases.json", cases_of(tokenizer, texts, bytes_, normalizes))
    dump("sentencepiece_cases.json", sentencepiece_cases(spm, texts))
    write_smollm_gguf(families["smollm"][0])
    write_llama2_gguf(spm)
    if arguments.model:
        dump("smollm2_ids.json", demo_model(arguments.model, texts))


if __name__ == "__main__":
    main()
