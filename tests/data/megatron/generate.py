#!/usr/bin/env python3
"""Writes layouts.json: see README.md. generate.py MEGATRON_LM MEGATRON_BRIDGE (git directories; nothing is checked out)."""

import enum
import json
import os
import random
import re
import subprocess
import sys
import types

PARSER = "megatron/core/transformer/pipeline_parallel_layer_layout.py"
CANDIDATE = re.compile(r"[EtmL|)(*,0-9]{3,}")
# Sizes that the places name: --pipeline-model-parallel-size, parameters of tests, names of recipes.
RANKS = {
    "E|t*3|(t|)*5mL": 4, "E|t*3|(t|)*4tm|L": 4, "E|t*3|(t|)*3tt|m|L": 4, "Et*3|(tt|)*29,m|L": 16, "Et*2|(tt|)*5t|tmL": 4,
    "Et*7|t*7mL": 2, "Et*3|(tt|)*6tmL": 2, "Et*3|(tt|)*6mL": 2, "Et*3|(tt|)*6L": 2, "Et|(tt|)*6mL": 2, "Et|t*4|t|tL": 2,
    "E|t*6|t|L": 2, "E|t|t*2|t||(t|)*2,t*2,L": 4, "Et*2|(tt|)*29,t|mL": 16, "Et*3|(tt|)*29m|L": 16, "Et*15|t*15|t*16|t*15L": 4,
    "Et*4|(tttt|)*14tmL": 4, "Et*4|(t*4|)*14tmL": 4, "Et|(tt|)*30mL": 8, "Et|(tt|)*30L": 8, "Et*11|t*11|t*11|t*10mL": 4,
    "E||t|L": 2, "Et|m|L": 3, "Et*2|(t*2|)*34,t*3|(t*2|)*3,tL": 8, "E|(t|)*3,m|m||L": 8, "E|(tt|)*2,(t|)*4,mL": 4,
}  # fmt: skip


def layer_layout(tree):
    """Megatron's class, loaded from its source without the rest of Megatron."""
    types_of = enum.Enum("LayerType", "embedding loss encoder decoder mtp")
    for name in ("megatron", "megatron.core", "megatron.core.transformer", "megatron.core._rank_utils", "megatron.core.transformer.enums"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["megatron.core"].parallel_state = None
    sys.modules["megatron.core._rank_utils"].safe_get_rank = lambda: 0
    sys.modules["megatron.core.transformer.enums"].LayerType = types_of
    scope = {"__name__": "layout"}
    exec(subprocess.check_output(["git", "-C", tree, "show", f"HEAD:{PARSER}"], text=True), scope)  # noqa: S102
    return scope["PipelineParallelLayerLayout"]


def strings(tree, name):
    found = {}
    out = subprocess.run(["git", "-C", tree, "grep", "-I", "-n", "-F", "|", "HEAD"], capture_output=True, text=True, errors="replace").stdout
    for line in out.splitlines():
        place = line.split(":", 3)
        for text in CANDIDATE.findall(place[3]):
            if text.startswith("E") and text.endswith("L") and "|" in text:
                found.setdefault(text, []).append(f"{name}/{place[1]}")
    return found


def letters(layout, text):
    try:
        stages = layout.parse_str_to_list(text)
    except (AssertionError, ValueError, RecursionError):
        return None
    return ["".join({"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}[x.name] for x in stage) for stage in stages]


def problem(layout, text, stages, ranks):
    every = "".join(stages)
    try:
        layout(text, ranks).validate_layer_layout(every.count("t"), every.count("m") or None)
    except AssertionError as error:
        return str(error)
    return ""


def random_text(dice):
    parts = []
    for _ in range(dice.randint(1, 9)):
        part = "".join(dice.choice("EtttttmL||,") for _ in range(dice.randint(0, 4)))
        kind = dice.random()
        if kind < 0.3:
            part = f"({part})*{dice.randint(0, 12)}"
        elif kind < 0.5:
            part = f"{part}{dice.choice('tm|')}*{dice.randint(0, 12)}"
        elif kind < 0.6:
            part = "".join(dice.choice("EtmL|()*,0123 x") for _ in range(dice.randint(1, 6)))
        parts.append(part)
    return "".join(parts)


def main(megatron, bridge):
    layout = layer_layout(megatron)
    corpus = strings(megatron, "NVIDIA/Megatron-LM")
    for text, places in strings(bridge, "NVIDIA-NeMo/Megatron-Bridge").items():
        corpus.setdefault(text, []).extend(places)
    # Written as an expression in src/megatron/bridge/recipes/glm/gb200/glm5.py.
    glm = "|".join(("E" + "t" * 14, "t" * 16, "t" * 12, "t" * 12, "t" * 12, "t" * 12 + "mL"))
    corpus[glm] = ["NVIDIA-NeMo/Megatron-Bridge/src/megatron/bridge/recipes/glm/gb200/glm5.py"]
    rows = []
    for text, places in sorted(corpus.items()):
        stages = letters(layout, text)
        ranks = RANKS.get(text, len(stages))
        rows.append({"layout": text, "stages": stages, "ranks": ranks, "problem": problem(layout, text, stages, ranks),
                     "places": sorted(set(places))})  # fmt: skip
    dice = random.Random(1)
    texts = [random_text(dice) for _ in range(400)]
    document = {"corpus": rows, "random": [{"layout": t, "stages": letters(layout, t)} for t in texts]}
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "layouts.json"), "w", encoding="utf-8") as out:
        out.write("{\n")
        for i, (key, value) in enumerate(document.items()):
            out.write(f'"{key}": [\n' + ",\n".join(json.dumps(row) for row in value) + ("\n],\n" if i == 0 else "\n]\n"))
        out.write("}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
