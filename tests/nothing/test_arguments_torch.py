"""PyTorch's tensors as arguments of kernels: arrays like any other, written to where they lie."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

from tilewise import Kernel
from tilewise.devices.arguments import pack
from tilewise.errors import ArgumentError
from tilewise.launch import Parameter

torch = pytest.importorskip("torch")

SOURCE = """
extern "C" __global__ void twice(float *x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= 2; }
extern "C" __global__ void add(const float *a, const float *b, float *c) {
    c[threadIdx.x] = a[threadIdx.x] + b[threadIdx.x]; }
extern "C" __global__ void flip(void *x) { ((unsigned char *)x)[threadIdx.x] ^= 0x80; }
extern "C" __global__ void bits(const unsigned short *x, int *y) { y[threadIdx.x] = x[threadIdx.x]; }
extern "C" __global__ void count(long long n, long long *y) { *y = n; }
"""
NARROW = ["bfloat16", "float8_e4m3fn", "float8_e5m2"]


def launch(name: str, threads: int, *args: Any) -> None:
    Kernel(SOURCE, name)(1, threads, args, device="emulator")


def refused(name: str, *args: Any) -> str:
    with pytest.raises(ArgumentError) as caught:
        launch(name, 1, *args)
    return str(caught.value)


def test_a_tensor_is_written_to_where_it_lies() -> None:
    x = torch.arange(8, dtype=torch.float32)
    address = x.data_ptr()
    launch("twice", 8, x, 8)
    assert x.tolist() == [0, 2, 4, 6, 8, 10, 12, 14] and x.data_ptr() == address
    parts = pack("k", [Parameter("p", "u64", 8, 8)], [x], emulator()).parts
    assert parts == [address.to_bytes(8, "little")]  # no copy


def emulator() -> Any:
    from tilewise.devices import device

    return device("emulator")


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_tensor_of_one_element_is_no_number(shape: tuple[int, ...]) -> None:
    x = torch.full(shape, 3.0)
    launch("twice", 1, x, 1)
    assert float(x) == 6
    for name, args in (("twice", [torch.zeros(1), torch.tensor(1)]), ("count", [torch.tensor(1), x.long()])):
        message = refused(name, *args)
        assert "must be a number" in message and "x.item()" in message


def test_tensors_and_numpy_arrays_and_device_arrays_together() -> None:
    a, b = torch.arange(4.0), np.arange(4, dtype=np.float32)
    c = torch.zeros(4)
    launch("add", 4, a, b, c)
    assert c.tolist() == [0, 2, 4, 6]
    launch("add", 4, emulator().array(b), c, c)  # in place, given twice
    assert c.tolist() == [0, 3, 6, 9]
    launch("add", 3, c[:3], c[:3], c[1:])  # overlapping, as on a GPU: it lies where it lies
    assert c[1] == 0


def test_a_tensor_and_a_numpy_array_of_the_same_memory() -> None:
    x = torch.ones(4)
    assert "must not overlap" in refused("add", x, x.numpy(), torch.zeros(4))
    assert "must not overlap" in refused("add", x.numpy(), x, torch.zeros(4))


@pytest.mark.parametrize("layout", ["strided", "transposed", "expanded"])
def test_other_layouts_are_copied_and_copied_back(layout: str) -> None:
    base = torch.arange(16, dtype=torch.float32)
    x = {"strided": base[::2], "transposed": base.reshape(4, 4).T, "expanded": base[:1].expand(4)}[layout]
    if layout == "expanded":
        c = torch.zeros(4)
        launch("add", 4, x + 1, x, c)
        assert c.tolist() == [1, 1, 1, 1]
        return
    before, others = x.clone(), base[1::2].clone()
    launch("twice", x.numel(), x, x.numel())
    assert torch.equal(x, before * 2)
    assert layout != "strided" or torch.equal(base[1::2], others)


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("step", [1, 2])
def test_types_that_numpy_does_not_know(dtype: str, step: int) -> None:
    size = torch.empty(0, dtype=getattr(torch, dtype)).element_size()
    whole = torch.arange(8.0).to(getattr(torch, dtype))
    x = whole[::step]
    before = x.view(torch.uint8).clone() if step == 1 else x.clone().view(torch.uint8)
    launch("flip", x.numel() * size, x)
    assert torch.equal(x.clone().view(torch.uint8), before ^ 0x80)


def test_bits_of_bfloat16() -> None:
    y = torch.zeros(2, dtype=torch.int32)
    launch("bits", 2, torch.tensor([1.0, -2.0], dtype=torch.bfloat16), y)
    assert y.tolist() == [0x3F80, 0xC000]


def test_elements_are_checked() -> None:
    message = refused("twice", torch.zeros(4, dtype=torch.float64), 4)
    assert (
        "must hold float32 for the kernel's parameter `float *x`, not 'float64'; x.to(torch.float32)"
        in message
    )
    assert "must hold float32" in refused("twice", torch.zeros(4, dtype=torch.bfloat16), 4)


def test_what_is_recorded_must_be_detached() -> None:
    x = torch.ones(4, requires_grad=True)
    for value in (x, torch.nn.Parameter(torch.ones(4)), x * 2):
        message = refused("twice", value, 4)
        assert message.startswith("args[0] must not require grad") and "x.detach()" in message
    launch("twice", 4, x.detach(), 4)
    assert x.tolist() == [2, 2, 2, 2]


def test_what_cannot_be_handed_over() -> None:
    sparse = torch.eye(3).to_sparse()
    for value in (sparse, torch.zeros(3, device="meta"), torch.zeros(3, dtype=torch.complex64).conj()):
        assert refused("flip", value).startswith("args[0] must be handed over by DLPack, but refuses: ")
    message = refused("flip", Elsewhere(14))
    assert message.startswith("args[0] must lie in host memory or on an NVIDIA GPU")


class Elsewhere:
    """An array of another library that lies where the test says."""

    def __init__(self, kind: int, ordinal: int = 0) -> None:
        self._where = kind, ordinal

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._where

    def __dlpack__(self, **_: Any) -> Any:
        raise AssertionError("nobody may take it")


def test_a_gpus_tensor_on_the_emulator() -> None:
    message = refused("flip", Elsewhere(2, 1))
    assert (
        "args[0] must lie in host memory: the kernel runs on the emulator" in message and "gpu:1" in message
    )

    class Tensor(Elsewhere):
        __module__ = "torch"

    assert refused("flip", Tensor(2)).endswith("not 'Tensor on gpu:0'; x.cpu()")


def test_immutable_arrays_take_no_results() -> None:
    class Array:
        """JAX's arrays: DLPack hands them over, and nobody may write to them."""

        __module__ = "jaxlib._jax"
        held: ClassVar[Any] = torch.ones(4)

        def __dlpack_device__(self) -> Any:
            return self.held.__dlpack_device__()

        def __dlpack__(self, **given: Any) -> Any:
            return self.held.__dlpack__(**given)

    assert "must be writable for the kernel's parameter `float *x`" in refused("twice", Array(), 4)
    c = torch.zeros(4)
    launch("add", 4, Array(), Array(), c)
    assert c.tolist() == [2, 2, 2, 2]


def test_memory_lives_as_long_as_the_launch_needs_it() -> None:
    parameter = Parameter("p", "u64", 8, 8)
    packed = pack("k", [parameter], [torch.ones(1 << 20)], emulator())
    other = torch.zeros(1 << 20)  # would take the place of what was freed
    address = int.from_bytes(packed.parts[0], "little")
    assert other.data_ptr() != address
    assert packed.adopted[0][0] == 1
