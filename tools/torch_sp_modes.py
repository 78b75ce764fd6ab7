"""The modes of bench_torch_sp.py: what a rank sends, receives and computes.

Tensors are [1, rows, heads, D]. All modes but torus are one: ranks make a mesh, ring x ulysses;
heads are divided among a row of it (by all_to_all), and keys and values go round in a column.
"""

import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

backends = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]


def attention(q, k, v, lse):
    """[B, L, H, D] in and out; with `lse` also [B, L, H, 1] in f32."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    scale = 1 / math.sqrt(q.shape[-1])
    if not lse:
        with sdpa_kernel(backends if q.is_cuda else SDPBackend.MATH):
            return F.scaled_dot_product_attention(q, k, v).transpose(1, 2), None
    if not q.is_cuda:
        out = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, scale=scale)
    elif backends[0] == SDPBackend.CUDNN_ATTENTION:
        out = torch.ops.aten._scaled_dot_product_cudnn_attention(
            q, k, v, None, True, 0.0, False, False, scale=scale)
    else:
        out = torch.ops.aten._scaled_dot_product_flash_attention(
            q, k, v, 0.0, False, False, scale=scale)
    l = out[1]
    if l.dim() == 3:
        l = l.unsqueeze(-1)
    return out[0].transpose(1, 2), l.transpose(1, 2)


def merge(o, l, o2, l2):
    """Two parts' results and log-sum-exps, in f32."""
    o, o2 = o.float(), o2.float()
    return o - torch.sigmoid(l2 - l) * (o - o2), torch.logaddexp(l, l2)


def join(tensors):
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors, 1)


def wait(works):
    for work in works:
        work.wait()


class Ranks:
    """All ranks, as this one sees them: N machines of M."""

    def __init__(self, rank, ranks, machines, device):
        self.rank, self.ranks, self.machines, self.device = rank, ranks, machines, device
        self.dtype = torch.bfloat16 if device == "cuda" else torch.float32
        self.moving = True  # False: nothing is sent, for the time of attention alone
        world = torch.arange(ranks)
        self.meshes = {"ulysses": world.view(1, ranks), "ring": world.view(ranks, 1),
                       "usp": world.view(machines), "tas": world.view(machines).T}
        # The communicator of this rank's row of a mesh; None: that of all ranks, or none needed.
        self.rows = {mode: None if mesh.shape[1] in (1, ranks)
                     else dist.new_subgroups_by_enumeration(mesh.tolist())[0]
                     for mode, mesh in self.meshes.items()}

    def empty(self, *sizes):
        return torch.empty(sizes, device=self.device, dtype=self.dtype)

    def exchange(self, moves):
        """Starts all (tensor, to whom, into, from whom); what stays on this rank is copied."""
        ops = []
        for tensor, to, into, source in moves:
            tensor = tensor.contiguous()
            if to == self.rank:
                into.copy_(tensor)
            elif self.moving:
                ops += [dist.P2POp(dist.isend, tensor, to), dist.P2POp(dist.irecv, into, source)]
        return dist.batch_isend_irecv(ops) if ops else []

    def to_heads(self, tensors, group, n):
        """Own rows of all heads to all rows of own heads, over the `n` ranks of a group."""
        if n == 1 or not self.moving:
            return [t.view(1, n * t.shape[1], -1, t.shape[3]) for t in tensors]
        mine = torch.stack([t[0].unflatten(1, (n, -1)).transpose(0, 1) for t in tensors], 1)
        got = torch.empty_like(mine)  # [n, tensors, rows, heads, D]
        dist.all_to_all_single(got, mine, group=group)
        return [t.flatten(0, 1)[None] for t in got.unbind(1)]

    def to_rows(self, o, group, n):
        """The way back."""
        if n == 1 or not self.moving:
            return o
        mine = o[0].unflatten(0, (n, -1)).contiguous()
        got = torch.empty_like(mine)
        dist.all_to_all_single(got, mine, group=group)
        return got.transpose(0, 1).flatten(1, 2)[None]

    def gather(self, o, mesh, text):
        """The prefix' result, of which ranks have rows by a mesh' ring and heads by its ulysses."""
        if not self.moving:
            return o
        (R, U), (part, D) = mesh.shape, o.shape[2:]
        rows = -(-text // R)
        mine = F.pad(o[0], (0, 0, 0, 0, 0, rows - o.shape[1])).contiguous()
        out = self.empty(self.ranks * rows, part, D)
        dist.all_gather_into_tensor(out, mine)
        out = out.view(self.ranks, rows, part, D)[mesh]
        return out.transpose(1, 2).reshape(1, R * rows, U * part, D)[:, :text]

    def ring(self, q, k, v, jk, jv, members):
        """Queries over the prefix' keys and those of all members, which go round."""
        n, at = len(members), members.index(self.rank)
        o = l = None
        for step in range(n):
            into = [torch.empty_like(k), torch.empty_like(v)] if step + 1 < n else []
            works = self.exchange([(mine, members[(at + 1) % n], other, members[at - 1])
                                   for mine, other in zip((k, v), into)])
            ka, va = (torch.cat([jk, k], 1), torch.cat([jv, v], 1)) if step == 0 else (k, v)
            part_o, part_l = attention(q, ka, va, n > 1)
            o, l = (part_o, part_l) if o is None else merge(o, l, part_o, part_l)
            wait(works)
            if into and self.moving:
                k, v = into
        return o.to(self.dtype)


def build(all_ranks, shape):
    """Every variant's run, every mode's attention alone, and what they should give."""
    rank, ranks, device, dtype = all_ranks.rank, all_ranks.ranks, all_ranks.device, all_ranks.dtype
    exchange, empty = all_ranks.exchange, all_ranks.empty
    N, M = all_ranks.machines
    L, text, H, D = shape
    own = L // ranks

    def inputs(seed, n):
        g = torch.Generator(device=device).manual_seed(seed)
        return {name: torch.randn(1, n, H, D, device=device, dtype=dtype, generator=g)
                for name in "qkv"}

    x, j = inputs(rank, own), inputs(1000, text)

    def plain():
        """Attention over all ranks' inputs, in f32 and without anything of the above."""
        everyone = [j] + [inputs(r, own) for r in range(ranks)]
        q = torch.cat([j["q"], x["q"]], 1).float()
        k, v = (torch.cat([each[n] for each in everyone], 1).float() for n in "kv")
        weights = torch.softmax(torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(D), -1)
        return torch.einsum("bhqk,bkhd->bqhd", weights, v).split([text, own], 1)

    def in_mesh(mesh, group):
        (R, U), (r, u) = mesh.shape, (mesh == rank).nonzero()[0].tolist()
        column, mesh = mesh[:, u].tolist(), mesh.to(device)
        part, rows = H // U, -(-text // R)
        jq, jk, jv = (j[n][:, :, u * part:(u + 1) * part] for n in "qkv")
        jq = jq[:, r * rows:(r + 1) * rows]

        def run(packed=True):
            if packed:
                q, k, v = all_ranks.to_heads([x[n] for n in "qkv"], group, U)
            else:
                q, k, v = (all_ranks.to_heads([x[n]], group, U)[0] for n in "qkv")
            o = all_ranks.ring(torch.cat([jq, q], 1), k, v, jk, jv, column)
            mine = jq.shape[1]
            return (all_ranks.gather(o[:, :mine], mesh, text),
                    all_ranks.to_rows(o[:, mine:], group, U))
        return run

    def torus():
        t, place = divmod(rank, M)
        part, rows, later = H // ranks, M * own, range(1, N)
        machine = lambda k: [(t + k) % N * M + m for m in range(M)]  # the k-th from here
        heads = lambda y: slice(y * part, (y + 1) * part)

        def pull(names, k):
            """Class k, what machine t - k has of these heads; before it what to wait for."""
            into = [empty(1, rows, part, D) if all_ranks.moving
                    else x[n].view(N, 1, rows, part, D)[k] for n in names]
            return exchange([(x[n][:, :, heads(to)], to, block, source)
                             for n, whole in zip(names, into) for to, block, source
                             in zip(machine(k), whole.split(own, 1), machine(-k))
                             if to != rank]), *into

        def push(o, k):
            """Results of class k to the ranks that they belong to."""
            return exchange([(block[0], to, got[source], source) for to, block, source
                             in zip(machine(-k), o.split(own, 1), machine(k))])

        def with_prefix(n, whole):
            blocks = list(whole.split(own, 1))
            blocks[place] = x[n][:, :, heads(rank)]
            return torch.cat([j[n][:, :, heads(rank)]] + blocks, 1)

        works, *class0 = pull("qkv", 0)
        queries = [pull("q", k) for k in later]
        keys = [pull("kv", k) for k in later]
        wait(works)
        q0, k0, v0 = (with_prefix(n, whole) for n, whole in zip("qkv", class0))
        o, l = attention(q0, k0, v0, True)
        own_o, own_l = o[:, text:], l[:, text:]
        states = [(o[:, :text], l[:, :text])]  # the prefix, then the classes
        for works, q in queries:
            wait(works)
            states.append(attention(q, k0, v0, True))
        o, l = (torch.cat([state[i] for state in states], 1) for i in (0, 1))
        q_later = torch.cat([q0[:, :text]] + [q for _, q in queries], 1)
        for works, k, v in keys:
            wait(works)
            o, l = merge(o, l, *attention(q_later, k, v, True))
        o = o.to(dtype)
        got = empty(ranks, own, part, D)
        works = []
        for k in later:
            works += push(o[:, text + (k - 1) * rows:text + k * rows], k)
        if later:
            k, v = (join([each[i] for each in keys]) for i in (1, 2))
            own_o, _ = merge(own_o, own_l, *attention(q0[:, text:], k, v, True))
        wait(works + push(own_o.to(dtype), 0))
        joint = all_ranks.gather(o[:, :text], in_order, text)
        return joint, got.transpose(0, 1).reshape(1, own, H, D)

    def alone_in(run):
        def alone():
            all_ranks.moving = False
            run()
            all_ranks.moving = True
        return alone

    in_order = all_ranks.meshes["ulysses"].to(device)
    runs, alone = {"torus": torus}, {"torus": alone_in(torus)}
    for mode, mesh in all_ranks.meshes.items():
        run = in_mesh(mesh, all_ranks.rows[mode])
        alone[mode] = alone_in(run)
        if mesh.shape[1] == 1:
            runs[mode] = run
        else:
            runs[f"{mode} packed"] = run
            runs[f"{mode} three"] = lambda run=run: run(False)
    whole = [torch.randn(1, text + L, H // ranks, D, device=device, dtype=dtype) for _ in range(3)]
    alone["ulysses"] = lambda: attention(*whole, False)
    return runs, alone, plain
