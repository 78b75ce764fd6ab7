#!/usr/bin/env python3
"""Times NCCL's collectives in CUDA graphs: one process, a thread per GPU, no PyTorch.

Needs libnccl.so.2 (the PyPI package nvidia-nccl-cu13, or --nccl FILE) and libcudart of the CUDA
toolkit (--cudart FILE). The sizes are those of bench_cuda_comm: bytes of the whole value, bf16.
Prints JSON of the same form: {"ranks": P, "rows": [{"op", "bytes", "us"}]}; the time of a row is
the slowest rank's. NVLink multicast is off (NCCL_NVLS_ENABLE=0).
"""

import argparse
import ctypes
import glob
import json
import os
import sys
import sysconfig
import threading

os.environ["NCCL_NVLS_ENABLE"] = "0"

BF16, SUM = 9, 0  # ncclDataType_t, ncclRedOp_t
THREAD_LOCAL_CAPTURE = 1  # cudaStreamCaptureModeThreadLocal


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


def load(named, patterns, what):
    """The first library that loads of: the named file, the usual places."""
    tried = [named] if named else [path for pattern in patterns for path in sorted(glob.glob(pattern))]
    for path in tried:
        try:
            return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            if named:
                sys.exit(f"bench_nccl: {error}")
    sys.exit(f"bench_nccl: no {what} in {', '.join(patterns)}: name its file")


class Library:
    """Calls functions of a C library; a result that is not 0 ends the program with its name."""

    def __init__(self, library, kind):
        self.library, self.kind = library, kind

    def __getattr__(self, name):
        function = getattr(self.library, name)

        def call(*args):
            result = function(*args)
            if result != 0:
                print(f"bench_nccl: {name} gave {self.kind} error {result}", file=sys.stderr)
                os._exit(1)  # other ranks wait inside NCCL
        return call


def sizes(op, max_bytes):
    size = 1 << 10
    while size <= max_bytes:
        # Every size of all_reduce, every fourth of the others.
        if op == "all_reduce" or (size >> 12).bit_length() % 2 == 1:
            yield size
        size *= 2


class Rank:
    """One GPU's communicator, stream and values."""

    def __init__(self, nccl, cuda, rank, ranks, unique_id, max_bytes):
        self.nccl, self.cuda, self.ranks = nccl, cuda, ranks
        cuda.cudaSetDevice(rank)
        self.comm, self.stream = ctypes.c_void_p(), ctypes.c_void_p()
        self.x, self.y = ctypes.c_void_p(), ctypes.c_void_p()
        cuda.cudaStreamCreateWithFlags(ctypes.byref(self.stream), 1)
        for value in (self.x, self.y):
            cuda.cudaMalloc(ctypes.byref(value), ctypes.c_size_t(max_bytes))
            cuda.cudaMemset(value, 0, ctypes.c_size_t(max_bytes))
        nccl.ncclCommInitRank(ctypes.byref(self.comm), ranks, unique_id, rank)

    def launch(self, op, size):
        count, part = ctypes.c_size_t(size // 2), ctypes.c_size_t(size // 2 // self.ranks)
        if op == "all_reduce":
            self.nccl.ncclAllReduce(self.x, self.x, count, BF16, SUM, self.comm, self.stream)
        elif op == "reduce_scatter":
            self.nccl.ncclReduceScatter(self.x, self.y, part, BF16, SUM, self.comm, self.stream)
        elif op == "all_gather":
            self.nccl.ncclAllGather(self.x, self.y, part, BF16, self.comm, self.stream)
        else:
            self.nccl.ncclGroupStart()
            for peer in range(self.ranks):
                at = peer * part.value * 2
                self.nccl.ncclSend(ctypes.c_void_p(self.x.value + at), part, BF16, peer, self.comm,
                                   self.stream)
                self.nccl.ncclRecv(ctypes.c_void_p(self.y.value + at), part, BF16, peer, self.comm,
                                   self.stream)
            self.nccl.ncclGroupEnd()

    def time_us(self, op, size, meet):
        per_graph, replays = (64, 12) if size <= 1 << 20 else (16, 6) if size <= 16 << 20 else (4, 6)
        cuda, graph, run = self.cuda, ctypes.c_void_p(), ctypes.c_void_p()
        for _ in range(2):
            self.launch(op, size)
        cuda.cudaStreamSynchronize(self.stream)
        cuda.cudaStreamBeginCapture(self.stream, THREAD_LOCAL_CAPTURE)
        for _ in range(per_graph):
            self.launch(op, size)
        cuda.cudaStreamEndCapture(self.stream, ctypes.byref(graph))
        cuda.cudaGraphInstantiate(ctypes.byref(run), graph, ctypes.c_ulonglong(0))
        meet.wait()
        events = ctypes.c_void_p(), ctypes.c_void_p()
        for event in events:
            cuda.cudaEventCreate(ctypes.byref(event))
        for replay in range(2 + replays):
            if replay == 2:
                cuda.cudaEventRecord(events[0], self.stream)
            cuda.cudaGraphLaunch(run, self.stream)
        cuda.cudaEventRecord(events[1], self.stream)
        cuda.cudaStreamSynchronize(self.stream)
        ms = ctypes.c_float()
        cuda.cudaEventElapsedTime(ctypes.byref(ms), *events)
        return ms.value * 1e3 / (per_graph * replays)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=int, default=0, help="GPUs; 0: all")
    parser.add_argument("--max-mb", type=int, default=256)
    parser.add_argument("--nccl", help="libnccl.so.2")
    parser.add_argument("--cudart", help="libcudart.so")
    parser.add_argument("--seconds", type=float, default=120, help="limit of the whole run")
    parser.add_argument("--json", default="/dev/stdout")
    args = parser.parse_args()
    packages = sysconfig.get_paths()["purelib"]
    cuda = Library(load(args.cudart, ["/usr/local/cuda/lib64/libcudart.so*",
                                      "/usr/lib/x86_64-linux-gnu/libcudart.so*",
                                      f"{packages}/nvidia/cu13/lib/libcudart.so*"], "libcudart"), "CUDA")
    nccl = Library(load(args.nccl, [f"{packages}/nvidia/nccl/lib/libnccl.so.2",
                                    "/usr/lib/x86_64-linux-gnu/libnccl.so.2"], "libnccl.so.2"), "NCCL")
    devices, version, unique_id = ctypes.c_int(), ctypes.c_int(), UniqueId()
    cuda.cudaGetDeviceCount(ctypes.byref(devices))
    ranks = args.ranks or devices.value
    if not 2 <= ranks <= devices.value:
        sys.exit(f"bench_nccl: {devices.value} GPUs, needs {max(ranks, 2)}")
    nccl.ncclGetVersion(ctypes.byref(version))
    nccl.ncclGetUniqueId(ctypes.byref(unique_id))
    meet, rows, times = threading.Barrier(ranks), [], [0.0] * ranks

    def work(index):
        rank = Rank(nccl, cuda, index, ranks, unique_id, args.max_mb << 20)
        for op in ("all_reduce", "reduce_scatter", "all_gather", "all_to_all"):
            for size in sizes(op, args.max_mb << 20):
                times[index] = rank.time_us(op, size, meet)
                if meet.wait() == 0:  # one thread of all
                    rows.append({"op": op, "bytes": size, "us": round(max(times), 3)})
                meet.wait()

    threads = [threading.Thread(target=work, args=(index,), daemon=True) for index in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(args.seconds)
        if thread.is_alive():
            print(f"bench_nccl: no end after {args.seconds:g} s", file=sys.stderr)
            os._exit(1)
    text = f"{version.value // 10000}.{version.value // 100 % 100}.{version.value % 100}"
    with open(args.json, "w") as out:
        json.dump({"ranks": ranks, "nccl": text, "rows": rows}, out)
    os._exit(0)  # communicators with captured graphs are slow to tear down


if __name__ == "__main__":
    main()
