"""Each public header compiles by itself, without CUDA: tandem.h and its parts as C99 and C++20, tandem.hpp as C++20.
Usage: public_headers.py CC CXX DLPACK_INCLUDE"""

import subprocess
import sys

import repository

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]


def main():
    c, cpp, dlpack = sys.argv[1:4]
    headers = [path for path in repository.files() if path.startswith("include/tandem/")]
    faults, compiled = [], 0
    for header in headers:
        compilers = [[cpp, "-std=c++20", "-x", "c++"]]
        if header.endswith(".h"):
            compilers.append([c, "-std=c99", "-x", "c"])
        for compiler in compilers:
            # Twice, so that a missing guard shows.
            name = header[len("include/"):]
            text = f'#include "{name}"\n#include "{name}"\ntypedef int a_translation_unit_is_not_empty;\n'
            command = compiler + WARNINGS + ["-I", f"{repository.ROOT}/include", "-isystem", dlpack, "-"]
            if dlpack == "/usr/include":
                command = compiler + WARNINGS + ["-I", f"{repository.ROOT}/include", "-"]
            result = subprocess.run(command, input=text, capture_output=True, text=True)
            compiled += 1
            if result.returncode != 0:
                faults.append(f"{header} as {compiler[1]}:\n{result.stderr}")
    repository.finish(faults, f"{compiled} compilations of {len(headers)} headers")


main()
