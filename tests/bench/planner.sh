#!/usr/bin/env bash
# How long people wait for a plan: partitions of very long chains, the first order made for given costs, a search for 64 ranks.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
exec python3 -B tests/bench/planner.py "$@"
