"""The zoo's list of models: `@model(...)` enters a function into it.

A function takes `batch` and returns `(model, inputs)` as export_model.py wants them: small, random weights, no dropout
(random numbers of a run are not Python's), nothing downloaded. It must draw the same weights for every batch.
"""

import dataclasses
import os

MODELS = {}


@dataclasses.dataclass
class Entry:
    name: str
    function: object
    source: str  # FILE.py:FUNCTION for export_model.py
    kind: str
    loss: str = "mse"
    options: tuple = ()  # further options of export_model.py
    plan: tuple = ()  # further options of `pipewright plan`
    refused: str = ""  # phrase of the refusal that is right for this model
    quick: bool = False  # is in ./dev test, too: small, and needs torch only
    rate: float = 0.05
    measured: bool = False  # costs are measured, which runs the operators when the plan is made
    batch_dims: dict = dataclasses.field(default_factory=dict)


def model(kind, **facts):
    """Enters a function; its name is the model's."""
    def enter(function):
        path = os.path.abspath(function.__code__.co_filename)
        MODELS[function.__name__] = Entry(function.__name__, function, f"{path}:{function.__name__}", kind, **facts)
        return function
    return enter
