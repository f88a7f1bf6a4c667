"""Tensor maps: the rules for them, one sentence each, and what becomes of one as an argument."""

from __future__ import annotations

import contextlib
import struct
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewise as tw
from tests.fake_device import FakeDevice
from tilewise.devices.arguments import pack
from tilewise.devices.emulated import open_emulator
from tilewise.devices.gpu import driver as driver_words
from tilewise.devices.gpu import driver_tensor_map
from tilewise.devices.tensor_map import BYTES, ELEMENTS
from tilewise.emulator.support.tensor_map_layout import BYTES as EMULATED_BYTES
from tilewise.emulator.support.tensor_map_layout import ELEMENT_SIZES, MAGIC, MAP
from tilewise.errors import ArgumentError
from tilewise.launch import Parameter

BASE = 0x7F00_0000_0000
EMULATOR = open_emulator()


def tiled(**how: Any) -> tw.TensorMap:
    """A map of a 64 × 64 matrix of u32 at an address, but for what is said."""
    given: dict[str, Any] = {"dtype": "uint32", "shape": (64, 64), "strides": (256,), "box": (16, 32)} | how
    return tw.TensorMap(given.pop("address", BASE), given.pop("box"), **given)


def image(**how: Any) -> tw.TensorMap:
    given: dict[str, Any] = {
        "dtype": "uint32", "shape": (6, 14, 9, 64), "lower": (-1, -1), "upper": (-1, -1), "channels": 16, "pixels": 64,
    } | how  # fmt: skip
    return tw.TensorMap.im2col(given.pop("address", BASE), **given)


INTERLEAVED = {
    "shape": (2, 4, 8, 8, 8),
    "strides": None,
    "box": (1, 1, 4, 8),
    "dtype": "float16",
    "interleave": 16,
}

GAPS = {"shape": (64, 64, 64), "strides": None, "element_strides": (2, 1, 1)}
SLICES = {"shape": (2, 4, 8, 8, 16), "dtype": "float16", "interleave": 32, "swizzle": 32, "pixels": 1024}
# What a driver for an H200 takes, and so do we.
TAKEN: list[dict[str, Any]] = [
    {},
    {"address": BASE + 16},
    {"shape": (1, 64)},
    {"shape": (2**32, 64)},
    {"strides": (0,)},
    {"strides": (2**40 - 16,)},
    {"box": (256, 4)},
    {"box": (1, 4)},
    {"element_strides": (8, 1)},
    {"box": (4, 4), "swizzle": 128},
    {"box": (4, 32), "swizzle": 128},
    {"box": (4, 16), "swizzle": 64},
    {"box": (4, 8), "swizzle": 32},
    *(
        {"dtype": dtype, "fill": "nan", "strides": None, "box": (4, 16)}
        for dtype in ELEMENTS
        if "float" in dtype
    ),
    {"shape": (4096,), "strides": (), "box": (64,)},
    {"shape": (4, 4, 4, 4, 4), "strides": None, "box": (1, 2, 3, 4, 4)},
    {"swizzle": 0, "interleave": 0},
    INTERLEAVED,
    INTERLEAVED | {"swizzle": 128},
    INTERLEAVED | {"element_strides": (1, 1, 1, 2)},
    INTERLEAVED | {"interleave": 32, "swizzle": 32, "shape": (2, 4, 8, 8, 16)},
    INTERLEAVED | {"shape": (2, 4, 128, 128, 8), "box": (1, 1, 112, 128)},
]
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"address": BASE + 8}, r"array must lie at a multiple of 16 bytes, not '0x7f0000000008'"),
    ({"address": -16}, "array must be at least 0"),
    ({"address": "x"}, r"array must be an array or an address.*numpy\.asarray\(x\)"),
    ({"shape": (0, 64)}, r"shape\[0\] must be at least 1, not 0"),
    ({"shape": (2**32 + 1, 64)}, r"shape\[0\] must be at most 4,294,967,296"),
    ({"shape": (4,) * 6, "strides": None, "box": (4,) * 6}, "shape must have 1 to 5 axes, for tiled copies"),
    ({"shape": (), "strides": None, "box": ()}, "shape must have 1 to 5 axes"),
    ({"shape": 64}, "shape must be a tuple of integers"),
    ({"shape": None}, "shape must be given with an address"),
    ({"dtype": None}, "dtype must be given with an address"),
    ({"dtype": "floot16"}, "did you mean 'float16'"),
    ({"dtype": "complex64"}, "dtype 'complex64' is not known"),
    ({"strides": (100,)}, r"strides\[0\] must be a multiple of 16 bytes, not 100; pad"),
    ({"strides": (2**40,)}, r"strides\[0\] must be at most"),
    ({"strides": (-256,)}, r"strides\[0\] must be at least 0"),
    ({"strides": (256, 4)}, "strides must have 1 entry"),
    ({"shape": (64, 50), "strides": None, "dtype": "uint8"}, r"strides\[0\] must be a multiple of 16 bytes, not 50"),
    ({"box": (0, 4)}, r"box\[0\] must be at least 1"),
    ({"box": (257, 4)}, r"box\[0\] must be at most 256"),
    ({"box": (4,)}, "box must have 2 entries"),
    ({"box": (4, 6)}, r"box\[1\] must make a multiple of 16 bytes, not '6 × 4 = 24'"),
    ({"box": (4, 36), "swizzle": 128}, r"box\[1\] must make at most 128 bytes with swizzle 128"),
    ({"box": (4, 20), "swizzle": 64}, r"box\[1\] must make at most 64 bytes"),
    ({"box": (4, 12), "swizzle": 32}, r"box\[1\] must make at most 32 bytes"),
    ({"box": (256, 256)}, "box must make at most 232,448 bytes, not '262,144'"),
    (GAPS | {"box": (5, 100, 256)}, "box must make at most 232,448 bytes, not '307,200'"),
    ({"element_strides": (0, 1)}, r"element_strides\[0\] must be at least 1"),
    ({"element_strides": (9, 1)}, r"element_strides\[0\] must be at most 8"),
    ({"element_strides": (1, 2)}, r"element_strides\[1\] must be 1"),
    ({"swizzle": 96}, "swizzle must be None, 32, 64 or 128, not 96"),
    ({"swizzle": True}, "swizzle must be None"),
    ({"interleave": 8}, "interleave must be None, 16 or 32"),
    ({"l2_promotion": 512}, "l2_promotion must be None, 64, 128 or 256"),
    *(
        ({"dtype": dtype, "fill": "nan"}, f"fill must be 'zero' for {dtype}, which has no NaN")
        for dtype in ELEMENTS if "int" in dtype
    ),
    ({"fill": "one"}, "fill 'one' is not known"),
    (INTERLEAVED | {"shape": (2, 4, 8, 8, 4)}, "shape must end with an axis of 8, the float16 elements of a slice"),
    (INTERLEAVED | {"shape": (4, 8, 8), "box": (1, 8)}, "shape must have 3 to 5 axes besides the slice"),
    (INTERLEAVED | {"box": (1, 1, 128, 128)}, "box must make at most 232,448 bytes, not '262,144'"),
    (INTERLEAVED | {"box": (1, 2, 4, 8)}, r"box\[1\] must be 1 with interleave"),
    (INTERLEAVED | {"interleave": 32, "shape": (2, 4, 8, 8, 16)}, "swizzle must be 32 with interleave 32"),
    (INTERLEAVED | {"interleave": 32, "swizzle": 32, "shape": (2, 4, 8, 8, 16), "address": BASE + 16}, "multiple of 32"),
]  # fmt: skip
IMAGES: list[tuple[dict[str, Any], str]] = [
    ({}, ""),
    ({"channels": 256}, ""),
    ({"pixels": 1024}, ""),
    ({"lower": (-128, 0), "upper": (0, 127)}, ""),
    ({"lower": (0, 8), "upper": (0, 0)}, ""),
    ({"lower": (13, 0), "upper": (0, 0)}, ""),
    ({"shape": (4, 7, 6, 5, 16), "lower": (-16, 0, 0), "upper": (15, 0, 0)}, ""),
    ({"shape": (6, 20, 64), "lower": (-32768,), "upper": (0,)}, ""),
    ({"shape": (6, 14, 2**31 - 1, 64), "strides": (256, 256, 256)}, ""),
    ({"channels": 0}, "channels must be at least 1"),
    ({"channels": 257}, "channels must be at most 256"),
    ({"channels": 6}, "channels must make a multiple of 16 bytes"),
    ({"channels": 36, "swizzle": 128}, "channels must make at most 128 bytes"),
    ({"pixels": 0}, "pixels must be at least 1"),
    ({"pixels": 1025}, "pixels must be at most 1,024"),
    (SLICES, ""),
    ({"pixels": 1024, "channels": 256}, "pixels must make at most 232,448 bytes"),
    ({"lower": (-129, 0)}, r"lower\[0\] must be at least -128"),
    ({"upper": (0, 128)}, r"upper\[1\] must be at most 127"),
    ({"lower": (0, 9), "upper": (0, 0)}, r"upper\[1\] must leave a pixel beyond lower\[1\] = 9 of an axis of 9"),
    ({"lower": (0, 4), "upper": (0, -5)}, r"upper\[1\] must leave a pixel"),
    ({"shape": (6, 14, 2**31, 64)}, r"shape\[2\] must be at most 2,147,483,647 for im2col copies"),
    ({"lower": (0,)}, "lower must have 2 entries"),
    ({"shape": (64, 64)}, "shape must have 3 to 5 axes, for im2col copies"),
    ({"shape": (4, 7, 6, 5, 16), "lower": (-17, 0, 0), "upper": (0, 0, 0)}, r"lower\[0\] must be at least -16"),
]  # fmt: skip


@pytest.mark.parametrize("how", TAKEN)
def test_what_a_driver_takes(how: dict[str, Any]) -> None:
    assert len(tiled(**how).encode(EMULATOR)) == BYTES == EMULATED_BYTES


@pytest.mark.parametrize(("how", "said"), REFUSED)
def test_what_is_refused(how: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentError, match=said) as caught:
        tiled(**how)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("how", "said"), IMAGES)
def test_images(how: dict[str, Any], said: str) -> None:
    if not said:
        image(**how)
        return
    with pytest.raises(ArgumentError, match=said):
        image(**how)


def test_the_element_types_have_the_sizes_that_the_emulator_knows() -> None:
    assert all(ELEMENT_SIZES[element.ptx] == element.size for element in ELEMENTS.values())
    assert sorted(element.ptx for element in ELEMENTS.values()) == list(range(13))


def test_defaults_are_the_array_s_own() -> None:
    padded = EMULATOR.array(np.zeros((10, 64), np.float32))[:, :50]
    for array, dtype, shape, strides in (
        (padded, "float32", (10, 50), (256,)),
        (np.zeros((3, 4, 16), np.float16), "float16", (3, 4, 16), (128, 32)),
        (np.zeros((8, 16, 4), np.float32)[::2], "float32", (4, 16, 4), (256, 16)),  # copied without gaps
        (np.zeros((4, 16), np.int8), "uint8", (4, 16), (16,)),
        (np.zeros((4, 16), ml_dtypes.float8_e4m3fn), "uint8", (4, 16), (16,)),
        (np.zeros((4, 16), ml_dtypes.bfloat16), "bfloat16", (4, 16), (32,)),
    ):
        made = tw.TensorMap(array, (1,) * (len(shape) - 1) + (4 if "32" in dtype else 16,))
        assert (made.dtype, made.described.sizes[::-1], made.described.strides[::-1]) == (
            dtype,
            shape,
            strides,
        )


def test_an_array_that_no_copy_can_take() -> None:
    x = EMULATOR.array(np.zeros((8, 64), np.float32))
    with pytest.raises(ArgumentError, match="elements of its last axis side by side"):
        tw.TensorMap(x[:, ::2], (4, 4))
    with pytest.raises(ArgumentError, match=r"strides\[0\] must be at least 0|must be from 0|multiple"):
        tw.TensorMap(x[::-1], (4, 4))
    with pytest.raises(ArgumentError, match="dtype must have 4 bytes, as the array's float32"):
        tw.TensorMap(x, (4, 4), dtype="float16")
    with pytest.raises(ArgumentError, match="shape must stay within the array's 2,048 bytes"):
        tw.TensorMap(np.zeros((8, 64), np.float32), (4, 4), shape=(9, 64))


@pytest.mark.parametrize(
    ("how", "bytes_"),
    [
        ({"shape": (8, 64)}, 2048),
        ({"shape": (8, 65), "strides": (256,)}, 2052),
        ({"shape": (4, 64), "strides": (512,)}, 1792),
        ({"shape": (4, 64), "strides": (608,)}, 2080),
        ({"shape": (2, 4, 64), "strides": (1024, 256)}, 2048),
        ({"shape": (2, 4, 64), "strides": (1040, 256)}, 2064),
        ({"shape": (512,), "strides": (), "box": (4,)}, 2048),
        ({"shape": (513,), "strides": (), "box": (4,)}, 2052),
        ({"shape": (2, 4, 2, 8, 4), "interleave": 16, "box": (1, 1, 1, 4)}, 2048),
        (
            {"shape": (2, 4, 2, 9, 4), "interleave": 16, "box": (1, 1, 1, 4), "strides": (1024, 256, 128)},
            2064,
        ),
    ],
)
def test_a_map_ends_where_its_array_does(how: dict[str, Any], bytes_: int) -> None:
    """To the element: the last one that a map reaches is the array's last, or one beyond it."""
    given = {"box": (1,) * (len(how["shape"]) - 1) + (4,)} | how
    if bytes_ <= 2048:
        tw.TensorMap(np.zeros(512, np.float32), **given)
        return
    with pytest.raises(ArgumentError, match=f"within the array's 2,048 bytes, not '{bytes_:,} bytes'"):
        tw.TensorMap(np.zeros(512, np.float32), **given)


def test_what_the_emulator_is_given() -> None:
    made = tiled(box=(5, 8), swizzle=32, element_strides=(2, 1)).encode(EMULATOR)
    assert struct.unpack_from("<QQQ", made) == (MAGIC, BASE, 256)
    assert struct.unpack_from("<2Q", made, MAP.SIZES) == (64, 64)
    assert struct.unpack_from("<2H", made, MAP.BOX) == (8, 5)
    assert struct.unpack_from("<6B", made, MAP.RANK) == (2, 2, 0, 1, 0, 0)
    corners = image(lower=(-2, 3), upper=(1, -4)).encode(EMULATOR)
    assert struct.unpack_from("<2h", corners, MAP.LOWER) == (3, -2)
    assert struct.unpack_from("<2h", corners, MAP.UPPER) == (-4, 1)


@pytest.mark.parametrize(
    ("arch", "has_maps"),
    [
        ("sm_80", False),
        ("sm_89", False),
        ("sm_90", True),
        ("sm_90a", True),
        ("sm_100a", True),
        ("sm_120", True),
    ],
)
def test_a_driver_makes_maps_for_gpus_since_hopper(
    arch: str, has_maps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is given the address, and its words come back one behind another; of older GPUs it is asked nothing."""
    given: list[tuple[Any, ...]] = []

    def encode(*words: Any) -> tuple[Any, ...]:
        given.append(words)
        return cuda.CUresult.CUDA_SUCCESS, SimpleNamespace(opaque=range(16))

    cuda = driver_words.driver()
    pretended = SimpleNamespace(
        **{name: getattr(cuda, name) for name in dir(cuda) if not name.startswith("_")} | {
            "cuTensorMapEncodeTiled": encode, "cuTensorMapEncodeIm2col": encode,
        }
    )  # fmt: skip
    monkeypatch.setattr(driver_tensor_map, "driver", lambda: pretended)
    for made in (tiled(box=(5, 8), swizzle=32), image()):
        where = ("gpu:0", arch, lambda doing: contextlib.nullcontext(), made.described, BASE + 256)
        if has_maps:
            assert driver_tensor_map.encode(*where) == struct.pack("<16Q", *range(16))
            words = given.pop()
            assert words[2] == BASE + 256
            if made.described.corners is None:
                sizes, _, box, steps = (list(map(int, word)) for word in words[3:7])
                assert (sizes, box, steps) == tuple(
                    list(getattr(made.described, name)) for name in ("sizes", "box", "steps")
                )
        else:
            with pytest.raises(
                ArgumentError,
                match=rf"^device must have compute capability 9\.0 or newer for a tensor map, not 'gpu:0 \({arch}\)'",
            ):
                driver_tensor_map.encode(*where)
    assert given == []


def test_a_device_is_asked_once_for_each_address() -> None:
    asked: list[Any] = []

    class Asked(type(EMULATOR)):  # type: ignore[misc]
        def encode_map(self, described: Any, address: int) -> bytes:
            asked.append((described.sizes, address))
            return bytes(super().encode_map(described, address))

    device, made = Asked(), tiled()
    for address in (None, BASE, BASE + 256, None):
        assert made.encode(device, address) == tiled(address=address or BASE).encode(EMULATOR)
    assert asked == [((64, 64), BASE), ((64, 64), BASE + 256), ((64, 64), BASE)]


def _packed(value: Any, size: int = 128, device: Any = EMULATOR) -> Any:
    return pack("k", [Parameter("map", "b8", size, 64)], [value], device)


def test_as_an_argument_its_array_goes_along() -> None:
    host = np.zeros((64, 64), np.float32)
    packed = _packed(tw.TensorMap(host, (4, 4)))
    (array, back), (part,) = packed.back[0], packed.parts
    assert back is host and packed.keep == [array]
    assert struct.unpack_from("<Q", part, MAP.ADDRESS)[0] == array.ptr
    x = EMULATOR.array(host)
    made = tw.TensorMap(x, (4, 4))
    assert _packed(made).parts == [made.encode(EMULATOR)] and not _packed(made).back
    assert _packed(tiled()).parts == [tiled().encode(EMULATOR)]


def test_as_an_argument_it_must_fit() -> None:
    with pytest.raises(
        ArgumentError, match=r"args\[0\] must be a tensor map only for a parameter of 128 bytes"
    ):
        _packed(tiled(), size=64)
    there = FakeDevice()
    there.shares_memory_with = lambda other: False  # type: ignore[method-assign]
    with pytest.raises(ArgumentError, match="must lie on fake"):
        _packed(tw.TensorMap(EMULATOR.array(np.zeros((4, 4), np.float32)), (4, 4)), device=there)
    with pytest.raises(ArgumentError, match=r"device\.array\(x\)"):
        tw.TensorMap(np.zeros((4, 4), np.float32), (4, 4)).encode(EMULATOR)


def test_a_tensor_s_memory_is_what_is_described() -> None:
    import torch

    tensor = torch.zeros(64, 64, dtype=torch.bfloat16)
    made = tw.TensorMap(tensor, (16, 32))
    assert (made.dtype, made.described) == (
        "bfloat16",
        tw.TensorMap(tensor.view(torch.uint16), (16, 32), dtype="bfloat16").described,
    )
    made.array[:] = 3
    assert tensor.sum() == 3 * 64 * 64
    with pytest.raises(ArgumentError, match=r"array must not require grad.*x\.detach\(\)"):
        tw.TensorMap(torch.zeros(64, 64, requires_grad=True), (16, 32))


def test_it_says_what_it_is() -> None:
    start = "<tilewise.TensorMap of (64, 64) uint32, box (16, 32)"
    assert repr(tiled()) == f"{start}>"
    assert repr(tiled(swizzle=128)) == f"{start}, swizzle 128>"
    named = {"dtype": "float16", "fill": "nan", "box": (16, 16), "swizzle": 32}
    assert repr(tiled(**named)).endswith("(64, 64) float16, box (16, 16), swizzle 32, nan outside>")
    assert repr(tiled(**INTERLEAVED)).endswith("of (2, 4, 8, 8) float16, box (1, 1, 4, 8), interleave 16>")
    assert repr(image()).endswith("uint32, im2col of 64 pixels by 16 channels>")


def test_element_types_are_the_drivers() -> None:
    """cuda.h has its own order, which is not that of PTX."""
    from cuda.bindings import driver

    names = "uint8 uint16 uint32 int32 uint64 int64 float16 float32 float64 bfloat16 float32_ftz tfloat32 tfloat32_ftz"
    for number, name in enumerate(names.split()):
        kind = f"CU_TENSOR_MAP_DATA_TYPE_{ELEMENTS[name].driver}"
        assert int(getattr(driver.CUtensorMapDataType, kind)) == number
    assert len(ELEMENTS) == 13
