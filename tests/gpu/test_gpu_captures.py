"""Our memory while torch captures a graph: taken, given back and handed out, without an end to the capture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilewise as tw

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu


def capture_with(inside: Callable[[], Any]) -> None:
    """Capture and replay, with something of ours between two kernels of torch."""
    x = torch.randn(64, 64, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x + 1
        inside()
        z = y * 2
    x.copy_(torch.randn_like(x))
    graph.replay()
    assert torch.equal(z, (x + 1) * 2)


def test_arrays_come_and_go() -> None:
    device: Any = tw.device("gpu")
    kept = [device.empty((64, 64), "float32")]
    capture_with(kept.clear)
    capture_with(lambda: kept.append(device.empty((1 << 20,), "float32")))
    kept[0].copy_from(kept[0].numpy())
    capture_with(kept.clear)


def test_what_torch_had_is_freed_when_the_capture_has_ended() -> None:
    """That takes a wait for the whole GPU."""
    device: Any = tw.device("gpu")
    array = device.empty((1 << 20,), "float32")
    with torch.cuda.stream(torch.cuda.Stream()):  # which may be destroyed before the memory is freed
        kept: list[Any] = [array, torch.from_dlpack(array)]
    del array
    capture_with(kept.clear)
    assert len(device._handed_out) == 1
    device.empty((1,), "float32").free()
    assert not device._handed_out
