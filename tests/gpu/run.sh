#!/usr/bin/env bash
# Checks and measures the CUDA backend on the GPU of the machine that this runs on, and compares it with PyTorch where there is
# one; prints short tables last, and keeps them in tests/gpu/results, with GPU, driver, compiler and commit.
#
#   tests/gpu/run.sh                  build here, then check and measure here
#   tests/gpu/run.sh --build FILE     only build, and leave a stripped program in FILE: what travels to a machine without
#                                     Rust or network, with this script
#   tests/gpu/run.sh --with FILE      check and measure with that program
#
# It needs a driver, libnvrtc and libcublasLt of CUDA 12.4 or later, and nothing from the network. The comparison (peers.py, with
# tests/peers beside it) is done by ASSAY_PEERS_PYTHON, or by the python3 of PATH; without PyTorch in it, or a CUDA device of
# PyTorch's, one line says so. PEERS_FLAGS is handed on to peers.py, CHECK_FLAGS to the program (`--tiny`).
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

# A machine without git, or without the history, has the commit from where the program was built.
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
