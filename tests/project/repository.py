"""What the checks of the project share: the list of its files, source text without comments, and how a check ends."""

import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SKIPPED = 77  # the exit code that ctest knows as "skipped"
CPP = (".c", ".h", ".cpp", ".hpp", ".cu", ".cuh")


def files():
    """Paths of the repository's files relative to its root: what git knows or would add, else what lies there."""
    command = ["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True)
    if listed.returncode == 0 and listed.stdout:
        return sorted({path for path in listed.stdout.splitlines() if os.path.isfile(os.path.join(ROOT, path))})
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if not name.startswith("build") and name not in (".git", ".venv")]
        found += [os.path.relpath(os.path.join(folder, name), ROOT) for name in names]
    return sorted(found)


def sources(*folders):
    """The C, C++ and CUDA files under these folders."""
    prefixes = tuple(folder + "/" for folder in folders)
    return [path for path in files() if path.startswith(prefixes) and path.endswith(CPP)]


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8", errors="replace") as stream:
        return stream.read()


def without_comments(text):
    """C++ text with comments and string contents blanked out; line numbers stay."""
    pattern = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"'

    def blank(match):
        found = match.group(0)
        return '""' if found.startswith('"') else re.sub(r"[^\n]", " ", found)

    return re.sub(pattern, blank, text, flags=re.DOTALL)


def finish(faults, checked):
    """Ends the check: prints the faults, or what was checked. Checking nothing is a fault too."""
    for fault in faults:
        print(fault)
    if faults:
        sys.exit(f"{len(faults)} fault(s)")
    if not checked:
        sys.exit("nothing was found to check")
    print(f"checked {checked}: no fault")


def skip(reason):
    print(f"SKIPPED: {reason}")
    sys.exit(SKIPPED)
