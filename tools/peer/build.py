"""Fetches and builds the peer, llama.cpp, in a cache folder outside the tree."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

PACKAGE = "llama-cpp-python==0.3.36"  # its source archive carries llama.cpp
ARCHIVE = "llama_cpp_python-0.3.36.tar.gz"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
HERE = pathlib.Path(__file__).resolve().parent
# cpuinfo's flag for each option that llama.cpp would set by itself with GGML_NATIVE; no AMX.
CPU_OPTIONS = {"avx": "AVX", "avx2": "AVX2", "fma": "FMA", "f16c": "F16C", "bmi2": "BMI2",
               "avx512f": "AVX512", "avx512_vbmi": "AVX512_VBMI", "avx512vbmi": "AVX512_VBMI",
               "avx512_vnni": "AVX512_VNNI", "avx512_bf16": "AVX512_BF16", "avx_vnni": "AVX_VNNI"}


class PeerError(Exception):
    pass


def default_cache():
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(cache) / "braid" / "peer"


def run(command, log):
    with open(log, "a") as output:
        print("  " + " ".join(str(part) for part in command), file=sys.stderr, flush=True)
        result = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT,
                                stdin=subprocess.DEVNULL, timeout=3600)
    if result.returncode != 0:
        tail = pathlib.Path(log).read_text(errors="replace").splitlines()[-15:]
        raise PeerError(f"failed (all of it in {log}):\n  " + "\n  ".join(tail))


def fetch(cache):
    """llama.cpp's source folder, from the package's source archive."""
    archive, source = cache / ARCHIVE, cache / ARCHIVE.removesuffix(".tar.gz")
    if not archive.exists():
        requirements = cache / "requirements.txt"
        requirements.write_text(f"{PACKAGE} --hash=sha256:{SHA256}\n")
        # pip asks the package's own build tool for its dependencies, though none is wanted.
        run([sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", "llama-cpp-python",
             "--require-hashes", "--dest", cache, "--requirement", requirements],
            cache / "fetch.log")
    if hashlib.sha256(archive.read_bytes()).hexdigest() != SHA256:
        raise PeerError(f"{archive}: its sha256 is not {SHA256}")
    llama = source / "vendor" / "llama.cpp"
    if not (source / ".extracted").exists():
        shutil.rmtree(source, ignore_errors=True)
        with tarfile.open(archive) as tar:
            tar.extractall(cache)  # its hash has been checked
        # A link to a repository that is not here, and times that may lie ahead, make ninja loop.
        (llama / ".git").unlink(missing_ok=True)
        for path in source.rglob("*"):
            os.utime(path)
        (source / ".extracted").touch()
    return llama


def cpu_flags():
    with open("/proc/cpuinfo") as file:
        return set(next(line for line in file if line.startswith("flags")).split())


def compile_options(native):
    if native:
        return ["-DGGML_NATIVE=ON"]
    flags = cpu_flags()
    return ["-DGGML_NATIVE=OFF"] + sorted({f"-DGGML_{option}=ON" for flag, option
                                           in CPU_OPTIONS.items() if flag in flags})


def works(bench, model):
    """Whether the built program survives a prompt and a few tokens."""
    result = subprocess.run([bench, "-m", model, "-p", "64", "-n", "4", "-r", "1", "-t", "2"],
                            capture_output=True, timeout=600)
    return result.returncode == 0, result.returncode


def compile_peer(llama, build, options, jobs):
    run(["cmake", "-S", HERE, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
         f"-DPEER_SOURCE={llama}", "-DGGML_LTO=ON", "-DLLAMA_CURL=OFF", "-DBUILD_SHARED_LIBS=OFF",
         "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_BUILD_SERVER=OFF",
         *options], build.with_suffix(".log"))
    run(["cmake", "--build", build, f"-j{jobs}", "--target", "peer"], build.with_suffix(".log"))


def find_or_build_server(cache, jobs):
    """llama.cpp's own server, without its web pages, built for this CPU."""
    cache.mkdir(parents=True, exist_ok=True)
    build = cache / "native-server"
    program = build / "bin" / "llama-server"
    if not program.exists():
        print(f"building the peer's server in {build}: some minutes", file=sys.stderr)
        run(["cmake", "-S", HERE, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
             f"-DPEER_SOURCE={fetch(cache)}", "-DGGML_LTO=ON", "-DGGML_NATIVE=ON",
             "-DLLAMA_CURL=OFF", "-DLLAMA_OPENSSL=OFF", "-DBUILD_SHARED_LIBS=OFF",
             "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_BUILD_SERVER=ON",
             "-DLLAMA_BUILD_UI=OFF", "-DLLAMA_USE_PREBUILT_UI=OFF"], build.with_suffix(".log"))
        run(["cmake", "--build", build, f"-j{jobs}", "--target", "llama-server"],
            build.with_suffix(".log"))
    return program


def find_or_build(cache, model, jobs):
    """(folder of the programs, how they were compiled). A build for this very CPU is tried first;
    where it crashes (gcc 12.2 moves AMX's _tile_loadconfig to where it faults), one with the same
    instruction sets but AMX is made."""
    cache.mkdir(parents=True, exist_ok=True)
    for name, native in (("native", True), ("no-amx", False)):
        build, verdict = cache / name, cache / f"{name}.verdict"
        options = compile_options(native)
        if not verdict.exists():
            print(f"building the peer ({name}) in {build}: some minutes", file=sys.stderr)
            compile_peer(fetch(cache), build, options, jobs)
            fine, code = works(build / "bin" / "llama-bench", model)
            verdict.write_text("works" if fine else f"ends with {code}")
        if verdict.read_text() == "works":
            return build / "bin", " ".join(["-DGGML_LTO=ON", *options])
        print(f"the peer ({name}) {verdict.read_text()}", file=sys.stderr)
    raise PeerError(f"no build of the peer works; see {cache}")
