"""Tandem's backward against cuDNN, FlashAttention-3 and cuBLAS in one run on one Hopper GPU, through the C ABI.

    python3 bench/compare_backward.py --library build/src/libtandem.so --out bench/results/NAME.json [--runs 3] [--repeat 200]

The grid and the rests are those of compare.py; all kernels of a backward pass count, and figures are TFLOP/s of 10 * batch *
heads * seqlen^2 * head_dim, half of it when causal. Everybody's gradients of one head are checked against float64 before
anything is timed. "deterministic" is Tandem with additions to dQ in a fixed order. Peers: cuDNN through autograd of PyTorch's
scaled_dot_product_attention; FlashAttention-3 from the wheel flash_attn3_jax (head dims 64 and 128), if it can be imported:
many calls between two looks at the clock, since it can't be captured. --repeat runs the deterministic mode that often on each
head dim and mask, beside a busy stream, and wants the same bits.
"""
import math
import os
import statistics
import sys
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import torch  # noqa: E402
import torch.nn.functional  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

import timing  # noqa: E402
from timing import DTYPES, milliseconds, random, tandem_launcher  # noqa: E402

try:
    import jax
    from flash_attn3_jax import flash
except (ImportError, AttributeError) as error:
    print(f"no FlashAttention-3: {error}", file=sys.stderr)
    jax = None

NAMES = ("query", "key", "value", "grad_out")


def problem(dtype, head_dim, causal, seqlen, library):
    """Random inputs of shape [batch, row, head, column], and the forward's results by Tandem."""
    heads, batch = 2048 // head_dim, 16384 // seqlen
    tensors = {name: random(batch, seqlen, heads, head_dim, dtype=DTYPES[dtype]) for name in NAMES}
    tensors["out"] = torch.empty_like(tensors["query"])
    tensors["lse"] = torch.empty(batch, heads, seqlen, device="cuda")
    forward = {name: tensors[name] for name in ("query", "key", "value", "out", "lse")}
    tandem_launcher(library, forward, mask_causal=int(causal))(torch.cuda.current_stream().cuda_stream)
    return tensors


def exact_gradients(tensors, head, causal):
    """dQ, dK and dV of one head of the last sequence, in float64."""
    q, k, v, grad_out = (tensors[name][-1, :, head].double() for name in NAMES)
    scale = 1 / math.sqrt(q.shape[-1])
    scores = q @ k.T * scale
    if causal:
        scores.masked_fill_(torch.ones_like(scores, dtype=torch.bool).triu_(1), -math.inf)
    weights = scores.softmax(-1)
    grad_weights = grad_out @ v.T
    delta = (weights * grad_weights).sum(-1, keepdim=True)
    grad_scores = weights * (grad_weights - delta) * scale
    return grad_scores @ k, grad_scores.T @ q, weights.T @ grad_out


def check(who, gradients, exact, head):
    for name, gradient, right in zip(("dQ", "dK", "dV"), gradients, exact):
        error = ((gradient[-1, :, head].double() - right).norm() / right.norm()).item()
        if not error < 8e-3:
            sys.exit(f"{who}: wrong {name}: relative error {error}")


def tandem_runner(library, tensors, causal, deterministic):
    """launch(stream), and the gradients that it writes."""
    gradients = [torch.full_like(tensors[name], math.nan) for name in ("query", "key", "value")]
    named = dict(zip(("grad_query", "grad_key", "grad_value"), gradients))
    launch = tandem_launcher(library, tensors | named, direction=1, mask_causal=int(causal),
                             options_deterministic=int(deterministic))
    launch(torch.cuda.current_stream().cuda_stream)
    return launch, gradients


def cudnn_runner(tensors, causal):
    grad_out = tensors["grad_out"].transpose(1, 2)
    forward = {}  # by stream: autograd runs the backward where the forward ran, and so may be captured there

    def launch(stream):
        if stream not in forward:
            inputs = [tensors[name].transpose(1, 2).detach().requires_grad_() for name in ("query", "key", "value")]
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                forward[stream] = torch.nn.functional.scaled_dot_product_attention(*inputs, is_causal=causal), inputs
        out, inputs = forward[stream]
        return torch.autograd.grad(out, inputs, grad_out, retain_graph=True)
    gradients = launch(torch.cuda.current_stream().cuda_stream)
    return launch, [gradient.transpose(1, 2) for gradient in gradients]


class Fa3:
    """FlashAttention-3's backward through jax."""

    def __init__(self, tensors, causal):
        torch.cuda.synchronize()
        arrays = [jax.dlpack.from_dlpack(tensors[name]) for name in ("grad_out", "query", "key", "value", "out", "lse")]
        scale = 1 / math.sqrt(tensors["query"].shape[-1])
        run = jax.jit(lambda *a: flash._flash_mha_bwd(*a, softmax_scale=scale, is_causal=causal, window_size=(-1, -1)))
        self.call = lambda: run(*arrays)

    def gradients(self):
        return [torch.from_dlpack(array) for array in jax.block_until_ready(self.call())]

    def milliseconds(self, flop):
        count = max(4, min(24, round(6e-3 / (flop / 500e12))))
        jax.block_until_ready([self.call() for _ in range(2)])
        time.sleep(0.1)
        times = []
        for _ in range(3):
            begin = time.perf_counter()
            for _ in range(count):
                last = self.call()
            jax.block_until_ready(last)
            times.append((time.perf_counter() - begin) / count)
        return statistics.median(times) * 1e3


def measure(library, dtype, head_dim, causal, seqlen):
    tensors = problem(dtype, head_dim, causal, seqlen, library)
    head = tensors["query"].shape[2] // 2
    exact = exact_gradients(tensors, head, causal)
    flop = 10 * tensors["query"].numel() * seqlen / (2 if causal else 1)
    figures = {}
    for name, runner in (("tandem", lambda: tandem_runner(library, tensors, causal, False)),
                         ("deterministic", lambda: tandem_runner(library, tensors, causal, True)),
                         ("cudnn", lambda: cudnn_runner(tensors, causal))):
        launch, gradients = runner()
        check(name, gradients, exact, head)
        figures[name] = flop / milliseconds(launch, flop) / 1e9
        del launch, gradients
    figures["fa3"] = None
    if jax is not None and head_dim <= 128:
        fa3 = Fa3(tensors, causal)
        check("fa3", fa3.gradients(), exact, head)
        figures["fa3"] = flop / fa3.milliseconds(flop) / 1e9
    return figures


def expect_repeatable(library, head_dim, causal, runs):
    tensors = problem("bf16", head_dim, causal, 2048, library)
    launch, gradients = tandem_runner(library, tensors, causal, True)
    torch.cuda.synchronize()
    first = [gradient.clone() for gradient in gradients]
    busy, stream = torch.cuda.Stream(), torch.cuda.current_stream().cuda_stream
    a = random(8192, 8192, dtype=torch.bfloat16)
    busy.wait_stream(torch.cuda.current_stream())
    equal = []
    for _ in range(runs):
        with torch.cuda.stream(busy):
            a @ a
        launch(stream)
        equal += [(gradient == other).all() for gradient, other in zip(gradients, first)]
    different = len(equal) - int(torch.stack(equal).sum())
    if different:
        sys.exit(f"deterministic d{head_dim} {'causal' if causal else 'full'}: {different} of {len(equal)} gradients differ")
    print(f"deterministic d{head_dim} {'causal' if causal else 'full'}: {runs} runs beside a busy stream, the same bits")


def compare(args, measure=measure):
    record = timing.measure_grid(args, "backward", measure)
    for row in record["rows"]:
        row["deterministic_over_default"] = round(row["deterministic"] / row["tandem"], 3)
    timing.save(args, record)


def main():
    parser = timing.parser(__doc__)
    parser.add_argument("--repeat", type=int, default=0)
    args = parser.parse_args()
    if args.repeat:
        library = timing.Library(args.library)
        for head_dim in map(int, args.head_dims.split(",")):
            for causal in (False, True):
                expect_repeatable(library, head_dim, causal, args.repeat)
    if args.runs:
        compare(args)


if __name__ == "__main__":
    main()
