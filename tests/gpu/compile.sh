#!/usr/bin/env bash
# Compiles every GPU kernel with the vendors' own compilers, which need no GPU: see compile.py.
#
#   tests/gpu/compile.sh [ARCHITECTURE...]      sm_80, sm_90a and sm_100 by default
#
# NVIDIA's compilers are wheels from PyPI, about 500 MB, in a separate folder under the target folder. AMD's are the packages
# hipcc (gfx90a) and clang-19 (gfx942), which are used if they are installed.
set -euo pipefail
cd "$(dirname "$0")/../.."

venv="${CARGO_TARGET_DIR:-$PWD/target}/venv-nvrtc"
if ! cmp -s tests/gpu/requirements.txt "$venv/installed"; then
    echo "installing NVIDIA's compilers into $venv (PyPI)" >&2
    python3 -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r tests/gpu/requirements.txt
    cp tests/gpu/requirements.txt "$venv/installed"
fi
exec "$venv/bin/python" tests/gpu/compile.py "$@"
