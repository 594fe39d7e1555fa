#!/usr/bin/env bash
# The solver is the bench's alone: it has an environment of its own.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
venv=build/bench/ortools
if [[ ! -x $venv/bin/python ]] || ! "$venv/bin/python" -c "import ortools" 2>/dev/null; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check ortools
fi
exec "$venv/bin/python" -B tests/bench/orders.py "$@"
