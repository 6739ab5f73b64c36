#!/usr/bin/env bash
# Checks and measures the CUDA backend on the GPU of this machine, and compares it with PyTorch if that is installed; prints
# short tables at the end, and writes them to tests/gpu/results, with GPU, driver, compiler and commit.
#
#   tests/gpu/run.sh                  build here, then check and measure here
#   tests/gpu/run.sh --build FILE     only build, and write a stripped program to FILE: to be copied with this script to a machine
#                                     without Rust or network
#   tests/gpu/run.sh --with FILE      check and measure with that program
#
# It needs a driver, libnvrtc and libcublasLt of CUDA 12.4 or later, and no network. The comparison (peers.py, which needs
# tests/peers) runs with ASSAY_PEERS_PYTHON, or with the python3 of PATH; if that has no PyTorch, or PyTorch has no CUDA device,
# one line says so. PEERS_FLAGS is passed to peers.py, CHECK_FLAGS to the program (`--tiny`).
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
    built=$(mktemp)
    trap 'rm -f "$built"' EXIT
    build "$built"
    program=$built
    ;;
*)
    echo "error: \`$1\` is unknown; there is --build FILE and --with FILE" >&2
    exit 2
    ;;
esac

# Without git or the history, the commit is that of the build.
commit=$(git --no-optional-locks rev-parse --short=12 HEAD 2>/dev/null || echo "${ASSAY_COMMIT:-unknown}")
results="${OUT:-tests/gpu}/results"
read -ra check_flags <<<"${CHECK_FLAGS:-}"
read -ra peers_flags <<<"${PEERS_FLAGS:-}"
tables=$(mktemp)
trap 'rm -f "$tables" ${built:+"$built"}' EXIT
status=0
"$program" --commit "$commit" --results "$results" "${check_flags[@]}" >"$tables" || status=$?
if [ $status -eq 0 ]; then
    python=${ASSAY_PEERS_PYTHON:-python3}
    if ! command -v "$python" >/dev/null 2>&1; then
        echo "peers: skipped: there is no $python" >>"$tables"
    else
        "$python" tests/gpu/peers.py --program "$program" --commit "$commit" --results "$results" "${peers_flags[@]}" \
            >>"$tables" || status=$?
    fi
fi
cat "$tables"
exit $status
