#!/usr/bin/env bash
# Trains the zoo's models (tests/zoo) by pipewright and in plain PyTorch: ./dev bench zoo [--only NAME,...] [--table FILE.md]
# transformers, torchvision and timm go into an environment of their own that sees the developers' torch.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
readonly venv=.deps/venv zoo=.deps/zoo
want=$(cat resources/requirements.txt resources/requirements-samples.txt | sha256sum)
if [[ ! -f $zoo/requirements.sha256 || $(<"$zoo/requirements.sha256") != "$want" ]]; then
  echo "zoo: fetching transformers, torchvision and timm into $zoo" >&2
  rm -rf "$zoo"
  "$venv/bin/python" -m venv "$zoo"
  packages=$(echo "$PWD/$venv"/lib/python3*/site-packages)
  echo "import site; site.addsitedir('$packages')" >"$(echo "$zoo"/lib/python3*/site-packages)/pipewright.pth"
  "$zoo/bin/python" -m pip install --quiet --disable-pip-version-check -r resources/requirements-samples.txt
  echo "$want" >"$zoo/requirements.sha256"
fi
OMP_NUM_THREADS=1 exec "$zoo/bin/python" -W ignore tests/zoo/zoo.py "$@"
