"""Dependencies point down only (docs/architecture.md): checked on the include graph of src/ and its neighbours."""

import os
import re

import repository

# Each part, the folder or file that it is, and the parts that it may include besides itself. The longest matching path
# wins. plan/attention.hpp and plan/executable.hpp are the contract between plan/ and the backends: both may see it.
PARTS = {
    "public": ("include/tandem", set()),
    "common": ("src/common", {"public"}),
    "contract": ("src/plan/attention.hpp src/plan/executable.hpp src/backends/backends.hpp", {"public", "common"}),
    "plan": ("src/plan", {"public", "common", "contract"}),
    "api": ("src/api", {"public", "common", "contract", "plan"}),
    "cpu": ("src/backends/cpu", {"public", "common", "contract"}),
    "ptx": ("src/backends/sm90/ptx", {"common", "emulator"}),
    "tile": ("src/backends/sm90/tile", {"common", "ptx"}),
    "math": ("src/backends/sm90/math", {"common", "ptx", "tile"}),
    "forward": ("src/backends/sm90/forward", {"public", "common", "contract", "ptx", "tile", "math", "sm90"}),
    "backward": ("src/backends/sm90/backward", {"public", "common", "contract", "ptx", "tile", "math", "sm90"}),
    "quantize": ("src/backends/sm90/quantize", {"public", "common", "contract", "ptx", "tile", "math", "sm90"}),
    "sm90": ("src/backends/sm90", {"public", "common", "contract", "forward", "backward", "quantize"}),
    "emulator": ("src/backends/emulator",
                 {"public", "common", "contract", "ptx", "tile", "math", "forward", "backward", "quantize", "sm90"}),
    "oracle": ("oracle", set()),
    "tools": ("tools", {"public", "common", "oracle"}),
}
HOST = {"public", "common", "plan", "contract", "api", "cpu", "oracle", "tools"}
CUDA_HEADER = re.compile(r"^(cuda(_\w+)?\.h|cuda/.*|cu(blas|dnn|tensor).*|nv\w*\.h|device_launch_parameters\.h)$")
HARDWARE = re.compile(r"\b(asm|__asm__|threadIdx|blockIdx|blockDim|gridDim|__syncthreads|__syncwarp|__shfl\w*|"
                      r"__ldg|atomicAdd|__nanosleep|__threadfence\w*)\b")


def part_of(path):
    best = ("", None)
    for name, (places, _) in PARTS.items():
        for place in places.split():
            if (path == place or path.startswith(place + "/")) and len(place) > len(best[0]):
                best = (place, name)
    return best[1]


def includes(path):
    """(line, name, quoted) of each include of a file."""
    for number, line in enumerate(repository.read(path).splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*([<"])([^">]+)[">]', line)
        if match:
            yield number, match.group(2), match.group(1) == '"'


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
        for number, name, quoted in includes(path):
            where = f"{path}:{number}"
            if part in HOST and CUDA_HEADER.match(name):
                faults.append(f"{where}: host code includes the CUDA header {name}")
            target = target_of(path, name, known)
            if target is None:
                continue
            graph[path].append(target)
            of_target = part_of(target)
            if of_target != part and of_target not in PARTS[part][1]:
                faults.append(f"{where}: {part} may not include {of_target} ({name})")
        if path.startswith("src/backends/sm90/") and part != "ptx":
            text = repository.without_comments(repository.read(path))
            for number, line in enumerate(text.splitlines(), 1):
                for word in HARDWARE.findall(line):
                    faults.append(f"{path}:{number}: {word} belongs in src/backends/sm90/ptx")
    faults += [f"include cycle: {cycle}" for cycle in cycles(graph)]
    repository.finish(faults, f"{len(paths)} files")


main()
