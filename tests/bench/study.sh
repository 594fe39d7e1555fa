#!/usr/bin/env bash
# How fast studies are predicted, and that killing one ten times leaves every point once.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
exec python3 -B tests/bench/study.py "$@"
