"""What a launch on a stream uses is lent to it, so that its memory is not used again too early."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tilewise import calls


class Owner:
    """An array of ours on a GPU that notes which streams it is lent to."""

    def __init__(self) -> None:
        self.streams: list[int] = []

    def lend_to(self, stream: int) -> None:
        self.streams.append(stream)


@pytest.mark.parametrize(("streams", "lent"), [((7,), [7]), ((None,), []), ((7, 8, 9), [7])])
def test_every_array_is_lent_to_the_stream_of_the_launch(
    monkeypatch: pytest.MonkeyPatch, streams: tuple[int | None, ...], lent: list[int]
) -> None:
    """With more streams than one the others wait, behind the launch."""
    done: list[Any] = []

    def order_streams(given: tuple[int | None, ...]) -> Callable[[], None]:
        done.append(given)
        return lambda: done.append("others wait")

    where = SimpleNamespace(order_streams=order_streams)
    owners = [Owner() for _ in range(4)]
    monkeypatch.setattr(calls, "GpuArray", Owner)
    used = tuple(SimpleNamespace(owner=owner) for owner in (*owners[:2], object(), *owners[2:]))

    def bound(addresses: dict[str, int], stream: int | None) -> None:
        assert [owner.streams for owner in owners] == [lent] * 4
        done.append((addresses, stream))

    calls.start_on_gpu(bound, {"a": 5}, used, where, streams)  # type: ignore[arg-type]  # stand-ins
    launch = ({"a": 5}, streams[0])
    assert done == ([launch] if len(streams) == 1 else [streams, launch, "others wait"])
