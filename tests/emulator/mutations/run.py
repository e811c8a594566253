#!/usr/bin/env python3
"""Plants faults in the product's kernels, one at a time, and asserts that the emulator reports each.

usage: run.py --build BUILD --compiler CXX [--part I/N | --all] [--jobs N] [NAME...]

A mutated kernel is compiled as the build compiles it, linked with the emulator, and run by `tandem run --check` or, where a
group names tests instead of problems, by one of the emulator's tests.
`--part` takes every N-th mutation from the I-th on; `--part sources/N` lets a hash of the kernels, the emulator and the
mutations choose: the same for every run of a commit, another for most commits that touch them.
"""
import argparse
import concurrent.futures
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import backward
import backward_wide
import forward
import forward_fp8
import kinds as kind
import others
import quantize

ROOT = pathlib.Path(__file__).resolve().parents[3]
SM90 = ROOT / "src/backends/sm90"
GROUPS = forward.GROUPS + forward_fp8.GROUPS + backward.GROUPS + backward_wide.GROUPS + others.GROUPS + quantize.GROUPS
SEEDS = (1, 2)
FLAGS = ["-std=c++20", "-x", "c++", "-O1", "-g1",
         "-fsanitize=thread,signed-integer-overflow,integer-divide-by-zero,shift,bounds", "-fPIC", "-fno-optimize-sibling-calls", "-w",
         "-fvisibility=hidden"]


class Mutant:
    def __init__(self, group, name, kinds, edits):
        self.group, self.name, self.kinds, self.edits = group, name, kinds, edits

    def title(self):
        return f"{self.group['kernel']}: {self.name}"

    def stale(self):
        """What is wrong with the edits, if the sources have changed since they were written."""
        with tempfile.TemporaryDirectory() as folder:
            try:
                self.write(pathlib.Path(folder))
            except ValueError as error:
                return f"STALE   {self.title()}: {error}"
        return None

    def write(self, folder):
        """Mutated copies of the sources, in a folder that the compiler searches first."""
        for file, old, new in self.edits:
            target = folder / "backends/sm90" / file
            text = (target if target.exists() else SM90 / file).read_text()
            # Layout doesn't matter: any white space stands for any other.
            pattern = re.compile(r"\s+".join(re.escape(word) for word in old.split()))
            count = len(pattern.findall(text))
            if count != 1:
                raise ValueError(f"{file} holds the text {count} times, not once:\n{old}")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(pattern.sub(lambda _: new.strip(), text))


def kinds_of(report):
    return [line.split(":")[0] for line in report.splitlines() if line and not line.startswith(" ") and ":" in line]


def runs(options, group):
    """The commands that a group is observed by, each with a name."""
    tests = options.build / "tests/emulator"
    for test in group.get("tests", ()):
        program, name = test.split()
        yield name, [str(tests / program), f"--gtest_filter={name}"]
    for problem in group.get("problems", ()):
        for seed in SEEDS:
            yield f"{problem}, seed {seed}", [str(options.build / "bin/tandem"), "run", *problem.split(), "--backend", "emulator",
                                              "--seed", str(seed), "--check"]


def observe(library, group, command):
    """One run: the kinds of what was found, and the report."""
    with tempfile.NamedTemporaryFile("r") as report:
        environment = dict(os.environ, TANDEM_EMULATOR_LIBRARY=str(library), TANDEM_EMULATOR_REPORT=report.name,
                           TANDEM_EMULATOR_OPTIONS=group["options"])
        try:
            result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        except subprocess.TimeoutExpired:
            return {"timeout"}, ""
        text = report.read()
    kinds = set(kinds_of(text))
    if result.returncode < 0:
        kinds.add(f"signal {-result.returncode}")
    elif result.returncode and not kinds:
        judged = "check against" in result.stdout or "Failure" in result.stdout
        kinds.add(kind.NUMBERS if judged else f"exit {result.returncode}")
    return kinds, text or result.stdout[-300:] + result.stderr[-300:]


def compile_kernel(options, name, target, overlay=None):
    source = options.build / "src/backends/sm90/kernels" / f"{name}.cu"
    includes = [f"-I{folder}" for folder in (overlay, ROOT / "src", ROOT / "include") if folder]
    subprocess.run([options.compiler, *FLAGS, *includes, "-c", str(source), "-o", str(target)], check=True,
                   capture_output=True, text=True)


def compile_others(options, groups):
    """The kernels that a mutant's problem needs besides it, as they are."""
    names = sorted({name for group in groups for name in group["others"]})
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(lambda name: compile_kernel(options, name, options.work / f"{name}.o"), names))


def compile_mutant(options, mutant, folder):
    mutant.write(folder)
    library = folder / "libmutant.so"
    compile_kernel(options, mutant.group["kernel"], folder / "kernel.o", folder)
    others = [str(options.work / f"{name}.o") for name in mutant.group["others"]]
    subprocess.run([options.compiler, "-shared", str(folder / "kernel.o"), *others, "-Wl,--whole-archive",
                    str(options.archive), "-Wl,--no-whole-archive", *options.link, "-o", str(library)], check=True)
    return library


def examine(options, mutant):
    """Whether the mutant is caught as foretold, and a line that says how."""
    seen, text = set(), ""
    with tempfile.TemporaryDirectory() as folder:
        try:
            library = compile_mutant(options, mutant, pathlib.Path(folder))
        except subprocess.CalledProcessError as error:
            return False, f"BROKEN  {mutant.title()}: does not compile:\n{error.stderr[:400]}"
        for _, command in runs(options, mutant.group):
            kinds, report = observe(library, mutant.group, command)
            seen |= kinds
            text = text or report
            if kinds & mutant.kinds:
                first = next((line for line in report.splitlines() if line.split(":")[0] in mutant.kinds), "wrong numbers")
                return True, f"caught  {mutant.title()}\n          {first.strip()[:150]}"
    if kind.EQUIVALENT in mutant.kinds:
        return not seen, f"{'right' if not seen else 'WRONG'}   {mutant.title()}: {', '.join(seen) or 'nothing reported'}"
    return False, f"MISSED  {mutant.title()}: {', '.join(sorted(seen)) or 'nothing reported'}, not {', '.join(sorted(mutant.kinds))}\n{text[:600]}"


def sound(options, group):
    """The kernel as it is must pass, or nothing that its mutants do says anything. Returns what is wrong."""
    library = options.build / "src/libtandem_emulator.so"
    for name, command in runs(options, group):
        kinds, report = observe(library, group, command)
        if kinds:
            return f"UNSOUND {group['kernel']}, {name}, without a mutation: {', '.join(kinds)}\n{report[:600]}"
    return None


def sources_number():
    """A number that the kernels, the emulator and the mutations decide."""
    digest = hashlib.sha256()
    for folder in (SM90, ROOT / "src/backends/emulator", pathlib.Path(__file__).parent):
        for file in sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"):
            digest.update(file.read_bytes())
    return int(digest.hexdigest(), 16)


def chosen(options, mutants):
    if options.names:
        return [mutant for mutant in mutants if any(name in mutant.title() for name in options.names)]
    if options.all:
        return mutants
    part, parts = options.part.split("/")
    part = sources_number() if part == "sources" else int(part)
    return mutants[part % int(parts)::int(parts)]


def examine_all(options, mutants):
    good = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for ok, line in pool.map(lambda mutant: examine(options, mutant), mutants):
            good += ok
            print(line, flush=True)
    return good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--archive", type=pathlib.Path, help="the emulator as a static library")
    parser.add_argument("--link", default="boost_context,backtrace", help="libraries to link, comma-separated")
    parser.add_argument("--part", default="sources/4")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    options.archive = options.archive or options.build / "src/backends/emulator/libtandem_emulator_static.a"
    options.link = [f"-l{name}" if "/" not in name else name for name in options.link.split(",") if name]
    mutants = [Mutant(group, *mutation) for group in GROUPS for mutation in group["mutations"]]
    stale = [line for line in (mutant.stale() for mutant in mutants) if line]
    if stale:
        sys.exit("\n".join(stale))
    mutants = chosen(options, mutants)
    groups = [group for group in GROUPS if any(mutant.group is group for mutant in mutants)]
    unsound = [line for line in (sound(options, group) for group in groups) if line]
    if unsound:
        sys.exit("\n".join(unsound))
    with tempfile.TemporaryDirectory() as work:
        options.work = pathlib.Path(work)
        compile_others(options, groups)
        good = examine_all(options, mutants)
    print(f"{good} of {len(mutants)} mutants behave as foretold")
    return 0 if good == len(mutants) else 1


if __name__ == "__main__":
    sys.exit(main())
