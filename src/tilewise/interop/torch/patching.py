"""Swap the linear layers of a model for tilewise's, in place: what was swapped, what was left and why; and undo it."""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from tilewise.errors import ArgumentError
from tilewise.interop.torch.layers import Linear, reason_to_skip

__all__ = ["Patch", "SkippedLayer", "SwappedLayer", "patch"]

_ACTIVATIONS: dict[type[torch.nn.Module], str] = {
    torch.nn.ReLU: "relu",
    torch.nn.GELU: "gelu",
    torch.nn.SiLU: "silu",
    torch.nn.Tanh: "tanh",
    torch.nn.Sigmoid: "sigmoid",
}
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@dataclass(frozen=True, slots=True)
class SwappedLayer:
    """A layer that tilewise multiplies now."""

    name: str
    in_features: int
    out_features: int
    activation: str | None = None  # that is part of its launch now
    activation_name: str | None = None  # the module in whose place there is a torch.nn.Identity


@dataclass(frozen=True, slots=True)
class SkippedLayer:
    """A linear layer that is left as it is."""

    name: str
    why: str


@dataclass
class Patch:
    """What :func:`patch` did to a model. Leaving a ``with`` block of it undoes it, as :meth:`undo` does."""

    swapped: tuple[SwappedLayer, ...] = ()
    left: tuple[SkippedLayer, ...] = ()
    _undo: list[Callable[[], None]] = field(default_factory=list, repr=False)

    def undo(self) -> None:
        """Make the model compute as it did without tilewise, in the same objects.

        What others have replaced since stays as they want it. A layer whose class they have changed keeps its
        activation, and a warning says so.
        """
        while self._undo:
            self._undo.pop()()

    def __enter__(self) -> Patch:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data, ready for JSON."""
        return {
            "swapped": [{name: getattr(one, name) for name in one.__slots__} for one in self.swapped],
            "left": [{"name": one.name, "why": one.why} for one in self.left],
        }

    def __str__(self) -> str:
        rows = [
            (one.name or "(the model)", f"{one.in_features} → {one.out_features}", _describe_activation(one))
            for one in self.swapped
        ]
        rows += [(one.name or "(the model)", "left", one.why) for one in self.left]
        widths = [max((len(row[i]) for row in rows), default=0) for i in (0, 1)]
        lines = [f"{name:{widths[0]}}  {size:{widths[1]}}  {rest}".rstrip() for name, size, rest in rows]
        total = len(self.swapped) + len(self.left)
        return "\n".join([f"{len(self.swapped)} of {total} linear layers swapped", *lines])


def patch(
    model: torch.nn.Module,
    *,
    fuse: bool = True,
    select: Callable[[str, torch.nn.Linear], bool] | None = None,
) -> Patch:
    """Have tilewise multiply in the torch.nn.Linear layers of ``model``, which is changed in place.

    Layers stay the same objects, and so do their parameters: optimizers, hooks, tied weights and state dicts go on as
    they were. With ``fuse`` an activation that follows a layer in a torch.nn.Sequential becomes part of its launch, and
    a torch.nn.Identity takes its place: who calls such a layer by itself, outside of its Sequential, has the activation
    too. ``select`` says by name and layer which to swap. Subclasses of Linear, layers with a forward of their own and
    weights of other types are left, and named in what comes back.

    >>> import torch
    >>> from tilewise.interop.torch import patch
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.Linear(32, 8))
    >>> print(patch(model))
    2 of 2 linear layers swapped
    0  8 → 32  gelu, of 1
    2  32 → 8
    """
    if not isinstance(model, torch.nn.Module):
        raise ArgumentError("model", "must be a torch.nn.Module", type(model).__name__)
    if select is not None and not callable(select):
        raise ArgumentError("select", "must be a function of a name and a layer", select)
    uses = Counter(id(module) for _, module in model.named_modules(remove_duplicate=False))
    followers = {id(one.layer): one for one in _find_followers(model)} if fuse else {}
    swapped: list[SwappedLayer] = []
    left: list[SkippedLayer] = []
    undo: list[Callable[[], None]] = []
    layers = [(name, layer) for name, layer in model.named_modules() if isinstance(layer, torch.nn.Linear)]
    reasons = [_reason_to_leave(name, layer, select) for name, layer in layers]  # before anything is changed
    for (name, layer), why in zip(layers, reasons, strict=True):
        if why is not None:
            left.append(SkippedLayer(name, why))
            continue
        follower = followers.get(id(layer))
        if follower is not None and (uses[id(layer)] > 1 or _is_watched(layer)):
            follower = None  # somebody sees, or uses, what comes before the activation
        undo.append(_swap(name, layer, follower))
        fused = (None, None) if follower is None else (follower.activation, follower.name)
        swapped.append(SwappedLayer(name, layer.in_features, layer.out_features, *fused))
    return Patch(tuple(swapped), tuple(left), undo)


def _reason_to_leave(
    name: str, layer: torch.nn.Linear, select: Callable[[str, torch.nn.Linear], bool] | None
) -> str | None:
    """Why a layer is not swapped, None if it is."""
    why = reason_to_skip(layer)
    return "was not selected" if why is None and select is not None and not select(name, layer) else why


@dataclass(frozen=True, slots=True)
class _Follower:
    """An activation behind a linear layer in a Sequential."""

    layer: torch.nn.Module
    sequence: torch.nn.Sequential
    key: str  # of the activation in the sequence
    name: str  # in the model
    activation: str


def _find_followers(model: torch.nn.Module) -> Iterator[_Follower]:
    """The activations that could be part of the launch before them."""
    for name, sequence in model.named_modules():
        if not isinstance(sequence, torch.nn.Sequential) or _has_own_forward(sequence, torch.nn.Sequential):
            continue
        if type(sequence).__iter__ is not torch.nn.Sequential.__iter__:
            continue  # it runs them in another order
        # NOTE: named_children() leaves out what it has had before, and neighbours there may be none.
        for (_, layer), (key, module) in itertools.pairwise(sequence._modules.items()):
            if layer is None or module is None:
                continue
            kind = type(module)
            if kind not in _ACTIVATIONS or _is_watched(module) or _has_own_forward(module, kind):
                continue
            tanh = isinstance(module, torch.nn.GELU) and module.approximate == "tanh"
            activation = "gelu_tanh" if tanh else _ACTIVATIONS[kind]
            yield _Follower(layer, sequence, key, f"{name}.{key}" if name else key, activation)


def _has_own_forward(module: torch.nn.Module, kind: type[torch.nn.Module]) -> bool:
    """Whether a module does something else when called than its kind."""
    return type(module).forward is not kind.forward or "forward" in vars(module)


def _is_watched(module: torch.nn.Module) -> bool:
    """Whether hooks see what goes into a module, or comes out of it."""
    return any(getattr(module, hooks) for hooks in _HOOKS)


def _swap(name: str, layer: torch.nn.Linear, follower: _Follower | None) -> Callable[[], None]:
    """Make a layer tilewise's, with the activation that follows; what is returned undoes both.

    NOTE: the object stays, and only its class changes, so that whoever holds it holds the swapped layer.
    """
    swapped: torch.nn.Module = layer
    swapped.__class__ = Linear
    give_back: Callable[[], None] | None = None
    if isinstance(swapped, Linear) and follower is not None:
        swapped.activation = follower.activation
        give_back = _remove_activation(follower)

    def undo() -> None:
        if type(swapped) is not Linear:
            if give_back is not None:
                rule = f"{name} is a {type(swapped).__name__} by now: it stays tilewise's, and so does its activation"
                warnings.warn(rule, stacklevel=3)
            return
        swapped.__class__ = torch.nn.Linear  # type: ignore[assignment]
        vars(swapped).pop("activation", None)
        if give_back is not None:
            give_back()

    return undo


def _remove_activation(follower: _Follower) -> Callable[[], None]:
    """Put an Identity in the place of an activation; what is returned undoes it, wherever that is by then."""
    sequence, key = follower.sequence, follower.key
    activation, identity = sequence._modules[key], torch.nn.Identity()
    identity.train(sequence.training)
    sequence._modules[key] = identity

    def undo() -> None:
        for place, module in sequence._modules.items():
            if module is identity:
                sequence._modules[place] = activation
        # A slice of the Sequential holds the Identity, too: it becomes an activation of the same kind.
        taken: torch.nn.Module = identity
        taken.__class__ = type(activation)
        vars(taken).update(vars(activation) | {"training": taken.training})

    return undo


def _describe_activation(one: SwappedLayer) -> str:
    return "" if one.activation is None else f"{one.activation}, of {one.activation_name}"
