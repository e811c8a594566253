"""Tandem's forward against cuDNN, FlashAttention-3 and cuBLAS in one run on one Hopper GPU, through the C ABI.

    python3 bench/compare.py --library build/src/libtandem.so --out bench/results/NAME.json [--extras] [--runs 3]

The grid is the paper's: 16,384 tokens, hidden size 2,048 (heads = 2048 / head dim, rounded down), random normal data. Each
figure is the median over runs; within a run many launches are replayed from one CUDA graph, after a rest, so that no peer
pays for Python or for another's heat. Output errors are checked against float64 rows before anything is timed. Peers: cuDNN
through PyTorch's scaled_dot_product_attention; FlashAttention-3 from the wheel fa3-fwd, if it can be imported; an 8192^3
product of cuBLAS. Figures are TFLOP/s of 4 * batch * heads * seqlen^2 * head_dim, half of it when causal.
"""
import json
import math
import statistics
import sys
import time

import torch
import torch.nn.functional
from torch.nn.attention import SDPBackend, sdpa_kernel

import timing
from timing import DTYPES, milliseconds, random, tandem_launcher

try:
    from fa3_fwd_interface import flash_attn_func as fa3
except ImportError:
    fa3 = None


def check(query, key, value, out, causal):
    """Relative error of sampled rows of the first head against float64."""
    rows = torch.randint(0, query.shape[1], (64,), device="cuda")
    q, k, v = query[0, rows, 0].double(), key[0, :, 0].double(), value[0, :, 0].double()
    scores = q @ k.T / math.sqrt(q.shape[-1])
    if causal:
        hidden = torch.arange(k.shape[0], device="cuda")[None] > rows[:, None]
        scores = scores.masked_fill(hidden, -math.inf)
    exact = scores.softmax(-1) @ v
    error = ((out[0, rows, 0].double() - exact).norm() / exact.norm()).item()
    if not error < 6e-3:
        sys.exit(f"wrong result: relative error {error}")


def measure(library, dtype, head_dim, causal, seqlen):
    heads, batch = 2048 // head_dim, 16384 // seqlen
    shape = (batch, seqlen, heads, head_dim)
    query, key, value = (random(*shape, dtype=DTYPES[dtype]) for _ in range(3))
    out = torch.full_like(query, math.nan)
    flop = 4 * batch * heads * seqlen * seqlen * head_dim / (2 if causal else 1)
    tandem = tandem_launcher(library, {"query": query, "key": key, "value": value, "out": out}, mask_causal=int(causal))
    tandem(torch.cuda.current_stream().cuda_stream)
    check(query, key, value, out, causal)
    turned = [t.transpose(1, 2) for t in (query, key, value)]

    def cudnn(_):
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            torch.nn.functional.scaled_dot_product_attention(*turned, is_causal=causal)

    figures = {"tandem": flop / milliseconds(tandem, flop) / 1e9, "cudnn": flop / milliseconds(cudnn, flop) / 1e9, "fa3": None}
    if fa3 is not None and dtype == "bf16":
        figures["fa3"] = flop / milliseconds(lambda _: fa3(query, key, value, causal=causal), flop) / 1e9
    return figures


def extras(library):
    """Figures that stand beside the grid, all bf16 d128: varlen of equal lengths over dense, a window's gain, host time."""
    result = {}
    for causal in (False, True):
        query, key, value = (random(8, 2048, 16, 128, dtype=torch.bfloat16) for _ in range(3))
        out = torch.empty_like(query)
        tensors = {"query": query, "key": key, "value": value, "out": out}
        flop = 4 * 8 * 16 * 2048**2 * 128
        dense = milliseconds(tandem_launcher(library, tensors, mask_causal=int(causal)), flop)
        packed = {name: tensor.flatten(0, 1) for name, tensor in tensors.items()}
        lengths = torch.arange(0, 8 * 2048 + 1, 2048, device="cuda", dtype=torch.int32)
        varlen = milliseconds(tandem_launcher(
            library, packed, {"cu_query": lengths, "cu_key": lengths}, mask_causal=int(causal), lengths_packed_query=1,
            lengths_packed_key=1, lengths_batch=8, lengths_max_query=2048, lengths_max_key=2048), flop)
        result[f"varlen over dense time, 8 x 2048, {'causal' if causal else 'full'}"] = varlen / dense
    query, key, value = (random(1, 16384, 16, 128, dtype=torch.bfloat16) for _ in range(3))
    tensors = {"query": query, "key": key, "value": value, "out": torch.empty_like(query)}
    flop = 2 * 16 * 16384**2 * 128
    whole = milliseconds(tandem_launcher(library, tensors, mask_causal=1), flop)
    window = milliseconds(tandem_launcher(library, tensors, mask_causal=1, mask_left=1024), flop / 8)
    result["causal over causal window of 1,024 at 16k, time"] = whole / window
    small = {name: random(1, 64, 1, 64, dtype=torch.bfloat16) for name in ("query", "key", "value", "out")}
    launch = tandem_launcher(library, small)
    stream = torch.cuda.current_stream().cuda_stream
    launch(stream)
    torch.cuda.synchronize()
    times = []
    for _ in range(20):
        begin = time.perf_counter()
        for _ in range(20):
            launch(stream)
        times.append((time.perf_counter() - begin) / 20)
        torch.cuda.synchronize()
    result["host time of a planned run through ctypes, us"] = statistics.median(times) * 1e6
    return result


def main():
    parser = timing.parser(__doc__)
    parser.add_argument("--extras", action="store_true")
    args = parser.parse_args()
    record = timing.measure_grid(args, "forward", measure)
    if args.extras:
        record["extras"] = {name: round(value, 3) for name, value in extras(timing.Library(args.library)).items()}
        print(json.dumps(record["extras"], indent=1))
    timing.save(args, record)


if __name__ == "__main__":
    main()
