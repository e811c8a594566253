"""The library without kernels compiles for 64-bit Arm, warnings as errors. Usage: cross.py DLPACK_INCLUDE"""

import concurrent.futures
import os
import shutil
import subprocess
import sys
import tempfile

import repository

FOLDERS = ("src/api", "src/common", "src/plan", "src/backends/cpu")
HEADERS = {"hwy": "/usr/include/hwy", "dlpack": os.path.join(sys.argv[1], "dlpack")}  # plain headers of any machine


def main():
    compiler = shutil.which("aarch64-linux-gnu-g++")
    if compiler is None:
        repository.skip("the cross compiler is missing (apt-get install g++-aarch64-linux-gnu)")
    paths = [path for path in repository.sources(*FOLDERS) if path.endswith(".cpp")]
    with tempfile.TemporaryDirectory() as include:
        # Links to the two libraries alone: the machine's own headers must not meet the cross compiler's.
        for name, target in HEADERS.items():
            os.symlink(target, os.path.join(include, name))
        command = [compiler, "-std=c++20", "-O1", "-c", "-o", os.devnull, "-Wall", "-Wextra", "-Wno-psabi", "-Werror",
                   "-isystem", include, "-Iinclude", "-Isrc", "-DTANDEM_HAS_CPU=1"]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            results = list(pool.map(lambda path: subprocess.run(command + [path], cwd=repository.ROOT, capture_output=True,
                                                                text=True), paths))
    repository.finish([f"{path}: {result.stderr[:600]}" for path, result in zip(paths, results) if result.returncode != 0],
                      f"{len(paths)} sources with {os.path.basename(compiler)}")


main()
