"""torch.optim's optimizers as the engine knows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ._pipewright import UsageError, optimizers

if TYPE_CHECKING:
    import torch

NAMES = optimizers()
"""The engine's names of optimizers, by those of torch.optim's classes."""
NUMBERS = ("lr", "momentum", "alpha", "eps", "weight_decay")
"""The settings that the engine knows, where a class has them, beside ``betas`` and ``nesterov``."""
_OF_GROUPS = ("lr", "weight_decay")
"""What groups of parameters may differ in."""
_NOT_DONE = {"dampening": 0, "maximize": False, "amsgrad": False, "centered": False}
"""Options that the engine's optimizers do not have, by the value that turns them off."""


def make_optimizer(kind: Any, parameters: Iterable[torch.nn.Parameter], options: dict[str, Any]) -> torch.optim.Optimizer:
    """An optimizer of torch.optim, of an instance, a class or a name (``adamw``).

    :raises UsageError: where it is none that the engine knows, or has options that it does not know.
    """
    import torch

    if isinstance(kind, torch.optim.Optimizer):
        if options:
            raise UsageError(f"{next(iter(options))} is an option of an optimizer that exists already; set it where that is made")
        made = kind
    else:
        by_name = {name: getattr(torch.optim, cls) for cls, name in NAMES.items()}
        cls = by_name.get(kind, kind) if isinstance(kind, str) else kind
        if not (isinstance(cls, type) and issubclass(cls, torch.optim.Optimizer)):
            raise UsageError(f"{kind} is no optimizer; use an optimizer of torch.optim, its class, or one of {', '.join(by_name)}")
        made = cls(parameters, **options)
    kind_of(made)
    numbers_of(made)
    if made is kind:
        _check_parameters(made, list(parameters))
    return made


def _check_parameters(optimizer: torch.optim.Optimizer, parameters: list[torch.nn.Parameter]) -> None:
    """The engine updates all trainable parameters of the model, from the beginning."""
    updated = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    if updated - {id(parameter) for parameter in parameters}:
        raise UsageError("The optimizer has parameters that are not the model's; make it of model.parameters()")
    if any(parameter.requires_grad and id(parameter) not in updated for parameter in parameters):
        raise UsageError("The optimizer leaves out parameters of the model, and the engine updates all that require a gradient; "
                         "call requires_grad_(False) on those that stay as they are")
    if optimizer.state:
        raise UsageError("The optimizer has a state of earlier steps, which the engine does not take over; give a new one, or resume= a checkpoint")


def kind_of(optimizer: torch.optim.Optimizer) -> str:
    """The engine's name of an optimizer."""
    name = NAMES.get(type(optimizer).__name__) if type(optimizer).__module__.startswith("torch.optim") else None
    if name is None:
        raise UsageError(f"{type(optimizer).__name__} is not one of the engine's optimizers; use one of {', '.join(NAMES)} of torch.optim")
    decoupled = any(group.get("decoupled_weight_decay") for group in optimizer.param_groups)
    return "adamw" if name == "adam" and decoupled else name


def numbers_of(optimizer: torch.optim.Optimizer, names: Mapping[int, str] | None = None) -> dict[str, Any]:
    """What the next step uses: learning rate, decay, momentum and the like, of the first group of parameters.

    :param names: of the parameters, by ``id``: then ``groups`` is the learning rate, the decay and the parameters of each, if there are several.
    :raises UsageError: for groups that differ in anything else, and options that the engine does not have.
    """
    all_numbers = []
    for group in optimizer.param_groups:
        numbers: dict[str, Any] = {name: float(group[name]) for name in NUMBERS if name in group}
        if "betas" in group:
            numbers["beta1"], numbers["beta2"] = (float(beta) for beta in group["betas"])
        numbers["nesterov"] = bool(group.get("nesterov", False))
        for option, off in _NOT_DONE.items():
            if group.get(option, off) != off:
                raise UsageError(f"{option}={group[option]} of {type(optimizer).__name__} is not done by the engine; leave it at {off}")
        all_numbers.append(numbers)
    found = dict(all_numbers[0])
    for numbers in all_numbers:
        differing = [name for name in numbers if name not in _OF_GROUPS and found.get(name) != numbers[name]]
        if differing:
            raise UsageError(f"The groups of parameters differ in {differing[0]}, and the engine's may differ in {' and '.join(_OF_GROUPS)} only; "
                             "use one value for all")
    if names is not None and len(all_numbers) > 1:
        found["groups"] = [(numbers["lr"], numbers["weight_decay"], [names[id(parameter)] for parameter in group["params"]])
                           for numbers, group in zip(all_numbers, optimizer.param_groups)]
    return found
