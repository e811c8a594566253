"""What the compiler made of the Hopper kernels. Usage: resources.py records | library | instructions FOLDER LIBRARY,
where FOLDER holds the build's cubins with a record (.json) each.

records: no kernel uses local memory. library: it stays small. instructions, by disassembly: the products are in the
tensor cores, S and O of a step are there together, and exponentials run before O is waited for (the overlap that the
FA-3 paper's appendix B.2 reads from the machine code)."""

import glob
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "project"))
import repository  # noqa: E402

LIBRARY_BYTES = 10 << 20
VARIANTS_FP8 = pathlib.Path(repository.ROOT, "src/backends/sm90/forward_fp8/variants.hpp")
STEP = re.compile(r"\b([HQI]GMMA|WARPGROUP\.DEPBAR|MUFU\.EX2|BRA|EXIT)\b[^;]*")


def cubins(folder):
    found = sorted(glob.glob(os.path.join(folder, "*.cubin")))
    if not found:
        repository.skip("this build holds no Hopper kernels (no nvcc, or TANDEM_CUDA=OFF)")
    return found


def check_records(folder, _):
    faults, checked = [], 0
    for cubin in cubins(folder):
        with open(cubin[:-len("cubin")] + "json", encoding="utf-8") as stream:
            record = json.load(stream)
        checked += 1
        if record["local_bytes"] != 0:
            faults.append(f"{record['name']}: {record['local_bytes']} bytes of local memory")
        if not 0 < record["registers"] <= 255:
            faults.append(f"{record['name']}: {record['registers']} registers")
    repository.finish(faults, f"the records of {checked} kernels")


def check_library(folder, library):
    kernels, size = len(cubins(folder)), os.path.getsize(library)
    faults = [f"{library} has {size} bytes, at most {LIBRARY_BYTES}"] if size > LIBRARY_BYTES else []
    repository.finish(faults, f"the library with {kernels} kernels: {size / 2**20:.1f} MB")


def disassembler():
    """nvdisasm of the toolkit, or of the wheel nvidia-cuda-nvdisasm in .venv."""
    wheels = glob.glob(os.path.join(repository.ROOT, ".venv/lib/python3*/site-packages/nvidia/cu13/bin/nvdisasm"))
    places = [shutil.which("nvdisasm"), os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin/nvdisasm")]
    for path in places + wheels:
        if path and os.access(path, os.X_OK):
            return path
    return repository.skip("there is no nvdisasm on PATH, in CUDA_HOME or in .venv (pip install nvidia-cuda-nvdisasm)")


def instructions(nvdisasm, cubin):
    result = subprocess.run([nvdisasm, "-c", cubin], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"nvdisasm {cubin}: {result.stderr}")
    return [match.group(0).strip() for match in map(STEP.search, result.stdout.splitlines()) if match]


def overlaps(code):
    """Of each place where one of two products is waited for (all groups but one): the products issued since the last
    wait for everything, and the exponentials until the next such wait."""
    found, issued, partial, exponentials = [], 0, False, 0
    for line in code:
        if "GMMA" in line:
            issued += 1
        elif line.startswith("MUFU"):
            exponentials += partial
        elif line.startswith("WARPGROUP.DEPBAR"):
            if line.endswith("0x1"):
                partial, exponentials = True, 0
                continue
            if partial:
                found.append((issued, exponentials))
            issued, partial = 0, False
    return found


def forward_faults(name, code):
    eight_bits = re.search(r"_(e4m3|int8)_", name)
    product = "QGMMA" if eight_bits else "HGMMA"
    if not any(line.startswith(product) for line in code):
        return [f"{name}: no {product}, so the products aren't in the tensor cores"], 0
    steps = overlaps(code)
    if eight_bits:
        # As many bodies of a step as the variant says; some wait for O first. Where a second query fits, S of the next tile
        # beside O of this one's last block as well.
        variant = re.search(rf'^ *{{"{name}", (.*)$', VARIANTS_FP8.read_text(encoding="utf-8"), re.MULTILINE)
        if variant is None:
            return [f"{name}: not in {VARIANTS_FP8.name}; of an older build?"], 0
        bodies = re.search(r"\.bodies = (\d)", variant[1])
        expected = int(bodies[1] if bodies else 4) + (".query_buffers = 1" not in variant[1])
        return ([] if len(steps) == expected else
                [f"{name}: {len(steps)} steps with S and O in the tensor cores, not {expected}"]), 0
    if len(steps) != 2:  # a masked and an unmasked body
        return [f"{name}: {len(steps)} steps that have S and O in the tensor cores together, not 2"], 0
    head_dim = int(re.search(r"_d(\d+)", name)[1])
    faults = [f"{name}: a step issues {issued} products, which can't be all of S and some of O"
              for issued, _ in steps if issued <= head_dim // 16]
    most = max(exponentials for _, exponentials in steps)
    if most == 0:
        faults.append(f"{name}: no exponential runs while O is in the tensor cores")
    return faults, most


def check_instructions(folder, _):
    forward = [cubin for cubin in cubins(folder) if os.path.basename(cubin).startswith("forward_")]
    nvdisasm = disassembler()
    faults = []
    for cubin in forward:
        name = os.path.basename(cubin)[:-len(".cubin")]
        found, exponentials = forward_faults(name, instructions(nvdisasm, cubin))
        faults += found
        print(f"{name}: {exponentials} exponentials before O is waited for")
    repository.finish(faults, f"the instructions of {len(forward)} kernels" if forward else "")


def main():
    checks = {"records": check_records, "library": check_library, "instructions": check_instructions}
    if len(sys.argv) != 4 or sys.argv[1] not in checks:
        sys.exit(__doc__)
    checks[sys.argv[1]](sys.argv[2], sys.argv[3])


main()
