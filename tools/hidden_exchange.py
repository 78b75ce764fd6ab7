#!/usr/bin/env python3
"""How much of the exchange of expert rows lies beside computation, from a trace of braid (--trace).

    braid bench ... --tp 2 --ep 2 --schedule sbo --trace sbo.json
    python3 tools/hidden_exchange.py sbo.json --beside '\\.shared'

For each rank: seconds of the exchange (tell, dispatch, return_rows), seconds of the launches that the
strategy may put beside the exchange (scopes that match --beside), the exchange's time beside any
launch of the compute stream, and its share of the lesser of the first two.
"""

import argparse
import json
import re
from collections import defaultdict

EXCHANGE = ("tell", "dispatch", "return_rows")


def union(spans):
    out = []
    for begin, end in sorted(spans):
        if out and begin <= out[-1][1]:
            out[-1][1] = max(out[-1][1], end)
        else:
            out.append([begin, end])
    return out


def total(spans):
    return sum(end - begin for begin, end in spans)


def common(a, b):
    """Length of what two sorted lists of disjoint spans share."""
    length, i, j = 0, 0, 0
    while i < len(a) and j < len(b):
        length += max(0, min(a[i][1], b[j][1]) - max(a[i][0], b[j][0]))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return length


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace")
    parser.add_argument("--beside", default=r"\.(shared|experts)$", help="scopes of launches that may hide the exchange")
    args = parser.parse_args()
    with open(args.trace) as file:
        trace = json.load(file)
    events = trace["traceEvents"] if isinstance(trace, dict) else trace
    streams = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    spans = defaultdict(lambda: defaultdict(list))
    for e in events:
        if e["ph"] != "X":
            continue
        scope, _, op = e["name"].split(",")[0].rpartition(" ")
        span, rank = (e["ts"], e["ts"] + e["dur"]), spans[e["pid"]]
        if op in EXCHANGE:
            rank["exchange"].append(span)
        if streams.get((e["pid"], e["tid"])) == "compute":
            rank["compute"].append(span)
            if re.search(args.beside, scope):
                rank["beside"].append(span)
    print("| rank | exchange ms | launches beside, ms | hidden ms | share of what can be hidden |\n|---|---:|---:|---:|---:|")
    for rank in sorted(spans):
        exchange, compute, beside = (union(spans[rank][kind]) for kind in ("exchange", "compute", "beside"))
        most = min(total(exchange), total(beside))
        hidden = common(exchange, compute)
        share = f"{min(1, hidden / most):.0%}" if most else "-"
        print(f"| {rank} | {total(exchange) / 1e3:.1f} | {total(beside) / 1e3:.1f} | {hidden / 1e3:.1f} | {share} |")


if __name__ == "__main__":
    main()
