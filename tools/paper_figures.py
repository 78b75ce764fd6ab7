#!/usr/bin/env python3
"""Predicts StreamFusion's figures 7 and 8 (4 machines of 8 A100, 400 Gb/s each) beside what the paper says of them.

Each configuration is one `braid bench attention --profile a100`; the tables of docs/log/streamfusion.md are what this prints.
A sampling step is its attentions and the other layers' FLOP (2 x parameters x tokens) at the profile's rate of linears. USP and TAS
count twice: as Braid runs them, and with nothing hidden (`--schedule sequential`), as a two-sided exchange is at worst.
"""

import argparse
import functools
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEVICES = 8  # of a machine
HEADS = 24
# Tokens, joint prefix, parameters (the paper's section 5.1), attention layers (the models' public configurations).
WORKLOADS = {
    "flux-3072": (192 * 192, 512, 12e9, 57),
    "flux-4096": (256 * 256, 512, 12e9, 57),
    "cogvideox-20s": (41 * 48 * 85, 226, 5e9, 42),
    "cogvideox-40s": (81 * 48 * 85, 226, 5e9, 42),
}


class Simulator:
    def __init__(self, braid: str):
        self.braid = braid
        profile = json.loads((ROOT / "profiles/a100.json").read_text())
        self.linear_rate = next(r["points"][0][1] for r in profile["rates"] if r["kind"] == "linear")

    @functools.lru_cache(maxsize=None)
    def attention_ms(self, workload: str, machines: int, mode: str, ulysses: int, ring: int, hidden: bool) -> tuple:
        """One attention, and what of it is exposed communication."""
        command = [self.braid, "bench", "attention", "--shape", workload, "--machines", f"{machines}x{DEVICES}", "--profile", "a100",
                   "--sp", mode, "--ring-degree", str(ring), "--schedule", "sequence_parallel" if hidden else "sequential"]
        if mode != "torus":  # which divides its head groups into torus x ulysses by itself
            command += ["--ulysses-degree", str(ulysses)]
        table = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        row = next(line for line in table.splitlines() if line.startswith(f"| {mode} |"))
        return float(row.split("|")[3]), float(row.split("|")[5])

    def others_ms(self, workload: str, machines: int) -> float:
        """The other layers of a step, for each attention."""
        tokens, text, parameters, layers = WORKLOADS[workload]
        return 2 * parameters * (tokens + text) / (machines * DEVICES) / self.linear_rate / layers * 1e3

    def step(self, workload: str, machines: int, ulysses: int, ring: int) -> dict:
        """Attention's share of a step and the rest of it, per layer, in ms."""
        others = self.others_ms(workload, machines)
        ms = {}
        for name, mode, hidden in (("usp", "usp", True), ("usp exposed", "usp", False),
                                   ("tas exposed", "tas", False), ("torus", "torus", True)):
            ms[name] = self.attention_ms(workload, machines, mode, ulysses, ring, hidden)[0] + others
        return ms


def degrees(machines: int) -> list:
    """(ulysses, ring) with a whole number of heads on each rank."""
    ranks = machines * DEVICES
    return [(u, ranks // u) for u in range(HEADS, 0, -1) if ranks % u == 0 and HEADS % u == 0]


def divides(workload: str, machines: int) -> bool:
    return WORKLOADS[workload][0] % machines == 0


def mean_and_most(ratios: list) -> str:
    return f"{statistics.mean(ratios):.2f}x, up to {max(ratios):.2f}x"


def attention_alone(simulator: Simulator) -> list:
    out = ["| shape | usp | tas | torus | tas over usp | torus over tas | torus over usp |", "|---|---:|---:|---:|---:|---:|---:|"]
    for workload in WORKLOADS:
        runs = [simulator.attention_ms(workload, 4, mode, 8, 4, True) for mode in ("usp", "tas", "torus")]
        usp, tas, torus = (ms for ms, _ in runs)
        out.append(f"| {workload} | {' | '.join(f'{ms:.2f} ({exposed:.2f})' for ms, exposed in runs)} | "
                   f"{usp / tas:.2f}x | {tas / torus:.2f}x | {usp / torus:.2f}x |")
    return out


def figure_7(simulator: Simulator) -> list:
    out = ["| workload | machines | usp | usp, nothing hidden | tas, nothing hidden | torus | tas over usp | torus over usp | "
           "torus over usp that hides |",
           "|---|---:|---:|---:|---:|---:|---:|---:|---:|"]
    ratios = []  # (machines, tas, torus, torus over usp that hides)
    for workload in WORKLOADS:
        for machines in (1, 2, 3, 4):
            if not divides(workload, machines):
                continue
            runs = {f"U{u}R{r}": simulator.step(workload, machines, u, r) for u, r in degrees(machines)}
            names = ("usp", "usp exposed", "tas exposed", "torus")
            best = {name: min(runs, key=lambda run, name=name: runs[run][name]) for name in names}
            ms = {name: runs[run][name] for name, run in best.items()}
            cells = [f"{ms[name]:.2f} ({best[name]})" for name in names]
            if machines == 1:
                out.append(f"| {workload} | 1 | {cells[0]} | {cells[1]} | | | | | |")
                continue
            found = (ms["usp exposed"] / ms["tas exposed"], ms["usp exposed"] / ms["torus"], ms["usp"] / ms["torus"])
            ratios.append((machines, *found))
            out.append(f"| {workload} | {machines} | {' | '.join(cells)} | {' | '.join(f'{x:.2f}x' for x in found)} |")
    for title, least, paper in (("2 to 4 machines", 2, ["", "1.35x, up to 1.77x"]),
                                ("3 and 4 machines", 3, ["1.27x, up to 1.64x", ""])):
        cells = [mean_and_most([row[i] for row in ratios if row[0] >= least]) for i in (1, 2, 3)]
        out.append(f"| all | {title} | | | | | {' | '.join(cells)} |")
        out.append(f"| the paper | {title} | | | | | {' | '.join(paper)} | |")
    return out


def figure_8(simulator: Simulator) -> list:
    out = [f"| machines | degrees | {' | '.join(WORKLOADS)} |", "|---:|---|" + "---:|" * len(WORKLOADS)]
    ratios = {"tas": [], "torus": []}
    for machines in (4, 3):
        for u, r in degrees(machines):
            if u % machines:  # torus attention has no group on each machine
                continue
            cells = []
            for workload in WORKLOADS:
                if not divides(workload, machines):
                    cells.append("-")
                    continue
                ms = simulator.step(workload, machines, u, r)
                found = {"tas": ms["usp exposed"] / ms["tas exposed"], "torus": ms["usp exposed"] / ms["torus"]}
                for name, ratio in found.items():
                    ratios[name].append(ratio)
                cells.append(f"{found['tas']:.2f}x, {found['torus']:.2f}x ({ms['usp'] / ms['torus']:.2f}x)")
            out.append(f"| {machines} | U{u}R{r} | {' | '.join(cells)} |")
    summary = [f"tas: {mean_and_most(ratios['tas'])}", f"torus: {mean_and_most(ratios['torus'])}"]
    out.append(f"| all | | {' | '.join(summary)} |" + " |" * (len(WORKLOADS) - 2))
    out.append("| the paper | | tas: 1.47x, up to 2.54x | torus: 1.61x, up to 3.11x |" + " |" * (len(WORKLOADS) - 2))
    return out


def update(path: pathlib.Path, tables: dict):
    """Puts each table in the place of the one with the same header."""
    lines = path.read_text().splitlines()
    for table in tables.values():
        if table[0] not in lines:
            sys.exit(f"paper_figures: {path}: no table '{table[0]}'")
        begin = lines.index(table[0])
        end = next((i for i in range(begin, len(lines)) if not lines[i].startswith("|")), len(lines))
        lines[begin:end] = table
    path.write_text("\n".join(lines) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--braid", default=str(ROOT / "build/release/bin/braid"))
    parser.add_argument("--check", default="", help="a document that must have these tables, line by line; exit 1 where not")
    parser.add_argument("--update", default="", help="a document whose tables are to be these")
    options = parser.parse_args()
    simulator = Simulator(options.braid)
    tables = {"One attention on 4x8, ms (exposed ms)": attention_alone(simulator),
              "Figure 7: ms of a step for each layer, each mode with its best degrees": figure_7(simulator),
              "Figure 8: tas and torus over usp with nothing hidden (torus over usp that hides)": figure_8(simulator)}
    if options.update:
        update(pathlib.Path(options.update), tables)
        return 0
    if not options.check:
        for title, lines in tables.items():
            print(f"{title}\n\n" + "\n".join(lines) + "\n")
        return 0
    document = pathlib.Path(options.check).read_text()
    stale = [(title, lines) for title, lines in tables.items() if "\n".join(lines) not in document]
    for title, lines in stale:
        known = document.splitlines()
        print(f"{options.check} does not have the table '{title}'; lines that differ:")
        print("\n".join(line for line in lines if line not in known))
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
