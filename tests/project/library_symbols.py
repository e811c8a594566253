"""The library never aborts, exits or prints: no object of it refers to a function that does. Usage: library_symbols.py
NM OBJECT..."""

import re
import subprocess
import sys

import repository

FORBIDDEN = re.compile(
    r"^(abort|_?exit|_Exit|quick_exit|atexit|raise|kill|__assert_fail|__assert|perror|"
    r"v?f?printf|__v?f?printf_chk|dprintf|f?puts|f?putc|putchar|fwrite|stdout|stderr|"
    r"std::(cout|cerr|clog|terminate\(\)|abort|exit)|std::__glibcxx_assert_fail.*|hwy::Abort\(.*|hwy::Warn\(.*)$")

# Symbols that a library's header brings in although no path of ours reaches it, each with the reason.
ALLOWED = {
    "std::terminate()": "std::thread's destructor and move assignment refer to it for a thread still joinable; "
                        "Tandem joins every thread that it starts",
}


def main():
    nm, objects = sys.argv[1], [path for path in sys.argv[2:] if path.endswith((".o", ".obj"))]
    faults, undefined = [], 0
    for path in objects:
        lines = subprocess.run([nm, "--undefined-only", "--demangle", path], capture_output=True, text=True, check=True)
        for line in lines.stdout.splitlines():
            symbol = line.split(maxsplit=1)[1] if line.strip().startswith(("U ", "w ")) else ""
            undefined += bool(symbol)
            if symbol.startswith("__asan_") or symbol.startswith("__tsan_"):
                repository.skip("a sanitizer's build refers to its own run-time functions")
            name = re.sub(r"@.*", "", symbol)
            if FORBIDDEN.match(name) and name not in ALLOWED:
                faults.append(f"{path}: refers to {name}")
    repository.finish(faults, f"{undefined} undefined symbols of {len(objects)} objects" if objects else "")


main()
