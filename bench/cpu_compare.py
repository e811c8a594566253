#!/usr/bin/env python3
"""Compares the CPU backend with PyTorch's CPU scaled_dot_product_attention in one run, through the C ABI.

    bench/cpu_compare.py                                       # fp32, 1x8x2048x64, 2 threads: the bar
    bench/cpu_compare.py --shape 1,8,2048,128 --dtype bf16 --causal --json

Runs of the two are interleaved, so that a busy machine disturbs both alike, and their medians compared.
"""
import argparse
import ctypes
import glob
import json
import os
import statistics
import sys
import time

CODES = {"fp32": (2, 32), "fp16": (2, 16), "bf16": (4, 16)}  # DLPack's type code and bits


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


Tensor = ctypes.POINTER(DLTensor)


class Problem(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("query", Tensor),
        ("key", Tensor),
        ("value", Tensor),
        ("out", Tensor),
        ("lse", Tensor),
        ("alignment", ctypes.c_int32),
        ("has_scale", ctypes.c_int32),
        ("scale", ctypes.c_float),
        ("softcap", ctypes.c_float),
        ("sinks", ctypes.c_int32),
        ("mask_causal", ctypes.c_int32),
        ("mask_left", ctypes.c_int64),
        ("mask_right", ctypes.c_int64),
        ("mask_has_diagonal", ctypes.c_int32),
        ("mask_diagonal", ctypes.c_int64),
        ("lengths_batch", ctypes.c_int64),
        ("lengths_max_query", ctypes.c_int64),
        ("lengths_max_key", ctypes.c_int64),
        ("lengths_packed_query", ctypes.c_int32),
        ("lengths_packed_key", ctypes.c_int32),
        ("lengths_used_query", ctypes.c_int32),
        ("lengths_used_key", ctypes.c_int32),
        ("grad_out", Tensor),
        ("grad_query", Tensor),
        ("grad_key", Tensor),
        ("grad_value", Tensor),
        ("options_backend", ctypes.c_int32),
        ("options_num_splits", ctypes.c_int32),
        ("options_deterministic", ctypes.c_int32),
        ("options_batch_invariant", ctypes.c_int32),
        ("options_check_lengths", ctypes.c_int32),
        ("options_threads", ctypes.c_int32),
        ("options_executor", ctypes.c_void_p),
        ("options_executor_context", ctypes.c_void_p),
        ("options_executor_concurrency", ctypes.c_int32),
        ("options_emulator_seed", ctypes.c_uint64),
    ]


class Arguments(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t)] + [
        (name, Tensor)
        for name in (
            "query key value out lse cu_query cu_key used_query used_key sinks "
            "grad_out grad_query grad_key grad_value"
        ).split()
    ]


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int32), ("argument", ctypes.c_char * 48), ("message", ctypes.c_char * 460)]


def dltensor(t, dtype):
    shape = (ctypes.c_int64 * t.dim())(*t.shape)
    strides = (ctypes.c_int64 * t.dim())(*t.stride())
    code, bits = CODES[dtype]
    made = DLTensor(t.data_ptr(), 1, 0, t.dim(), code, bits, 1, shape, strides, 0)
    made.keep = (shape, strides, t)
    return made


def find_library():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    found = sorted(glob.glob(os.path.join(root, "build", "**", "libtandem.so"), recursive=True))
    return found[0] if found else "libtandem.so"


class Attention:
    """A plan for one pass and the call that runs it. `tensors` maps field names to torch tensors."""

    def __init__(self, library, backward, tensors, dtype, causal, threads):
        self.library, self.error = library, Error()
        self.views = {name: dltensor(t, "fp32" if name == "lse" else dtype) for name, t in tensors.items()}
        problem = Problem()
        library.tandem_problem_init(ctypes.byref(problem), ctypes.sizeof(problem))
        self.arguments = Arguments()
        library.tandem_arguments_init(ctypes.byref(self.arguments), ctypes.sizeof(self.arguments))
        for name, view in self.views.items():
            setattr(problem, name, ctypes.pointer(view))
            setattr(self.arguments, name, ctypes.pointer(view))
        problem.mask_causal = int(causal)
        problem.options_backend = 1
        problem.options_threads = threads
        self.plan = ctypes.c_void_p()
        self.check(
            library.tandem_plan_create(
                int(backward), ctypes.byref(problem), ctypes.byref(self.plan), ctypes.byref(self.error)
            )
        )
        self.bytes = library.tandem_plan_workspace_bytes(self.plan)
        self.storage = ctypes.create_string_buffer(self.bytes + 256)
        self.workspace = ctypes.c_void_p((ctypes.addressof(self.storage) + 255) // 256 * 256)

    def check(self, code):
        if code != 0:
            raise SystemExit(f"{self.error.argument.decode()}: {self.error.message.decode()}")

    def __call__(self):
        self.check(
            self.library.tandem_plan_run(
                self.plan,
                ctypes.byref(self.arguments),
                self.workspace,
                ctypes.c_size_t(self.bytes),
                None,
                ctypes.byref(self.error),
            )
        )


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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default=None, help="libtandem.so (default: the one under build/)")
    parser.add_argument("--shape", default="1,8,2048,64", help="batch,heads,seqlen,head_dim")
    parser.add_argument("--dtype", choices=sorted(CODES), default="fp32")
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--backward", action="store_true", help="time the backward pass instead")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("PyTorch is missing, so there is nothing to compare with", file=sys.stderr)
        return 77
    torch.set_num_threads(options.threads)
    library = ctypes.CDLL(options.library or find_library())
    library.tandem_plan_workspace_bytes.restype = ctypes.c_size_t
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

    forward = Attention(library, False, tensors, options.dtype, options.causal, options.threads)
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
            "tandem": Attention(library, True, tensors, options.dtype, options.causal, options.threads),
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
