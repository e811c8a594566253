#!/usr/bin/env python3
"""Compares the CPU backend with PyTorch's CPU scaled_dot_product_attention in one run, through the C ABI.

    bench/cpu_compare.py                                       # fp32, 1x8x2048x64, 2 threads: the bar
    bench/cpu_compare.py --shape 1,8,2048,128 --dtype bf16 --causal --json

Runs of the two are interleaved, so that a busy machine disturbs both alike, and their medians compared.
"""
import argparse
import ctypes
import json
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bindings" / "python"))
from tandem_ctypes import BACKWARD, FORWARD, Library, Tensor  # noqa: E402


def planned(library, direction, tensors, causal, threads):
    """A function of no arguments that runs a plan on torch tensors, given by the names of its fields."""
    described = {name: Tensor.of(tensor) for name, tensor in tensors.items()}
    plan = library.plan(direction, "cpu", mask_causal=int(causal), options_threads=threads, **described)
    size = plan.workspace_bytes
    storage = ctypes.create_string_buffer(size + 256)
    aligned = (ctypes.addressof(storage) + 255) // 256 * 256
    call = plan.bind(workspace=aligned, workspace_bytes=size, **described)
    return lambda _keep=(plan, storage, tensors): call()


def interleaved(calls, rounds):
    times = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return times


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default=ROOT / "build" / "src" / "libtandem.so", help="libtandem.so")
    parser.add_argument("--shape", default="1,8,2048,64", help="batch,heads,seqlen,head_dim")
    parser.add_argument("--dtype", choices=["bf16", "fp16", "fp32"], default="fp32")
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--backward", action="store_true", help="time the backward pass instead")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def main():
    options = arguments()
    try:
        import torch
    except ImportError:
        print("PyTorch is missing, so there is nothing to compare with", file=sys.stderr)
        return 77
    torch.set_num_threads(options.threads)
    library = Library(options.library)
    batch, heads, seqlen, dim = map(int, options.shape.split(","))
    dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[options.dtype]
    torch.manual_seed(1)
    query, key, value, grad = (torch.randn(batch, heads, seqlen, dim).to(dtype) for _ in range(4))
    rows = [t.transpose(1, 2) for t in (query, key, value)]  # the same memory, as (batch, seqlen, heads, dim)
    out = torch.empty(batch, heads, seqlen, dim, dtype=dtype)
    lse = torch.empty(batch, heads, seqlen)
    tensors = dict(zip(("query", "key", "value"), rows), out=out.transpose(1, 2), lse=lse)

    def peer():
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=options.causal)

    forward = planned(library, FORWARD, tensors, options.causal, options.threads)
    calls = {"tandem": forward, "torch": peer}
    forward()
    with torch.no_grad():
        difference = (out.float() - peer().float()).abs().max().item()
    if options.backward:
        for t in (query, key, value):
            t.requires_grad_(True)
        graph = peer()
        gradients = [torch.empty_like(t).transpose(1, 2) for t in (query, key, value)]
        tensors.update(grad_out=grad.transpose(1, 2))
        tensors.update(zip(("grad_query", "grad_key", "grad_value"), gradients))
        tensors = {name: t.detach() for name, t in tensors.items()}
        calls = {
            "tandem": planned(library, BACKWARD, tensors, options.causal, options.threads),
            "torch": lambda: torch.autograd.grad(graph, (query, key, value), grad, retain_graph=True),
        }
        calls["tandem"]()
        wanted = [t.transpose(1, 2) for t in calls["torch"]()]
        difference = max((a.float() - b.float()).abs().max().item() for a, b in zip(gradients, wanted))
    with torch.set_grad_enabled(options.backward):
        times = interleaved(calls, options.rounds)
    flops = 4 * batch * heads * seqlen * seqlen * dim * (2.5 if options.backward else 1) / (2 if options.causal else 1)
    middle = {name: statistics.median(t) for name, t in times.items()}
    report = {
        "pass": "backward" if options.backward else "forward",
        "dtype": options.dtype,
        "shape": [batch, heads, seqlen, dim],
        "mask": "causal" if options.causal else "full",
        "threads": options.threads,
        "tandem_gflops": flops / middle["tandem"] / 1e9,
        "torch_gflops": flops / middle["torch"] / 1e9,
        "ratio": middle["torch"] / middle["tandem"],
        "spread": {name: [min(t), max(t)] for name, t in times.items()},
        "difference": difference,
        "torch": torch.__version__,
    }
    if options.json:
        print(json.dumps(report))
    else:
        print(
            f"{report['pass']} {options.dtype} {options.shape} {report['mask']}, {options.threads} threads: "
            f"tandem {middle['tandem'] * 1e3:.1f} ms ({report['tandem_gflops']:.0f} GFLOP/s), "
            f"PyTorch {middle['torch'] * 1e3:.1f} ms ({report['torch_gflops']:.0f}); "
            f"tandem is {report['ratio']:.2f}x as fast; largest difference {difference:.1e}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
