"""Files and functions stay short enough to read. Usage: sizes.py files | functions"""

import os
import shutil
import subprocess
import sys

import repository

FOLDERS = ("src", "include", "oracle", "tools", "tests", "bindings", "examples", "bench")
FILE_LINES = 600
FUNCTION_LINES = 100


def check_files():
    paths = [path for path in repository.files()
             if path.startswith(tuple(folder + "/" for folder in FOLDERS)) and path.endswith(repository.CPP + (".py",))]
    lengths = {path: repository.read(path).count("\n") for path in paths}
    repository.finish([f"{path}: {lines} lines, at most {FILE_LINES}" for path, lines in lengths.items()
                       if lines > FILE_LINES], f"{len(paths)} files")


def check_functions():
    lizard = shutil.which("lizard") or os.path.join(repository.ROOT, ".venv/bin/lizard")
    if not os.path.exists(lizard):
        repository.skip("lizard is not installed (pip install lizard)")
    folders = [folder for folder in ("src", "oracle", "tools") if os.path.isdir(os.path.join(repository.ROOT, folder))]
    # -i -1: only the warnings count, not lizard's own idea of how many are acceptable.
    result = subprocess.run([lizard, "-l", "cpp", "-L", str(FUNCTION_LINES), "-C", "1000", "-w", "-i", "-1", *folders],
                            cwd=repository.ROOT, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"lizard failed: {result.stderr}")
    repository.finish([line for line in result.stdout.splitlines() if "warning:" in line],
                      f"the functions of {', '.join(folders)}")


check_functions() if sys.argv[1:] == ["functions"] else check_files()
