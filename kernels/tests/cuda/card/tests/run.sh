#!/bin/sh
# Builds the library and runs its tests with the Python that has NVRTC and numpy:
#   python3 -m venv VENV; VENV/bin/pip install numpy nvidia-cuda-nvrtc-cu12 nvidia-cuda-runtime-cu12 nvidia-cuda-nvcc-cu12
#   PYTHON=VENV/bin/python tests/run.sh [part of a case's name]
set -e
cd "$(dirname "$0")/.."
: "${PYTHON:=python3}"
CARGO_TARGET_DIR="${SOFTWARE_CUDA_TARGET:-${XDG_CACHE_HOME:-$HOME/.cache}/software-cuda}"
export CARGO_TARGET_DIR
cargo build --release --quiet
SOFTWARE_CUDA_LIBRARY="$CARGO_TARGET_DIR/release/libcuda.so" exec "$PYTHON" tests/run.py "$@"
