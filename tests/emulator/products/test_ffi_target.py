"""The handler of products in compiled JAX, called as XLA calls it: results, errors, and what it answers at registration."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.fake_xla import Buffer, FakeXla
from tilewise.interop.jax import call_frame, ffi_target
from tilewise.interop.jax.ffi_target import handlers
from tilewise.interop.jax.product_attributes import ProductAttributes

DRAW = np.random.default_rng(3)


def buffer(array: Any) -> Buffer:
    return array.ctypes.data, array.shape, str(array.dtype)


def random(*shape: int) -> Any:
    return DRAW.standard_normal(shape)


def test_a_product_in_memory_as_it_lies() -> None:
    a, b, bias, out, pre = random(2, 7, 4), random(3, 7), random(3), np.zeros((2, 4, 3)), np.zeros((2, 4, 3))
    attributes = ProductAttributes(
        ("bias",), transpose_a=True, transpose_b=True, activation="relu", alpha=0.5, keep=True
    )
    xla = FakeXla()
    assert (
        xla.call(handlers["cpu"], [*map(buffer, (a, b, bias))], [buffer(out), buffer(pre)], attributes)
        is None
    )
    wanted = 0.5 * a.swapaxes(1, 2) @ b.T + bias
    np.testing.assert_allclose(pre, wanted, rtol=1e-12)
    np.testing.assert_allclose(out, np.maximum(wanted, 0), rtol=1e-12)


def test_nothing_to_multiply() -> None:
    nothing: Buffer = (0, (0, 3), "float64")
    assert (
        FakeXla().call(
            handlers["CUDA"], [(0, (0, 2), "float64"), (0, (2, 3), "float64")], [nothing], ProductAttributes()
        )
        is None
    )
    a, b, out = random(2, 0), random(0, 3), np.ones((2, 3))
    assert FakeXla().call(handlers["cpu"], [buffer(a), buffer(b)], [buffer(out)], ProductAttributes()) is None
    assert not out.any()


def test_attributes_survive_their_text() -> None:
    every = ProductAttributes(
        ("c", "residual"), True, False, "gelu", 0.1, float("inf"), True, "tf32", "gpu:1"
    )
    assert ProductAttributes.from_json(every.to_json().encode()) == every
    assert every.expression == "gelu(keep(pre, alpha * acc + beta * c)) + residual"
    assert not ProductAttributes().changes_sums and ProductAttributes(alpha=2).is_bilinear


@pytest.mark.parametrize("platform", ["cpu", "CUDA"])
def test_the_version_is_no_newer_than_what_is_known(platform: str) -> None:
    assert FakeXla().ask_version(handlers[platform], 1) == (0, 1, 0)
    assert FakeXla().ask_version(handlers[platform], 99) == (0, 4, 0)


def test_errors_are_xlas_with_one_line() -> None:
    a, out = random(2, 2), np.zeros((2, 2))
    given = handlers["cpu"], [buffer(a), buffer(a)], [buffer(out)]
    xla = FakeXla()
    bad = ProductAttributes(device="tpu")
    assert xla.call(*given, bad) == (3, "device must be 'gpu', 'gpu:N' or 'emulator', not 'tpu'")
    for changes, message in (
        ({"stage": 1}, "tilewise: RuntimeError: XLA called a handler of tilewise in stage 1, which it has none for"),
        ({"struct_size": 8}, "tilewise: RuntimeError: XLA's call frame has 8 bytes, and tilewise needs .*newer jaxlib"),
        ({"attrs": call_frame._Attributes()}, "tilewise: RuntimeError: XLA's call of tilewise has no attribute product"),
    ):  # fmt: skip
        code, text = xla.call(*given, ProductAttributes(), **changes) or (0, "")
        assert code == 13 and "\n" not in text
        assert re.fullmatch(message, text)
    assert xla.call(*given, ProductAttributes()) is None
    assert ctypes.sizeof(call_frame.CallFrame) == 168  # XLA_FFI_CallFrame_STRUCT_SIZE of versions 0.3 and 0.4


@pytest.mark.parametrize("stream", [0, 0x7F00_1234_5678])
def test_the_stream_of_a_call_is_xlas_own(stream: int) -> None:
    """0 is the driver's default stream, which ctypes has None for."""
    found: list[int] = []

    def handle(pointer: Any) -> None:
        found.append(pointer.contents.stream())

    assert FakeXla(stream).call(handle, [], [], ProductAttributes()) is None
    assert found == [stream]


def test_memory_is_taken_from_xla_and_given_back() -> None:
    asked: list[int] = []

    def give(size: int) -> int:
        asked.append(size)
        return 0x7F00_0000_1000

    def handle(pointer: Any) -> None:
        frame = pointer.contents
        frame.free(768, frame.allocate(768))

    xla = FakeXla(allocate=give)
    assert xla.call(handle, [], [], ProductAttributes()) is None
    assert asked == [768] and xla.freed == [(0x7F00_0000_1000, 768)]


def test_what_xla_refuses_is_handed_back_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ffi_target, "_multiply", lambda frame, _on_gpu: frame.allocate(768))
    assert FakeXla().call(handlers["cpu"], [], [], ProductAttributes()) == (8, "out of memory")


def test_element_types_have_xlas_numbers() -> None:
    jax: Any = pytest.importorskip("jax")
    header = Path(jax.ffi.include_dir(), "xla/ffi/api/c_api.h").read_text()
    names = {"PRED": "bool", "BF16": "bfloat16", "C64": "complex64", "C128": "complex128"}
    names |= {"F8E5M2": "float8_e5m2", "F8E4M3FN": "float8_e4m3fn"}
    names |= {
        f"{letter}{bits}": f"{word}{bits}"
        for letter, word in (("S", "int"), ("U", "uint"))
        for bits in (8, 16, 32, 64)
    }
    names |= {f"F{bits}": f"float{bits}" for bits in (16, 32, 64)}
    theirs = {name: int(number) for name, number in re.findall(r"XLA_FFI_DataType_(\w+) = (\d+)", header)}
    assert {theirs[name]: ours for name, ours in names.items()} == call_frame._ELEMENT_TYPES
