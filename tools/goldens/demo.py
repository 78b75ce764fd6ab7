"""Goldens of the demo model, SmolLM2-135M-Instruct in GGUF Q4_1: dequantized by PyPI gguf, computed
by transformers in f32 without any rounding of activations.
"""

import importlib.metadata
import json

import gguf
import tokenizers
import torch
from transformers import AutoModelForCausalLM

from . import compute

PROMPT_TOKENS = 48
GREEDY_TOKENS = 48
TOP = 20
CONTEXT = 512
# Each is cut to its first PROMPT_TOKENS ids.
TEXTS = [
    "The old lighthouse keeper climbed the spiral stairs every evening, carrying a lamp in one hand "
    "and a thermos of tea in the other. Tonight the fog was so thick that he could not see the "
    "railing, and for the first time in thirty years he",
    "Photosynthesis is the process by which green plants turn light into chemical energy. In the "
    "first stage, pigments in the chloroplast absorb photons and pass electrons along a chain of "
    "proteins. In the second stage, the plant uses that energy to build sugars from carbon dioxide, and",
    "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n    if n < 2:\n        "
    "return n\n    a, b = 0, 1\n    for _ in range(n - 1):\n        a, b = b, a + b\n    return b\n\n\ndef factorial(n):\n    \"\"\"Return n!.\"\"\"\n",
    "Ingredients for six people: 500 g of flour, 3 eggs, 250 ml of milk, 80 g of butter, 1 pinch of "
    "salt, 2 spoons of sugar.\n\nPreparation:\n1. Melt the butter in a small pan and let it cool.\n2.",
    "Dear Ms. Alvarez,\n\nThank you for your letter of 14 March about the broken window in the hall "
    "on the second floor. I am sorry that nobody has answered you until now. We have asked a glazier "
    "to come this week, and he has promised to",
    "Question: A train leaves the station at 9:15 and travels 180 km at a speed of 90 km per hour. "
    "After a stop of 20 minutes it goes on for 45 km at the same speed. When does it arrive?\n"
    "Answer: First we",
    "La capitale de la France est Paris. La ville se trouve au bord de la Seine et compte plus de "
    "deux millions d'habitants. Parmi ses monuments les plus connus, on trouve la tour Eiffel, "
    "Notre-Dame et le musée du Louvre. Chaque année,",
    "The council met on Tuesday to discuss the new library. Supporters say that the building will "
    "bring students into the centre of town; critics point to its cost, which has risen from 12 to "
    "19 million. The mayor said that the decision would not be easy, but",
    "{\"name\": \"Ada\", \"age\": 36, \"languages\": [\"English\", \"French\"], \"address\": {\"city\": "
    "\"London\", \"zip\": \"W1\"}}\n{\"name\": \"Alan\", \"age\": 41, \"languages\": [\"English\"], \"address\": {\"city\":",
    "Once upon a time there was a small grey mouse who lived under the floor of a bakery. Every night "
    "she listened to the bakers sing, and every morning she found one warm crumb. One day the "
    "singing stopped, and the mouse decided to find out",
    "Water boils at 100 degrees Celsius at sea level. On a high mountain the pressure of the air is "
    "lower, so water boils at a lower temperature. This means that cooking an egg on a mountain takes "
    "longer, because the water is not as hot, and",
    "List of the planets of the solar system with their number of moons and the length of one day:\n"
    "- Mercury: 0 moons, 176 Earth days\n- Venus: 0 moons, 117 Earth days\n- Earth: 1 moon, 24 hours\n-",
]


def load_tokenizer(reader):
    """SmolLM's: byte-level BPE that takes digits one by one, from the vocabulary in the GGUF file."""
    field = {name: reader.get_field(f"tokenizer.ggml.{name}").contents()
             for name in ("tokens", "merges", "pre")}
    assert field["pre"] == "smollm", field["pre"]
    merges = [tuple(merge.split(" ")) for merge in field["merges"]]
    found = tokenizers.Tokenizer(tokenizers.models.BPE(
        {token: i for i, token in enumerate(field["tokens"])}, merges))
    found.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Digits(individual_digits=True),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)])
    found.decoder = tokenizers.decoders.ByteLevel()
    return found


def make_prompts(tokenizer):
    prompts = []
    for text in TEXTS:
        ids = tokenizer.encode(text).ids[:PROMPT_TOKENS]
        assert len(ids) == PROMPT_TOKENS, (len(ids), text)
        cut = tokenizer.decode(ids)
        assert tokenizer.encode(cut).ids == ids, cut
        prompts.append({"text": cut, "ids": ids})
    return prompts


def continuation(model, ids):
    """The greedy continuation with a KV cache, and the best logits after the prompt."""
    cache, feed, steps, first = None, torch.tensor([ids]), [], None
    with torch.no_grad():
        for _ in range(GREEDY_TOKENS):
            out = model(feed, past_key_values=cache, use_cache=True)
            cache, row = out.past_key_values, out.logits[0, -1]
            first = row if first is None else first
            steps.append(compute.top_two(row))
            feed = torch.tensor([[steps[-1][0]]])
    values, best = torch.topk(first, TOP)
    return {"greedy": [step[0] for step in steps],
            "gaps": [round(step[2], 3) for step in steps],
            "top_ids": best.tolist(), "top_logits": [round(v, 4) for v in values.tolist()],
            "log_sum_exp": round(float(torch.logsumexp(first, 0)), 4)}


def perplexity(model, ids):
    """Negative log-likelihood of each id in the second half of each whole chunk of CONTEXT ids,
    given those before it in the chunk."""
    chunks = []
    for begin in range(0, len(ids) - CONTEXT + 1, CONTEXT):
        chunk = ids[begin:begin + CONTEXT]
        scores = torch.log_softmax(compute.logits(model, chunk).double(), dim=-1)
        targets = torch.tensor(chunk[CONTEXT // 2:])
        chunks.append(-scores[CONTEXT // 2 - 1:-1].gather(1, targets[:, None])[:, 0])
    assert len(chunks) >= 2, len(ids)
    return {"ctx": CONTEXT, "ids": len(ids),
            "chunk_perplexity": [round(float(c.mean().exp()), 5) for c in chunks],
            "perplexity": round(float(torch.cat(chunks).mean().exp()), 5),
            "tokens": sum(len(c) for c in chunks),
            "nll": [compute.encode(c) for c in chunks]}


def make(path, out):
    tokenizer = load_tokenizer(gguf.GGUFReader(path))
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name,
                                                 dtype=torch.float32, attn_implementation="eager")
    model.eval()
    prompts = make_prompts(tokenizer)
    text = (out / "demo_text.txt").read_text()
    golden = {
        "computed_by": "transformers, torch on the CPU, float32, attention eager, weights "
                       "dequantized from the GGUF file",
        "versions": {name: importlib.metadata.version(name)
                     for name in ("torch", "transformers", "tokenizers", "gguf")},
        "text": perplexity(model, tokenizer.encode(text).ids),
        "prompts": [continuation(model, prompt["ids"]) for prompt in prompts],
    }
    for name, data in (("demo_prompts.json", prompts), ("demo_golden.json", golden)):
        with open(out / name, "w") as file:
            json.dump(data, file, ensure_ascii=False, indent=None, separators=(",", ":"))
            file.write("\n")
    for prompt, found in zip(prompts, golden["prompts"]):
        print(f"{prompt['text'][-40:]!r} -> {tokenizer.decode(found['greedy'])!r}, "
              f"smallest gap {min(found['gaps'])}")
    print({key: golden["text"][key] for key in ("ids", "perplexity", "chunk_perplexity", "tokens")})
