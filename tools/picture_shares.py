#!/usr/bin/env python3
"""What reading the prompt, decoding and writing cost beside a picture's steps.

  braid image ... --json > FILE; tools/picture_shares.py FILE

FILE may have other lines before the JSON object. The share is of 28 steps; medians count. Weights of text encoders,
moved once for a process, stand apart.
"""

import json
import pathlib
import statistics
import sys


def report(text):
    for line in text.splitlines():
        if line.startswith("{"):
            return json.loads(line)
    sys.exit("picture_shares: no JSON object")


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    r = report(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    t, memory = r["timings"], r["memory"]
    step, decode, write = (statistics.median(t[k]) for k in ("step_ms", "decode_ms", "write_ms"))
    others = t["encode_ms"] + decode + write
    print(f"| {r['device']}, {r['width']} x {r['height']} | encode ms | decode ms | write ms | together ms "
          "| step ms | share of 28 steps | first step ms | encoders' weights ms | memory at once GB |")
    print("|---" + 9 * "|---:" + "|")
    print(f"| {memory['text_encoder'] or 'no'} text encoder | {t['encode_ms']:.1f} | {decode:.1f} | {write:.1f} | {others:.1f} "
          f"| {step:.2f} | {others / (28 * step):.1%} | {t['prepare_ms'] + t['step_ms'][0]:.0f} | {t['encoders_ms']:.0f} "
          f"| {memory['most'] / 1e9:.1f} |")


if __name__ == "__main__":
    main()
