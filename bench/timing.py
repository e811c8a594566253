"""What the comparisons of bench/ share: launching Tandem, timing by graphs, the paper's grid, and the record of a run."""
import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "bindings" / "python"))
from tandem_ctypes import Library, Tensor  # noqa: E402

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def random(*shape, dtype):
    return torch.randn(*shape, device="cuda", dtype=dtype)


def milliseconds(launch, flop, sustained=False):
    """Median time of one launch(stream), from five replays of a graph that holds about 2 ms of them, with pauses between;
    sustained: from ten that follow each other, after three, as a GPU that has work all the time runs."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    count = max(2, min(16, round(2e-3 / (flop / 500e12))))
    with torch.cuda.stream(stream):
        launch(stream.cuda_stream)
        launch(stream.cuda_stream)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):  # not torch.cuda.graph(), which collects garbage first: half of the time here
        graph.capture_begin(capture_error_mode="relaxed")  # threads of other frameworks may free memory meanwhile
        for _ in range(count):
            launch(stream.cuda_stream)
        graph.capture_end()
    graph.replay()
    torch.cuda.synchronize()
    time.sleep(0.1)
    if sustained:
        return sustained_milliseconds(graph) / count
    times = []
    for _ in range(5):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / count)
    return statistics.median(times)


def sustained_milliseconds(graph):
    events = [torch.cuda.Event(enable_timing=True) for _ in range(11)]
    for _ in range(3):
        graph.replay()
    events[0].record()
    for event in events[1:]:
        graph.replay()
        event.record()
    torch.cuda.synchronize()
    return statistics.median(begin.elapsed_time(end) for begin, end in zip(events, events[1:]))


def tandem_launcher(library, tensors, lengths=None, **fields):
    """launch(stream) of a planned run; the workspace belongs to the closure."""
    described = {name: Tensor.of(tensor) for name, tensor in tensors.items()}
    plan = library.plan(**described, **fields)
    workspace = torch.empty(max(256, plan.workspace_bytes), device="cuda", dtype=torch.uint8)
    more = {name: Tensor.of(tensor) for name, tensor in (lengths or {}).items()}
    calls = {}

    def launch(stream, _keep=(tensors, lengths, workspace)):
        if stream not in calls:
            calls[stream] = plan.bind(workspace=workspace.data_ptr(), workspace_bytes=plan.workspace_bytes, stream=stream,
                                      **described, **more)
        calls[stream]()
    return launch


def cublas():
    """TFLOP/s of an 8192^3 product: the ceiling of the run."""
    a, b = (random(8192, 8192, dtype=torch.bfloat16) for _ in range(2))
    flop = 2 * 8192**3
    return flop / milliseconds(lambda _: a @ b, flop) / 1e9


def parser(description):
    result = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--library", default="build/src/libtandem.so")
    result.add_argument("--out", type=pathlib.Path)
    result.add_argument("--runs", type=int, default=3)
    result.add_argument("--head-dims", default="64,128,256")
    result.add_argument("--seqlens", default="512,1024,2048,4096,8192,16384")
    result.add_argument("--dtypes", default="bf16")
    result.add_argument("--commit", default="unknown")
    result.add_argument("--toolkit", default="13.0")
    return result


def row_of(point, figures, ceilings):
    """A row of the record: medians over the runs of one point's figures, a dict a run (None: a peer has no such case)."""
    dtype, head_dim, causal, seqlen = point

    def median(values):
        return None if None in values else statistics.median(values)
    peers = {peer: median([run[peer] for run in figures]) for peer in figures[0]}
    tandem = [run["tandem"] for run in figures]
    row = {"dtype": dtype, "head_dim": head_dim, "mask": "causal" if causal else "full", "seqlen": seqlen,
           "batch": 16384 // seqlen, "heads": 2048 // head_dim}
    row |= {peer: None if value is None else round(value, 1) for peer, value in peers.items()}
    row |= {"cublas": round(statistics.median(ceilings), 1),
            "spread": round((max(tandem) - min(tandem)) / statistics.median(tandem), 4),
            "over_cudnn": round(statistics.median(run["tandem"] / run["cudnn"] for run in figures), 3)}
    return row


def measure_grid(args, direction, measure):
    """The grid, `--runs` times: measure(library, dtype, head_dim, causal, seqlen) gives TFLOP/s by name. Returns the record."""
    library = Library(args.library)
    points = [(dtype, d, causal, s) for dtype in args.dtypes.split(",") for d in map(int, args.head_dims.split(","))
              for causal in (False, True) for s in map(int, args.seqlens.split(","))]
    runs, ceilings = [], []
    for _ in range(args.runs):
        ceilings.append(cublas())
        runs.append([measure(library, *point) for point in points])
    rows = []
    for i, point in enumerate(points):
        row = {"pass": direction} | row_of(point, [run[i] for run in runs], ceilings)
        rows.append(row)
        print(f"{row['dtype']} d{row['head_dim']} {row['mask']:6} {row['seqlen']:6}  "
              + "  ".join(f"{peer} {row[peer]}" for peer in runs[0][i]) + f"  over cudnn {row['over_cudnn']:.3f}", flush=True)
    mean = math.exp(statistics.mean(math.log(row["over_cudnn"]) for row in rows))
    print(f"cublas {statistics.median(ceilings):.0f}; geometric mean over cudnn {mean:.3f}")
    driver = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True)
    return {"device": torch.cuda.get_device_name(), "driver": driver.stdout.strip().splitlines()[0], "toolkit": args.toolkit,
            "commit": args.commit, "rows": rows}


def save(args, record):
    if args.out:
        args.out.write_text(json.dumps(record, indent=1) + "\n")
