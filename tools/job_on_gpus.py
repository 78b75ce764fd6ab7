#!/usr/bin/env python3
"""A job with a process per GPU, tried on GPUs. Needs numpy, NVSHMEM_HOME, and braid built with UCX.

  tools/job_on_gpus.py deaths --seconds 190   two GPUs: processes are stopped, killed, and exit with 7
  tools/job_on_gpus.py turns --seconds 140    all visible GPUs: processes beside threads, in turns

`deaths` prints a line a death: kind, jobs at once on the two GPUs, rank, aim, the phase that the other
process named, seconds from the death to the other's end, and whether GPUs and /dev/shm were empty then.
`turns` prints times, and the medians with their ratios; bits and answers must be the same. Both write
what they measured to --json. Processes start by torchrun's variables: no launcher is needed.
"""

import argparse
import glob
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOKENIZER = ROOT / "tests" / "golden" / "models" / "tokenizer"
WIDTH, INNER, IDS, HEADS = 2048, 5632, 272, 16  # all ids have text
JOB_TIMEOUT, PROMISE = 3, 5  # seconds: silence, and the end after it
SIGNALS = {"stop": signal.SIGSTOP, "kill": signal.SIGKILL, "exit7": signal.SIGUSR1}
# Preloaded: SIGUSR1 makes the process exit with 7.
EXITS = ("#include <signal.h>\n#include <unistd.h>\nstatic void leave(int s) { (void)s; _exit(7); }\n"
         "__attribute__((constructor)) static void ready(void) { signal(SIGUSR1, leave); }\n")


def write_model(folder, layers):
    """A random Llama in bf16."""
    import numpy
    folder.mkdir(parents=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZER / name, folder / name)
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": WIDTH,
        "intermediate_size": INNER, "num_hidden_layers": layers, "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS, "vocab_size": IDS, "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False,
        "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2}))
    shapes = {"model.embed_tokens.weight": (IDS, WIDTH), "lm_head.weight": (IDS, WIDTH),
              "model.norm.weight": (WIDTH,)}
    for i in range(layers):
        p = f"model.layers.{i}."
        shapes |= {f"{p}self_attn.{n}_proj.weight": (WIDTH, WIDTH) for n in "qkvo"}
        shapes |= {f"{p}mlp.{n}_proj.weight": (INNER, WIDTH) for n in ("gate", "up")}
        shapes[p + "mlp.down_proj.weight"] = (WIDTH, INNER)
        shapes |= {f"{p}{n}_layernorm.weight": (WIDTH,) for n in ("input", "post_attention")}
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2 * int(numpy.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    draw = numpy.random.default_rng(1).normal(0, .02, (1 << 22) + 1).astype(numpy.float32)
    normals = (draw.view(numpy.uint32) >> 16).astype(numpy.uint16)
    with open(folder / "model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for k, shape in enumerate(shapes.values()):
            left, begin = int(numpy.prod(shape)), 7919 * k % len(normals)
            if len(shape) == 1:
                f.write(numpy.full(left, 0x3f80, numpy.uint16).tobytes())  # ones
                left = 0
            while left > 0:
                part = normals[begin:begin + left]
                f.write(part.tobytes())
                left, begin = left - len(part), 0


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Job:
    """Processes of one command; their outputs are files."""
    alive = []

    def __init__(self, run, words, processes, port=None):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=run.folder))
        port = port or free_port()
        self.processes = []
        for r in range(processes):
            env = dict(os.environ, LD_PRELOAD=run.preload)
            if processes > 1:
                env |= {"RANK": str(r), "WORLD_SIZE": str(processes), "LOCAL_RANK": str(r),
                        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            with open(self.folder / f"out{r}", "wb") as out, open(self.folder / f"err{r}", "wb") as err:
                self.processes.append(subprocess.Popen([run.braid, *map(str, words)], env=env,
                                                       stdin=subprocess.DEVNULL, stdout=out, stderr=err))
        Job.alive += self.processes
        self.began = time.time()

    def text(self, kind, r=0):
        return (self.folder / f"{kind}{r}").read_text(errors="replace")

    def first_text(self, most=15):
        """Seconds until process 0 prints."""
        while not self.text("out") and time.time() - self.began < most:
            if any(p.poll() is not None for p in self.processes):
                break
            time.sleep(.005)
        return time.time() - self.began

    def wait(self, seconds):
        end = time.time() + seconds
        while time.time() < end and any(p.poll() is None for p in self.processes):
            time.sleep(.01)
        return self.end()

    def end(self):
        for p in self.processes:
            if p.poll() is None:
                p.kill()
            p.wait()
        return [p.returncode for p in self.processes]


class Run:
    def __init__(self, o):
        self.braid, self.seconds, self.json = str(pathlib.Path(o.braid).resolve()), o.seconds, o.json
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="job_on_gpus"))
        self.preload, self.began = "", time.time()
        self.model = self.folder / "model"

    def left(self):
        return self.seconds - (time.time() - self.began)

    def save(self, what):
        if self.json:
            pathlib.Path(self.json).write_text(json.dumps(what))


def gpu_memory():
    """MiB in use on the visible GPUs."""
    ids = os.environ.get("CUDA_VISIBLE_DEVICES")
    command = ["nvidia-smi", *(["-i", ids] if ids else []), "--query-gpu=memory.used",
               "--format=csv,noheader,nounits"]
    return [int(x) for x in subprocess.run(command, capture_output=True, text=True).stdout.split()]


def segments():
    names = (os.path.basename(p) for p in glob.glob("/dev/shm/*"))
    return {n for n in names if "ucx" in n or "braid" in n or "nvshmem" in n}


class Deaths:
    def __init__(self, run):
        self.run, self.rows, self.latest = run, [], 12.0

    def start(self, tokens=16000, port=None):
        return Job(self.run, ["run", "-m", self.run.model, "--prompt-ids", "3,4,5,6,7,8,9,10", "-n", tokens,
                              "--ignore-eos", "--tp", 2, "--device", "cuda", "--job-timeout", JOB_TIMEOUT], 2, port)

    def die(self, job, kind, aim, victim, state):
        """Ends the victim once it is there; False until the other has ended, too."""
        now = time.time()
        if "died" not in state:
            there = now - job.began >= aim if aim != "decode" else \
                job.text("out") or now - job.began > self.latest
            if any(p.poll() is not None for p in job.processes):
                state |= {"died": now, "ended": now, "early": True}
            elif there and now >= state.setdefault("from", now + (.3 if aim == "decode" else 0)):
                os.kill(job.processes[victim].pid, SIGNALS[kind])
                state["died"] = time.time()
        elif job.processes[1 - victim].poll() is not None:
            state.setdefault("ended", now)
        elif "braid: " in job.text("err", 1 - victim):
            state.setdefault("said", now)
        return "ended" in state

    def round(self, deaths):
        before = segments()
        jobs = [self.start() for _ in deaths]
        states = [{} for _ in deaths]
        end = time.time() + 60
        while time.time() < end:
            if all([self.die(job, *death, state) for job, death, state in zip(jobs, deaths, states)]):
                break
            time.sleep(.004)
        found = []
        for job, (kind, aim, victim), state in zip(jobs, deaths, states):
            lines = [x for x in job.text("err", 1 - victim).splitlines() if x.startswith("braid: ")]
            text = lines[0] if lines else ""
            phase = re.search(r"failed in (.*?): ", text)
            absent = re.search(r"did not come|found nobody|no connection to|addresses of all", text)
            began = state.get("died", end)
            found.append({"kind": kind, "at_once": len(deaths), "aim": aim, "victim": victim,
                          "phase": phase[1] if phase else "the meeting" if absent else "?", "text": text,
                          "seconds": round(state.get("ended", time.time()) - began, 2),
                          "said": round(state["said"] - began, 2) if "said" in state else None,
                          "status": job.processes[1 - victim].poll(), "lines": len(lines),
                          "named": f"since rank {victim} on" in text or bool(absent),
                          "early": "early" in state})
            job.end()
        end = time.time() + 4
        while any(memory := gpu_memory()) and time.time() < end:
            pass
        for r in found:
            r["left"] = [memory, sorted(segments() - before)]
            good = r["status"] == 1 and r["lines"] == 1 and r["named"] and not any(memory) and \
                not r["left"][1] and r["seconds"] <= JOB_TIMEOUT + PROMISE
            print("ok " if good else "BAD", f"{r['kind']} x{r['at_once']} rank {r['victim']} at {r['aim']}: "
                  f"{r['phase']}, {r['seconds']} s (line after {r['said']}), status {r['status']}, left {r['left']}",
                  "" if good else r["text"], flush=True)
        self.rows += found
        self.run.save(self.rows)

    def plan(self, first):
        """Rounds of deaths by their worth. Three jobs at once take longer to their first text."""
        at = lambda share, jobs=1: round(first * share * (1 if jobs == 1 else 1.5), 2)
        alone = [("stop", a) for a in ("decode", at(.97), at(.6), "decode", at(.85), at(.35), at(.03), at(.75))]
        alone += [(k, a) for a in ("decode", at(.6), at(.9), at(.3), at(.03)) for k in ("kill", "exit7")]
        rounds = [[(kind, aim, (i + 1) % 2)] for i, (kind, aim) in enumerate(alone)]
        together = [[("stop", "decode", v) for v in (0, 1, 1)],
                    [("stop", at(s, 3), i % 2) for i, s in enumerate((.55, .75, .97))],
                    [("kill", "decode", 0), ("exit7", "decode", 1), ("stop", "decode", 0)],
                    [("kill", at(.9), 1), ("exit7", at(.6), 0), ("stop", at(.85, 3), 1)]]
        return rounds[:4] + together + rounds[4:]

    def __call__(self):
        write_model(self.run.model, 16)
        source = self.run.folder / "exits.c"
        source.write_text(EXITS)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", source.with_suffix(".so"), source], check=True)
        self.run.preload = str(source.with_suffix(".so"))
        for _ in range(2):
            job = self.start(tokens=64)
            first = job.first_text(40)
            statuses = job.wait(60)
            print(f"a run without a death: first text after {first:.2f} s, statuses {statuses}", flush=True)
            if any(statuses):
                sys.exit(job.text("err") + job.text("err", 1))
        self.latest = 1.6 * first + 2
        for deaths in self.plan(first):
            if self.run.left() > (28 if any(kind == "stop" for kind, _, _ in deaths) else 23):
                self.round(deaths)
        port = free_port()
        job = self.start(port=port)
        job.first_text()
        job.processes[1].kill()
        job.processes[0].wait(20)
        job = self.start(tokens=8, port=port)
        print(f"a start at once at the port of a killed job: text after {job.first_text():.2f} s, "
              f"statuses {job.wait(10)}")
        groups = {}
        for r in self.rows:
            if not r["early"]:
                groups.setdefault((r["kind"], r["at_once"], r["phase"]), []).append(r["seconds"])
        for key, seconds in sorted(groups.items()):
            print(*key, len(seconds), "slowest", max(seconds))


class Turns:
    def __init__(self, run):
        self.run, self.results = run, {}
        self.gpus = len(gpu_memory())

    def go(self, form, words, most=60):
        threads = form == "threads"
        device = "cuda:" + ",".join(map(str, range(self.gpus))) if threads else "cuda"
        job = Job(self.run, [*words, "--device", device], 1 if threads else self.gpus)
        begin = time.time()
        while job.processes[0].poll() is None and time.time() - begin < most:
            time.sleep(.005)
        seconds = time.time() - begin
        statuses = job.wait(10)
        if any(statuses):
            print("FAILED", form, *words[:4], statuses, job.text("err")[-400:], flush=True)
        return job.text("out"), seconds

    def note(self, name, form, value):
        self.results.setdefault(name, {}).setdefault(form, []).append(value)
        print(f"{name}, {form}: {value}"[:160], flush=True)
        self.run.save(self.results)

    def bench(self, form):
        out, _ = self.go(form, ["bench", "--config", ROOT / "configs" / "llama-2-7b.json", "--random-weights", "--tp",
                                self.gpus, "-p", 8192, "-n", 256, "-d", 128, "-r", 5, "-o", "jsonl"])
        for row in map(json.loads, filter(lambda line: line.startswith("{"), out.splitlines())):
            tokens = 1 if row["decode"] else row["prompt"]
            self.note(f"Llama-2-7B {row['name']}, ms", form, 1e3 * tokens / statistics.median(row["samples"]))

    def attention(self, form, mode, *more):
        out, _ = self.go(form, ["bench", "attention", "--shape", "flux-3072", "-r", 20, "--machines",
                                f"1x{self.gpus}", "--sp", mode, *more])
        for cells in (line.split("|") for line in out.splitlines()):
            if len(cells) > 5 and cells[1].split(",")[0].strip() == mode:
                self.note(f"flux-3072 {mode}, ms", form, float(cells[3]))
                self.note(f"flux-3072 {mode}, bits", form, cells[-2].strip())

    def answer(self, form, tokens, *sharing):
        ids = ",".join(str(3 + i * 7 % 200) for i in range(40))
        out, seconds = self.go(form, ["run", "-m", self.run.model, "--prompt-ids", ids, "-n", tokens, "--json",
                                      "--ignore-eos", "--logprobs", 3, *sharing])
        name = f"{' '.join(map(str, sharing))}, {tokens} tokens"
        self.note(f"start, {name}, s", form, seconds)
        try:
            answer = json.loads(out)
            self.note(f"answer, {name}", form, json.dumps([answer[k] for k in ("output_ids", "text", "logprobs")]))
        except ValueError:
            self.note(f"answer, {name}", form, "none by " + form)

    def __call__(self):
        write_model(self.run.model, 4)
        n = self.gpus
        parts = [(12, self.bench), (6, self.attention, "ring"), (6, self.attention, "torus", "--torus-degree", n),
                 (4, self.answer, 1, "--tp", n)]
        turns = [(part, form) for forms in (("threads", "processes"), ("processes", "threads"))
                 for part in parts for form in forms]
        turns += [((4, self.answer, 60, *sharing), form) for form in ("threads", "processes")
                  for sharing in (("--tp", n), ("--sp", "ring", "--ranks", n), ("--sp", "ulysses", "--ranks", n))]
        for (need, what, *words), form in turns:
            if self.run.left() > need + 4:
                what(form, *words)
        print("medians: threads, processes, ratio")
        for name, forms in self.results.items():
            t, p = forms.get("threads", []), forms.get("processes", [])
            if not t or not p:
                continue
            if isinstance(t[0], str):
                print(name, "the same" if len(set(t + p)) == 1 else "DIFFER")
            else:
                t, p = statistics.median(t), statistics.median(p)
                print(f"{name} {t:.4f} {p:.4f} {p / t:.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("deaths", "turns"))
    parser.add_argument("--braid", default=ROOT / "build" / "release" / "bin" / "braid")
    parser.add_argument("--seconds", type=float, default=190)
    parser.add_argument("--json", help="a file for all that was measured")
    options = parser.parse_args()
    run = Run(options)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        (Deaths if options.what == "deaths" else Turns)(run)()
    finally:
        for p in Job.alive:
            if p.poll() is None:
                p.kill()
        shutil.rmtree(run.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
