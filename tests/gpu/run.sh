#!/usr/bin/env bash
# Checks and measures the CUDA backend on the GPU of the machine that this runs on; prints a short table last, and keeps
# it in tests/gpu/results, with GPU, driver, compiler and commit.
#
#   tests/gpu/run.sh                  build here, then check and measure here
#   tests/gpu/run.sh --build FILE     only build, and leave a stripped program in FILE: what travels to a machine without
#                                     Rust or network, with this script
#   tests/gpu/run.sh --with FILE      check and measure with that program
#
# It needs a driver, libnvrtc and libcublasLt of CUDA 12.4 or later, and nothing from the network.
set -euo pipefail
cd "$(dirname "$0")/../.."

build() {
    cargo build --release -p assay -p assay-gpu-check
    cp "${CARGO_TARGET_DIR:-target}/release/assay-gpu-check" "$1"
    strip "$1"
}

case "${1:-}" in
--build)
    build "$2"
    ls -l "$2"
    exit
    ;;
--with) program=$2 ;;
"")
    program=$(mktemp)
    trap 'rm -f "$program"' EXIT
    build "$program"
    ;;
*)
    echo "error: \`$1\` is unknown; there is --build FILE and --with FILE" >&2
    exit 2
    ;;
esac

# A machine without git, or without the history, has the commit from where the program was built.
commit=$(git --no-optional-locks rev-parse --short=12 HEAD 2>/dev/null || echo "${ASSAY_COMMIT:-unknown}")
"$program" --commit "$commit" --results "${OUT:-tests/gpu}/results"
