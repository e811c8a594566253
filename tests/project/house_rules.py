"""Small rules that every file keeps: no path of one machine, no unfinished mark, an opening comment in each source, and
the scripts executable."""

import os
import re

import repository

# Spelled in pieces, so that this file keeps its own rule.
MACHINE_PATH = re.compile(r"(?<![\w.$}])/(?:" + "|".join(("ro" + "ot", "wo" + "rk", "fa" + "rm", "ho" + "me")) + r")/\w")
UNFINISHED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X")) + r")\b")
TEXT = repository.CPP + (".py", ".md", ".cmake", ".sh", ".txt", ".in")
SCRIPTS = (".ci/run", "cmake/bootstrap.sh")


def main():
    paths = [path for path in repository.files() if path.endswith(TEXT) or path in ("Makefile", ".ci/run")]
    faults = []
    for path in paths:
        text = repository.read(path)
        for number, line in enumerate(text.splitlines(), 1):
            if MACHINE_PATH.search(line):
                faults.append(f"{path}:{number}: a path of one machine: {line.strip()}")
            if UNFINISHED.search(line):
                faults.append(f"{path}:{number}: an unfinished mark: {line.strip()}")
        if path.endswith(repository.CPP) and not text.lstrip().startswith(("//", "/*")):
            faults.append(f"{path}: does not open with a comment that says what it is for")
    faults += [f"{script}: is not executable" for script in SCRIPTS
               if not os.access(os.path.join(repository.ROOT, script), os.X_OK)]
    repository.finish(faults, f"{len(paths)} files")


main()
