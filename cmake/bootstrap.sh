#!/usr/bin/env bash
# Installs what a build needs on Debian or Ubuntu, and nothing where all of it is there already. With --checks also what
# the format and lint checks need. The CUDA compiler comes from PyPI into .venv/ where the machine has none, so that the
# Hopper kernels compile anywhere; TANDEM_CUDA=OFF leaves it out.
set -euo pipefail
cd "$(dirname "$0")/.."

cuda=${TANDEM_CUDA:-AUTO}
packages=()

fail() {
  printf 'bootstrap: %s\n' "$*" >&2
  exit 1
}

# need PACKAGE PROBE...: asks for the package unless the probe, a shell command, succeeds.
need() {
  local package=$1
  shift
  "$@" >/dev/null 2>&1 || packages+=("$package")
}

header() { # Is there a system header of this name?
  printf '#include <%s>\n' "$1" | g++ -std=c++17 -E -x c++ - -o /dev/null
}

find_missing() {
  packages=()
  need g++ command -v g++
  need cmake command -v cmake
  need ninja-build command -v ninja
  need ccache command -v ccache
  need gnuplot-nox command -v gnuplot
  need python3 command -v python3
  need python3-venv python3 -c 'import ensurepip, venv'
  need pkg-config command -v pkg-config
  need binutils command -v nm
  need libhwy-dev header hwy/highway.h
  need libcli11-dev header CLI/CLI.hpp
  need nlohmann-json3-dev header nlohmann/json.hpp
  need libfmt-dev header fmt/format.h
  need libgtest-dev header gtest/gtest.h
  need libboost-context-dev header boost/context/fiber.hpp
  need libdlpack-dev header dlpack/dlpack.h
  if [[ ${1:-} == --checks ]]; then
    need clang-format command -v clang-format
    need clang-tidy command -v clang-tidy
    need g++-aarch64-linux-gnu command -v aarch64-linux-gnu-g++
  fi
}

install_packages() {
  command -v apt-get >/dev/null ||
    fail "missing: ${packages[*]} (names of Debian packages). This machine has no apt-get: install their equivalents"
  local as_root=()
  if [[ $(id -u) != 0 ]]; then
    command -v sudo >/dev/null ||
      fail "missing: ${packages[*]}. Installing them needs root: run 'apt-get install ${packages[*]}' as root, then again"
    as_root=(sudo)
  fi
  printf 'bootstrap: installing %s\n' "${packages[*]}"
  "${as_root[@]}" apt-get update -qq || fail "apt-get update failed"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" \
    >/dev/null || fail "apt-get install failed for: ${packages[*]}"
}

have_nvcc() { # One of CUDA 13 or newer, where cmake/nvcc.cmake looks?
  local nvcc
  for nvcc in "$(command -v nvcc)" "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" \
    .venv/lib/python3*/site-packages/nvidia/cu13/bin/nvcc; do
    [[ -x $nvcc ]] && "$nvcc" --version | grep -qE 'release (1[3-9]|[2-9][0-9])\.' && return 0
  done
  return 1
}

make_venv() {
  [[ -x .venv/bin/pip ]] || python3 -m venv .venv
}

install_nvcc() {
  printf 'bootstrap: installing the CUDA 13.0 compiler from PyPI into .venv (about 300 MB)\n'
  if ! { make_venv && .venv/bin/pip install --quiet --disable-pip-version-check 'nvidia-cuda-nvcc==13.0.*' \
    'nvidia-cuda-crt==13.0.*' 'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-cccl==13.0.*' 'nvidia-nvvm==13.0.*'; }; then
    [[ $cuda != ON ]] || fail "TANDEM_CUDA=ON, but there is no nvcc, and PyPI's could not be installed"
    printf 'bootstrap: no nvcc could be installed: the Hopper kernels will be left out\n' >&2
  fi
}

have_nvdisasm() { # Where tests/sm90/resources.py looks?
  local nvdisasm
  for nvdisasm in "$(command -v nvdisasm)" "${CUDA_HOME:-/usr/local/cuda}/bin/nvdisasm" \
    .venv/lib/python3*/site-packages/nvidia/cu13/bin/nvdisasm; do
    [[ -x $nvdisasm ]] && return 0
  done
  return 1
}

find_missing "${1:-}"
if ((${#packages[@]})); then
  install_packages
  find_missing "${1:-}" # probes for headers fail while the compiler is missing, so look again
  ((${#packages[@]} == 0)) || install_packages
fi
[[ $cuda == OFF ]] || have_nvcc || install_nvcc
if [[ ${1:-} == --checks ]] && ! command -v lizard >/dev/null && [[ ! -x .venv/bin/lizard ]]; then
  make_venv && .venv/bin/pip install --quiet --disable-pip-version-check lizard ||
    printf 'bootstrap: lizard could not be installed: the test of function lengths will be skipped\n' >&2
fi
if [[ ${1:-} == --checks && $cuda != OFF ]] && ! have_nvdisasm; then
  make_venv && .venv/bin/pip install --quiet --disable-pip-version-check 'nvidia-cuda-nvdisasm==13.*' ||
    printf 'bootstrap: nvdisasm could not be installed: the test of machine code will be skipped\n' >&2
fi
