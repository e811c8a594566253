"""The README's code works: its C++ program builds, links and runs; its C function compiles and links into a program; its
commands name options that the program has. Usage: readme.py CC CXX DLPACK_INCLUDE LIBRARY [PROGRAM]"""

import os
import re
import subprocess
import sys
import tempfile

import repository

CC, CXX, DLPACK, LIBRARY = sys.argv[1:5]
PROGRAM = sys.argv[5] if len(sys.argv) > 5 else None
FLAGS = ["-Wall", "-Wextra", "-Werror", f"-I{repository.ROOT}/include"]
FLAGS += [] if DLPACK == "/usr/include" else ["-isystem", DLPACK]
LINK = [LIBRARY, f"-Wl,-rpath,{os.path.dirname(LIBRARY)}"]


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", repository.read("README.md"), flags=re.MULTILINE | re.DOTALL)


def check(faults, what, command, text=None):
    result = subprocess.run(command, input=text, capture_output=True, text=True)
    if result.returncode != 0:
        faults.append(f"README's {what}: {result.stdout}{result.stderr}")


def check_commands(faults, known_commands=("run", "info", "verify", "bench")):
    """Each `tandem` command of the README exists, and so does each option that it is given."""
    count = 0
    for line in re.findall(r"^build/bin/tandem (.*)$", "\n".join(blocks("sh")), flags=re.MULTILINE):
        command, *words = line.split("#")[0].split()
        help_text = subprocess.run([PROGRAM, command, "--help"], capture_output=True, text=True)
        if command not in known_commands or help_text.returncode != 0:
            faults.append(f"README's command tandem {command} does not exist")
        for option in (word for word in words if word.startswith("--")):
            count += 1
            if option not in help_text.stdout:
                faults.append(f"README's option tandem {command} {option} does not exist")
    return count


def main():
    faults = []
    (cpp,), (c,) = blocks("cpp"), blocks("c")
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "readme")
        check(faults, "C++", [CXX, "-std=c++20", *FLAGS, "-x", "c++", "-", "-x", "none", "-o", program, *LINK], cpp)
        if not faults:
            check(faults, "C++ program", [program])
        main_text = "\nint main(void) { return attention(0, 0, 0, 0, 0, 0, 0) == TANDEM_INVALID_ARGUMENT ? 0 : 1; }\n"
        check(faults, "C", [CC, "-std=c11", *FLAGS, "-x", "c", "-", "-x", "none", "-o", program + "-c", *LINK], c + main_text)
        if not faults:
            check(faults, "C function", [program + "-c"])
    options = check_commands(faults) if PROGRAM else 0
    repository.finish(faults, f"two code blocks and {options} options")


main()
