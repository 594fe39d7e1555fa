#!/usr/bin/env python3
"""Regenerates the sample archives `resources/models/*.pt2` from `sample_models.py`.

    make_samples.py [NAME ...]

Without names, all are made. Needs requirements.txt and requirements-samples.txt; the same versions give the same
bytes. Exit status: 0 all written, 2 an unknown name or a failed export (reported in one sentence).
"""

import os
import sys

import export_model

# Archive name to (function in sample_models.py, further options of export_model.py).
SAMPLES = {
    "gpt_small": ("gpt_small", []),
    "gpt_small_meta": ("gpt_small", ["--meta"]),
    "gpt_split": ("gpt_split", []),
    "hf_gpt2": ("hf_gpt2", []),
    "hf_llama": ("hf_llama", []),
    "hf_bert": ("hf_bert", []),
    "resnet18_narrow": ("resnet18_narrow", []),
    "vit_small": ("vit_small", []),
    "example_code": ("example_code", []),
    "two_part_a": ("two_part_a", []),
    "two_part_b": ("two_part_b", []),
}


def make(name):
    """Exports one sample with seed 0; returns export_model's exit status."""
    function, options = SAMPLES[name]
    target = os.path.join("resources", "models", name + ".pt2")
    status = export_model.main([f"resources/sample_models.py:{function}", "--out", target, *options])
    if status == 0:
        print(f"{target}  {os.path.getsize(target)} bytes")
    return status


def main(names):
    """Makes the named samples, or all; returns the exit status."""
    unknown = [name for name in names if name not in SAMPLES]
    if unknown:
        print(f"make_samples: '{unknown[0]}' is not a sample; choose from {', '.join(SAMPLES)}.", file=sys.stderr)
        return 2
    os.chdir(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    os.makedirs(os.path.join("resources", "models"), exist_ok=True)
    return max(make(name) for name in names or SAMPLES)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
