#!/usr/bin/env bash
exec "$(dirname "$0")/../../.deps/venv/bin/python" "$(dirname "$0")/calibration.py" "$@"
