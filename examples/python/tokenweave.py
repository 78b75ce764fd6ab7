"""TokenWeave's schedule in Python, equal launch by launch to the one that comes with Braid.

    tokenweave.py CONFIG.json [picture.svg]
"""

import sys

import braid


class TokenWeave(braid.OpScheduler):
    """The batch is cut by tokens; the sum over ranks, the residual and its norm are one fused op
    of each half, which runs under the other half's products (arXiv 2505.11329)."""

    def name(self):
        return "tokenweave"  # plans of one name and the same launches have one hash

    def layout(self, batch):
        return braid.LayoutRequest(token_sharded_residual=True)

    def partition(self, rules):
        rules.split_func("reduce_scatter", "add_rms_norm", "all_gather")
        rules.split_func("reduce_scatter")
        rules.split_func("all_gather")

    def split(self, batch):
        return braid.split_tokens(batch.tokens, 2, least=32, multiple=32)

    def schedule(self, ctx):
        while not ctx.done():
            for half in range(ctx.micro_batches):
                for task in ctx.ready(half)[:1]:
                    if task.rule == "reduce_scatter+add_rms_norm+all_gather":
                        ctx.execute([task], stream="comm",
                                    replace="reduce_scatter_add_rms_norm_all_gather")
                    else:
                        ctx.execute([task], stream="comm" if task.communicates else "compute")


def main():
    step = {"tp": 8, "tokens": 4096}
    mine = braid.plan(sys.argv[1], schedule=TokenWeave(), **step)
    built_in = braid.plan(sys.argv[1], schedule="tokenweave", **step)
    print(repr(mine))
    for i, (a, b) in enumerate(zip(mine.launches, built_in.launches, strict=True)):
        if a != b:
            sys.exit(f"launch {i} differs: {a}, built in {b}")
    if mine.hash != built_in.hash:
        sys.exit(f"the schedules differ: {mine.hash}, built in {built_in.hash}")
    print(f"equal to the built-in strategy in all {len(mine.launches)} launches: {mine.hash}")
    if len(sys.argv) > 2:
        with open(sys.argv[2], "w", encoding="utf-8") as file:
            file.write(mine.svg())


if __name__ == "__main__":
    main()
