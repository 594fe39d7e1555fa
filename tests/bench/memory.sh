#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
exec .deps/venv/bin/python -B tests/bench/memory.py "$@"
