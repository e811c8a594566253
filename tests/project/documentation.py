"""Every file, folder and make target that the documentation names exists."""

import os
import re

import repository

OUTPUTS = ("build/", ".venv/")  # made by a build, so not in the repository
SUFFIXES = repository.CPP + (".py", ".md", ".cmake", ".sh", ".txt", ".json", ".safetensors")


def exists(path, known):
    """Is this a file or folder of the repository, by its full path or by the end of one?"""
    path = path.rstrip("/")
    return any(file == path or file.startswith(path + "/") or file.endswith("/" + path) or f"/{path}/" in file
               for file in known)


def looks_like_a_path(token, top):
    if not re.fullmatch(r"[\w.\-]+(/[\w.\-]+)*/?", token) or token.startswith(OUTPUTS):
        return False
    if re.match(r"[A-Z]+/|[A-Z]+\.(json|txt|npy|safetensors)$", token):
        return False  # a name that stands for the reader's own, as in FOLDER/vectors.json
    first = token.split("/")[0]
    return ("/" in token and first in top) or token.endswith(SUFFIXES)


def named_paths(path, text, top):
    """(line, path) of what a document or a comment names."""
    for number, line in enumerate(text.splitlines(), 1):
        if path.endswith(".md"):
            for token in re.findall(r"`([^`\s]+)`", line):
                if looks_like_a_path(token, top):
                    yield number, token
            for target in re.findall(r"\]\(([^)#\s]+)", line):
                if "://" not in target:
                    yield number, os.path.normpath(os.path.join(os.path.dirname(path), target))
        else:  # sources: the pages that comments point at
            for token in re.findall(r"\bdocs/[\w/\-]+\.md\b", line):
                yield number, token


def main():
    known = repository.files()
    top = {file.split("/")[0] for file in known if "/" in file}
    targets = set(re.findall(r"^([a-z][\w\-]*):", repository.read("Makefile"), flags=re.MULTILINE))
    documents = [file for file in known if file.endswith(".md") and not file.startswith("bench/results/")]
    faults, checked = [], 0
    for path in documents + [file for file in known if file.endswith(repository.CPP + (".py", ".cmake"))]:
        text = repository.read(path)
        for number, token in named_paths(path, text, top):
            checked += 1
            if not exists(token, known):
                faults.append(f"{path}:{number}: names {token}, which does not exist")
        if path in documents:
            for target in re.findall(r"(?:`|^\s*)make ([a-z][\w\-]*)", text, flags=re.MULTILINE):
                checked += 1
                if target not in targets:
                    faults.append(f"{path}: names `make {target}`, which the Makefile does not have")
    repository.finish(faults, f"{checked} paths and targets in {len(documents)} documents")


main()
