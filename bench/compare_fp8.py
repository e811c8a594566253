"""Tandem's 8-bit forward against FlashAttention-3's and cuBLAS in e4m3, in one run on one Hopper GPU, through the C ABI.

    python3 bench/compare_fp8.py --library build/src/libtandem.so --out bench/results/NAME.json [--runs 3]

The grid: about 16,384 tokens, hidden size 2,048, lengths of 512, 2,048 and 8,448. "tandem": scales per head, packed values, their
mean taken out, sums promoted as the plan does by default. Of the others each differs in what METHODS says: block scales, values in
rows, the mean left in (sums are promoted often), neither mean nor promotion (as in FlashAttention-3), queries and keys in int8. All
are written by Tandem's quantiser; quantise_ms is its time with tandem_block, and tandem_both and fa3_both are TFLOP/s of attention
with quantising (FlashAttention-3: casts by PyTorch, scales of 1) in the time. Everything is timed as a GPU runs that has work all
the time. Outputs are checked against float64 attention of
the unquantised tensors. Peers: FlashAttention-3 from the wheel fa3-fwd, which takes values in rows and scales per head; an 8192^3
product of cuBLAS with fast accumulation.
"""
import math
import statistics
import subprocess
import sys

import torch

import timing
from timing import Library, Tensor, milliseconds, random
from tandem_ctypes import QUANTIZE, SCALE_BLOCK, SCALE_HEAD, VALUE_PACKED, VALUE_ROWS

try:
    from fa3_fwd_interface import flash_attn_func as fa3
except ImportError:
    fa3 = None

E4M3 = torch.float8_e4m3fn
METHODS = {  # scales, values, mean taken out, promotion, type of query and key
    "tandem": (SCALE_HEAD, VALUE_PACKED, 1, 1, E4M3),
    "tandem_block": (SCALE_BLOCK, VALUE_PACKED, 1, 1, E4M3),
    "tandem_rows": (SCALE_HEAD, VALUE_ROWS, 1, 1, E4M3),
    "tandem_with_mean": (SCALE_HEAD, VALUE_PACKED, 0, 1, E4M3),
    "tandem_unpromoted": (SCALE_HEAD, VALUE_PACKED, 0, 0, E4M3),
    "tandem_int8": (SCALE_BLOCK, VALUE_PACKED, 1, 1, torch.int8),
}


def sustained(launch, flop):
    return milliseconds(launch, flop, sustained=True)


def cublas():
    a, b = (torch.randn(8192, 8192, device="cuda").to(E4M3) for _ in range(2))
    one, flop = torch.ones((), device="cuda"), 2 * 8192**3
    return flop / sustained(lambda _: torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16,
                                                          use_fast_accum=True), flop) / 1e9


class Attention:
    """A quantiser and a forward plan on the same 8-bit tensors; both as launch(stream)."""

    def __init__(self, library, inputs, causal, method):
        granularity, layout, mean, promote, dtype = METHODS[method]
        query, key, value = inputs
        batch, rows, heads, dim = query.shape
        groups = -(-rows // 16)
        packed = (batch, heads, groups, dim, 16)
        eight = [torch.empty(query.shape, device="cuda", dtype=dtype) for _ in range(2)]
        eight.append(torch.empty(packed if layout == VALUE_PACKED else value.shape, device="cuda", dtype=E4M3))
        self.out = torch.full_like(query, math.nan)
        kind = {f"quantization_{name}": granularity for name in ("query", "key", "value")}
        kind |= {"quantization_value_layout": layout, "quantization_value_mean": mean}
        described = [Tensor.of(t) for t in eight]
        forward = dict(zip(("query", "key", "value"), described), out=Tensor.of(self.out))
        plan = library.plan(mask_causal=int(causal), quantization_promote=promote, **forward, **kind)
        sizes = plan.block_rows if granularity == SCALE_BLOCK else (rows, rows, rows)
        if granularity == SCALE_BLOCK:
            kind |= {f"quantization_{name}_rows": n for name, n in zip(("query", "key", "value"), sizes)}
        shapes = [(batch, heads, -(-rows // n)) if granularity == SCALE_BLOCK else (batch, heads) for n in sizes]
        scales = {f"{name}_scale": torch.empty(shape, device="cuda") for name, shape in zip(("query", "key", "value"), shapes)}
        if mean:
            scales["value_mean"] = torch.empty(batch, heads, dim, device="cuda")
        self.keep = (inputs, eight, scales)
        named = {name: Tensor.of(t) for name, t in scales.items()}
        source = dict(zip(("query", "key", "value"), (Tensor.of(t) for t in inputs)))
        source |= dict(zip(("quantized_query", "quantized_key", "quantized_value"), described))
        quantiser = library.plan(QUANTIZE, **source, **named, **kind)
        self.attend = self.launcher(plan, forward | named)
        self.quantise = self.launcher(quantiser, source | named)

    def launcher(self, plan, tensors):
        workspace = torch.empty(max(256, plan.workspace_bytes), device="cuda", dtype=torch.uint8)
        calls = {}

        def launch(stream):
            if stream not in calls:
                calls[stream] = plan.bind(workspace=workspace.data_ptr(), workspace_bytes=plan.workspace_bytes, stream=stream,
                                          **tensors)
            calls[stream]()
        return launch


def check(method, inputs, out, causal):
    rows = torch.randint(0, out.shape[1], (64,), device="cuda")
    q, k, v = inputs[0][0, rows, 0].double(), inputs[1][0, :, 0].double(), inputs[2][0, :, 0].double()
    scores = q @ k.T / math.sqrt(q.shape[-1])
    if causal:
        scores = scores.masked_fill(torch.arange(k.shape[0], device="cuda")[None] > rows[:, None], -math.inf)
    exact = scores.softmax(-1) @ v
    error = ((out[0, rows, 0].double() - exact).norm() / exact.norm()).item()
    if not error < 0.12:  # rounding of all three inputs and of the weights
        sys.exit(f"{method}: wrong result: relative error {error}")


def measure(library, head_dim, causal, seqlen):
    batch, heads = max(1, round(16384 / seqlen)), 2048 // head_dim
    inputs = [random(batch, seqlen, heads, head_dim, dtype=torch.bfloat16) for _ in range(3)]
    flop = 4 * batch * heads * seqlen * seqlen * head_dim / (2 if causal else 1)
    figures, stream = {}, torch.cuda.current_stream().cuda_stream
    for method in METHODS:
        attention = Attention(library, inputs, causal, method)
        attention.quantise(stream)
        attention.attend(stream)
        check(method, inputs, attention.out, causal)
        figures[method] = flop / sustained(attention.attend, flop) / 1e9
        if method == "tandem_block":
            def both(s):
                attention.quantise(s)
                attention.attend(s)
            figures["quantise_ms"] = sustained(attention.quantise, flop)
            figures["tandem_both"] = flop / sustained(both, flop) / 1e9
    figures["fa3"] = figures["fa3_both"] = None
    if fa3 is not None:
        eight = [t.to(E4M3) for t in inputs]
        scale = torch.ones(batch, heads, device="cuda")

        def attend(tensors):
            return fa3(*tensors, causal=causal, q_descale=scale, k_descale=scale, v_descale=scale)
        figures["fa3"] = flop / sustained(lambda _: attend(eight), flop) / 1e9
        figures["fa3_both"] = flop / sustained(lambda _: attend([t.to(E4M3) for t in inputs]), flop) / 1e9
    return batch, heads, figures


def main():
    parser = timing.parser(__doc__)
    parser.set_defaults(seqlens="512,2048,8448")
    args = parser.parse_args()
    library = Library(args.library)
    points = [(d, causal, s) for d in map(int, args.head_dims.split(",")) for causal in (False, True)
              for s in map(int, args.seqlens.split(","))]
    runs = [([cublas()], [measure(library, *point) for point in points]) for _ in range(args.runs)]
    ceiling = statistics.median(run[0][0] for run in runs)
    rows = []
    for i, (head_dim, causal, seqlen) in enumerate(points):
        batch, heads, _ = runs[0][1][i]
        peers = {name: [run[1][i][2][name] for run in runs] for name in runs[0][1][i][2]}
        row = {"pass": "forward", "dtype": "e4m3", "head_dim": head_dim, "mask": "causal" if causal else "full",
               "seqlen": seqlen, "batch": batch, "heads": heads}
        row |= {name: None if None in values else round(statistics.median(values), 4 if name.endswith("ms") else 1) for name, values in peers.items()}
        row |= {"cudnn": None, "cublas": round(ceiling, 1), "over_cublas": round(row["tandem"] / ceiling, 3),
                "spread": round((max(peers["tandem"]) - min(peers["tandem"])) / statistics.median(peers["tandem"]), 4)}
        rows.append(row)
        print("  ".join(f"{name} {value}" for name, value in row.items() if name not in ("pass", "dtype", "cudnn")), flush=True)
    driver = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True)
    timing.save(args, {"device": torch.cuda.get_device_name(), "driver": driver.stdout.strip().splitlines()[0],
                       "toolkit": args.toolkit, "commit": args.commit, "rows": rows})


if __name__ == "__main__":
    main()
