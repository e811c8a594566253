"""Dependencies point down only (docs/architecture.md): checked on the include graph of src/ and its neighbours."""

import os
import re

import repository

# The parts from the bottom up: name, the paths that belong to it (the first match counts) and the parts that it may
# include besides itself. Where two layers share types, those files are a part of their own below both:
#   contract: what plan/ and every backend agree on;
#   facts:    what plan/ must know of the Hopper kernels to decide (variants, parameters), free of CUDA.
# ptx and emulator know each other: the emulator implements ptx for the host.
HOPPER = r"src/backends/sm90/"
PARTS = [
    ("public", r"include/tandem/", ""),
    ("common", r"src/common/", "public"),
    ("contract", r"src/(plan/(attention|executable)|backends/backends)\.hpp", "public common"),
    ("facts", HOPPER + r"((device|tensor_maps|variants)\.hpp|ptx/types\.hpp|\w+/((\w+_)?config|params|variants|visits)\.hpp)",
     "public common contract"),
    ("plan", r"src/plan/", "public common contract facts"),
    ("api", r"src/api/", "public common contract plan"),
    ("cpu", r"src/backends/cpu/", "public common contract plan"),
    ("ptx", HOPPER + "ptx/", "common facts emulator"),
    ("tile", HOPPER + "tile/", "common facts ptx"),
    ("math", HOPPER + "math/", "common facts ptx tile"),
    ("kernel", HOPPER + r"\w+/(\w+\.cuh|named_barriers\.hpp)", "public common facts ptx tile math"),
    ("sm90", HOPPER, "public common contract facts plan"),
    ("emulator", r"src/backends/emulator/", "public common contract facts plan ptx tile math kernel sm90"),
    ("oracle", r"oracle/", ""),
    ("tools", r"tools/", "public common contract plan oracle facts ptx tile math kernel sm90"),
]
ALLOWED = {name: set(allowed.split()) | {name} for name, _, allowed in PARTS}
CUDA_HEADER = re.compile(r"^(cuda(_\w+)?\.h|cuda/.*|cu(blas|dnn|tensor).*|nv\w*\.h|device_launch_parameters\.h)$")
HARDWARE = re.compile(r"\b(asm|__asm__|threadIdx|blockIdx|blockDim|gridDim|__syncthreads|__syncwarp|__shfl\w*|"
                      r"__ldg|atomicAdd|__nanosleep|__threadfence\w*)\b")


def part_of(path):
    return next((name for name, pattern, _ in PARTS if re.match(pattern, path)), None)


def includes(path):
    """(line, name) of each include of a file."""
    for number, line in enumerate(repository.read(path).splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*[<"]([^">]+)[">]', line)
        if match:
            yield number, match.group(1)


def target_of(path, name, known):
    """The repository's file that an include means, or None for a foreign header."""
    for folder in ("src", "include", "", os.path.dirname(path), "tools"):
        candidate = os.path.normpath(os.path.join(folder, name))
        if candidate in known:
            return candidate
    return None


def cycles(graph):
    """Include cycles, found by depth-first search."""
    state, found = {}, []

    def visit(node, trail):
        state[node] = "open"
        for after in graph.get(node, ()):
            if state.get(after) == "open":
                found.append(" -> ".join(trail[trail.index(after):] + [after]) if after in trail else after)
            elif after not in state:
                visit(after, trail + [after])
        state[node] = "done"

    for node in graph:
        if node not in state:
            visit(node, [node])
    return found


def main():
    paths = repository.sources("src", "include", "oracle", "tools")
    known, faults, graph = set(repository.files()), [], {}
    for path in paths:
        part = part_of(path)
        if part is None:
            faults.append(f"{path}: belongs to no part that tests/project/layers.py knows")
            continue
        graph[path] = []
        for number, name in includes(path):
            if CUDA_HEADER.match(name) and part != "ptx" and not path.endswith(".cu"):
                faults.append(f"{path}:{number}: includes the CUDA header {name}; only ptx/ knows the hardware")
            target = target_of(path, name, known)
            if target is None:
                continue
            graph[path].append(target)
            if part_of(target) not in ALLOWED[part]:
                faults.append(f"{path}:{number}: {part} may not include {part_of(target)} ({name})")
        if path.startswith("src/backends/sm90/") and part != "ptx":
            text = repository.without_comments(repository.read(path))
            for number, line in enumerate(text.splitlines(), 1):
                for word in HARDWARE.findall(line):
                    faults.append(f"{path}:{number}: {word} belongs in src/backends/sm90/ptx")
    faults += [f"include cycle: {cycle}" for cycle in cycles(graph)]
    repository.finish(faults, f"{len(paths)} files")


main()
