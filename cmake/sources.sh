#!/usr/bin/env bash
# Lists the C, C++ and CUDA sources of the repository, one a line: what clang-format looks after.
set -euo pipefail
cd "$(dirname "$0")/.."
git ls-files --cached --others --exclude-standard -- '*.c' '*.h' '*.cpp' '*.hpp' '*.cu' '*.cuh' | sort -u |
  while read -r path; do [[ ! -f $path ]] || printf '%s\n' "$path"; done
