"""Compiles one kernel to a cubin and records what ptxas says of it; anything that costs speed silently is an error.

usage: compile_kernel.py NVCC SOURCE CUBIN RECORD [nvcc options]
"""
import json
import pathlib
import re
import subprocess
import sys

# ptxas warnings that are allowed, with the reason; everything else fails the build.
ALLOWED = {
    "C7519": "a wgmma.fence was added by ptxas: harmless, measured equal",
}


def main():
    nvcc, source, cubin, record, *options = sys.argv[1:]
    command = [nvcc, "-std=c++20", "--expt-relaxed-constexpr", "-gencode=arch=compute_90a,code=sm_90a", "-cubin",
               "-Xptxas=-v,-warn-spills,-warn-lmem-usage", *options, source, "-o", cubin]
    result = subprocess.run(command, capture_output=True, text=True)
    log = result.stdout + result.stderr
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{log}")
    kernel = pathlib.Path(source).stem
    # ptxas calls a serialised wgmma (C7510 and its neighbours) a potential loss, and not a warning.
    faults = [line for line in log.splitlines()
              if ("warning" in line or "Potential Performance Loss" in line) and not any(code in line for code in ALLOWED)]
    match = re.search(r"Used (\d+) registers", log)
    stack = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log)
    if faults or match is None or stack is None:
        pathlib.Path(cubin).unlink(missing_ok=True)
        sys.exit(f"{kernel}: spills, local memory and serialised wgmma are errors:\n{log}")
    pathlib.Path(record).write_text(json.dumps(
        {"name": kernel, "registers": int(match[1]), "local_bytes": int(stack[1])}) + "\n")


if __name__ == "__main__":
    main()
