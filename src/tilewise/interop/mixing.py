"""Operands of several libraries in one product: the library of the result, and the streams involved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tilewise.devices import gpu
from tilewise.devices.exchange import LEGACY_STREAM
from tilewise.errors import ArgumentError
from tilewise.interop.view import HOST, Library, View, describe_space

__all__ = ["Common", "common"]


class Common(NamedTuple):
    """What the operands of one product share."""

    library: Library  # allocates the result
    space: tuple[int, int]  # where all of them lie
    like: View  # the operand that the result is like; of ``library``
    # The launch goes to the first; None is tilewise's current stream. Before it the first has to wait for
    # each of the others, and each of the others for the first after it: the libraries reuse memory in the
    # order of their own streams. Empty in host memory.
    streams: tuple[int | None, ...]


def common(views: Mapping[str, View]) -> Common:
    """The library, space and streams of an operation on ``views``.

    Libraries may be mixed within one space. A framework goes before our own arrays, these before other
    libraries', and all before NumPy; among equals the first decides.
    """
    like, *rest = views.values()
    apart = mixed = False
    for view in rest:
        apart |= view.space != like.space
        if view.library is not like.library:
            mixed = True
            if view.library.preference > like.library.preference:
                like = view
    if apart:
        raise _elsewhere(views)
    if like.space == HOST:
        return Common(like.library, HOST, like, ())
    streams = _streams(like, views) if mixed else (_stream(like),)
    return Common(like.library, like.space, like, streams)


def _streams(like: View, views: Mapping[str, View]) -> tuple[int | None, ...]:
    """The distinct streams of all operands, that of ``like`` first."""
    found = dict.fromkeys(map(_stream, (like, *views.values())))
    if len(found) > 1 and None in found:
        ours = gpu.open(like.space[1]).current_stream.handle
        found = {ours if handle is None else handle: None for handle in found}
    return tuple(found)


def _stream(view: View) -> int | None:
    """The stream of a view; the driver's default stream, which has two handles, always as the same."""
    return LEGACY_STREAM if (handle := view.library.stream(view)) == 0 else handle


def _elsewhere(views: Mapping[str, View]) -> ArgumentError:
    """Names the first two operands that lie apart, and how to bring either to the other."""
    (first, here), *rest = views.items()
    second, there = next((name, view) for name, view in rest if view.space != here.space)
    places = [
        f"{name} ({view.library.name}) lies {describe_space(view.space)}"
        for name, view in ((first, here), (second, there))
    ]
    moves = [here.library.move(first, there.space), there.library.move(second, here.space)]
    rule = f"must lie on one device, but {' and '.join(places)}"
    return ArgumentError(f"{first} and {second}", rule, None, f"use {' or '.join(moves)}")
