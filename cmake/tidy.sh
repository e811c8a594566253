#!/usr/bin/env bash
# Runs clang-tidy, as .clang-tidy configures it, on the host sources that the build folder's compile commands name.
# The CPU kernels are left out: Highway includes each of them once for every instruction set, which takes minutes here.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD:-build}
[[ -f $build/compile_commands.json ]] || {
  printf 'tidy: %s/compile_commands.json is missing: run make first\n' "$build" >&2
  exit 1
}
python3 - "$build/compile_commands.json" "$PWD" <<'PYTHON' |
import json, os, sys
root = sys.argv[2]
folders = tuple(os.path.join(root, folder, "") for folder in ("src/api", "src/plan", "src/common", "tools"))
print(*sorted({entry["file"] for entry in json.load(open(sys.argv[1])) if entry["file"].startswith(folders)}), sep="\n")
PYTHON
  xargs -r -n 1 -P "${JOBS:-2}" clang-tidy --quiet -p "$build" 2> >(grep -v 'warnings\? generated' >&2 || true)
printf 'tidy: clean\n'
