"""The strategies that come with Braid, written in Python."""

import braid


def split_transfers(rules):
    rules.mark(braid.RING_TAG)
    rules.mark(braid.LINK_TAG)


def stream_of(task):
    if task.rule == braid.RING_TAG:
        return "side"
    return "comm" if task.communicates or task.rule == braid.LINK_TAG else "compute"


def take_turns(ctx, options):
    while not ctx.done():
        for mb in range(ctx.micro_batches):
            if ready := ctx.ready(mb):
                ctx.execute(ready[:1], **options(ready[0]))


class sequential(braid.OpScheduler):
    def schedule(self, ctx):
        ctx.execute(ctx.ready(0))


class overlap(braid.OpScheduler):
    def partition(self, rules):
        for kind in ("all_reduce", "all_gather", "reduce_scatter"):
            rules.split_func(kind)
        split_transfers(rules)

    def split(self, batch):
        return braid.split_tokens(batch.tokens, 2)

    def schedule(self, ctx):
        take_turns(ctx, lambda task: {"stream": stream_of(task)})


class nanoflow(overlap):
    def partition(self, rules):
        rules.split_func("attention")
        super().partition(rules)

    def schedule(self, ctx):
        take_turns(ctx, lambda task: {
            "stream": "side" if task.rule == "attention" else stream_of(task)})


class gemm_collective(braid.OpScheduler):
    def partition(self, rules):
        rules.split_func("linear", "all_reduce")

    def schedule(self, ctx):
        while not ctx.done():
            for task in ctx.ready(0):
                fuse = task.rule == "linear+all_reduce"
                ctx.execute([task], replace="linear_all_reduce" if fuse else "")


class tokenweave(braid.OpScheduler):
    def layout(self, batch):
        return braid.LayoutRequest(token_sharded_residual=True)

    def partition(self, rules):
        rules.split_func("reduce_scatter", "add_rms_norm", "all_gather")
        rules.split_func("reduce_scatter")
        rules.split_func("all_gather")
        split_transfers(rules)

    def split(self, batch):
        return braid.split_tokens(batch.tokens, 2, 32, 32)

    def schedule(self, ctx):
        def options(task):
            if task.rule == "reduce_scatter+add_rms_norm+all_gather":
                return {"stream": "comm", "replace": "reduce_scatter_add_rms_norm_all_gather"}
            return {"stream": stream_of(task)}
        take_turns(ctx, options)


class sequence_parallel(braid.OpScheduler):
    def partition(self, rules):
        split_transfers(rules)

    def schedule(self, ctx):
        take_turns(ctx, lambda task: {"stream": stream_of(task)})


ALL = [sequential, overlap, nanoflow, gemm_collective, tokenweave, sequence_parallel]
