#!/usr/bin/env bash
# Checks the CPU backend's thread pool and work stealing with loom: all interleavings of small cases. About 20 seconds, and a
# minute for the first build. Arguments are passed to the test program. CARGO_TARGET_DIR is respected.
set -euo pipefail
cd "$(dirname "$0")/../.."
CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}/loom" \
    cargo test --release --quiet --locked --manifest-path tests/loom/Cargo.toml -- "$@"
