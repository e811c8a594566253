"""The library as its users get it: installed and found by CMake or pkg-config, or taken in by add_subdirectory; the
examples are built against it and those for the CPU run. Usage: package.py STEP BUILD_FOLDER CMAKE CC CXX DLPACK_INCLUDE,
where STEP is install (first), cmake, pkgconfig or subdirectory."""

import os
import shutil
import subprocess
import sys

import repository

STEP, BUILD, CMAKE, CC, CXX, DLPACK = sys.argv[1:7]
FOLDER = os.path.join(BUILD, "package-test")
PREFIX = os.path.join(FOLDER, "moved")  # installed elsewhere first: an installed tree can be moved
COMPILERS = [f"-DCMAKE_C_COMPILER={CC}", f"-DCMAKE_CXX_COMPILER={CXX}", "-DCMAKE_BUILD_TYPE=Release", "-G", "Ninja"]
HAVE_GPU = os.path.exists("/dev/nvidia0")


def call(*command, **environment):
    print("+", *command, flush=True)
    subprocess.run(command, check=True, env=os.environ | environment)


def fresh(name):
    path = os.path.join(FOLDER, name)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    return path


def run(program, **environment):
    if program.endswith("_cuda") and not HAVE_GPU:
        print(f"{os.path.basename(program)}: built, not run: this machine has no NVIDIA GPU")
    else:
        call(program, **environment)


def install():
    shutil.rmtree(PREFIX, ignore_errors=True)
    first = fresh("first")
    call(CMAKE, "--install", BUILD, "--prefix", first)
    os.rename(first, PREFIX)
    for folder, _, names in os.walk(PREFIX):
        for name in names:
            path = os.path.join(folder, name)
            if name.endswith((".cmake", ".pc", ".h", ".hpp")):
                with open(path, encoding="utf-8") as stream:
                    text = stream.read()
                for place in (repository.ROOT, BUILD):
                    assert place not in text, f"{path} names {place}, a folder of this machine"
            if name.endswith((".h", ".hpp")):
                assert "cuda" not in " ".join(l for l in text.splitlines() if l.lstrip().startswith("#include"))
    for wanted in ("LICENSE", "tandem.pc", "tandemConfig.cmake", "tandem.hpp", "tandem.h", "libtandem.a", "libtandem.so"):
        assert any(wanted in names for _, _, names in os.walk(PREFIX)), f"{wanted} was not installed"


def with_cmake():
    for language in ("cpp", "c"):
        build = fresh(f"examples-{language}")
        call(CMAKE, "-S", f"{repository.ROOT}/examples/{language}", "-B", build, f"-DCMAKE_PREFIX_PATH={PREFIX}", *COMPILERS)
        call(CMAKE, "--build", build)
        programs = sorted(os.path.join(build, name) for name in os.listdir(build) if name.startswith("attention"))
        programs = [path for path in programs if os.path.isfile(path) and os.access(path, os.X_OK)]
        assert programs, f"examples/{language} built no program"
        for program in programs:
            run(program)


def pkg_config(*flags):
    for folder, _, names in os.walk(PREFIX):
        if "tandem.pc" in names:
            result = subprocess.run(["pkg-config", *flags, "tandem"], check=True, capture_output=True, text=True,
                                    env=os.environ | {"PKG_CONFIG_PATH": folder})
            return result.stdout.split()
    sys.exit("tandem.pc was not installed")


def with_pkg_config():
    build = fresh("pkg-config")
    libraries = next(flag[2:] for flag in pkg_config("--libs") if flag.startswith("-L"))
    dlpack = [] if DLPACK == "/usr/include" else ["-isystem", DLPACK]
    for compiler, source in (([CXX, "-std=c++20"], "cpp/attention.cpp"), ([CC, "-std=c11"], "c/attention.c")):
        program = os.path.join(build, source.replace("/", "-").replace(".", "-"))
        command = [*compiler, f"{repository.ROOT}/examples/{source}", *dlpack, *pkg_config("--cflags")]
        call(*command, "-o", program, *pkg_config("--libs"))
        run(program, LD_LIBRARY_PATH=libraries)
        static = [flag for flag in pkg_config("--libs", "--static") if flag not in ("-ltandem", f"-L{libraries}")]
        call(*command, "-o", program + "-static", os.path.join(libraries, "libtandem.a"), *static)
        run(program + "-static")


def with_add_subdirectory():
    build = fresh("subdirectory")  # without kernels, which take minutes and are in the main build already
    call(CMAKE, "-S", f"{repository.ROOT}/tests/project/subdirectory", "-B", build, "-DTANDEM_CUDA=OFF",
         f"-DTANDEM_SOURCE={repository.ROOT}", *COMPILERS)
    call(CMAKE, "--build", build)
    run(os.path.join(build, "attention"))


{"install": install, "cmake": with_cmake, "pkgconfig": with_pkg_config, "subdirectory": with_add_subdirectory}[STEP]()
