"""Arrays of NumPy, of tilewise, of CuPy (a stand-in for it) and of strangers, as views; and mixed ones."""

from __future__ import annotations

import array
import contextlib
import ctypes
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewise as tw
from tilewise import interop
from tilewise.devices import exchange, gpu
from tilewise.devices.gpu.arrays import GpuArray
from tilewise.devices.host_views import gpu_of
from tilewise.errors import ArgumentError, DeviceUnavailable
from tilewise.interop import HOST, View

# ── NumPy ──────────────────────────────────────────────────────────────────────────────────────────────


def read_back(view: View) -> npt.NDArray[Any]:
    """The elements that a view of host memory describes, read by its address alone."""
    dtype = interop.numpy_dtype(view.dtype)
    if 0 in view.shape:
        return np.empty(view.shape, dtype)
    reach = [(size - 1) * step for size, step in zip(view.shape, view.strides, strict=True)]
    low, high = sum(min(step, 0) for step in reach), sum(max(step, 0) for step in reach)
    start = view.ptr + low * dtype.itemsize
    memory: Any = (ctypes.c_char * ((high - low + 1) * dtype.itemsize)).from_address(start)
    strides = tuple(step * dtype.itemsize for step in view.strides)
    return np.ndarray(view.shape, dtype, memory, -low * dtype.itemsize, strides).copy()


SOURCE = np.arange(5 * 6 * 4, dtype=np.float32).reshape(5, 6, 4)
LAYOUTS = {
    "dense": SOURCE,
    "transposed": SOURCE.T,
    "column order": np.asfortranarray(SOURCE),
    "reversed": SOURCE[::-1, :, ::-1],
    "every other": SOURCE[1::2, :, ::3],
    "broadcast": np.broadcast_to(SOURCE[0], (3, 6, 4)),
    "vector": SOURCE[1, :, 2],
    "scalar": SOURCE[1, 1, 1:2].reshape(()),
    "empty": SOURCE[:, :0],
    "field": np.arange(24, dtype=np.float32).view([("x", "f4"), ("y", "f4")])["y"],
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_view_describes_every_layout(name: str) -> None:
    given_array = LAYOUTS[name]
    view = interop.view("a", given_array)
    assert (view.dtype, view.space, view.library.name) == ("float32", HOST, "numpy")
    assert view.shape == given_array.shape and view.ndim == given_array.ndim and view.owner is given_array
    assert all(type(step) is int for step in view.strides)
    np.testing.assert_array_equal(read_back(view), given_array)


@given(st.integers(0, 300), st.integers(0, 2))
def test_alignment(offset: int, extra: int) -> None:
    raw = np.zeros(1024, np.uint8)
    start = -raw.ctypes.data % 512 + offset
    view = interop.view("a", raw[start : start + extra])
    expected = (
        256
        if not extra
        else max(power for power in (1, 2, 4, 8, 16, 32, 64, 128, 256) if offset % power == 0)
    )
    assert view.alignment == expected


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "uint64", "float16", "float64", "complex64", "bfloat16", "float8_e4m3fn", "float8_e5m2"],
)
def test_element_types_have_their_names(dtype: str) -> None:
    made = np.zeros(3, interop.numpy_dtype(dtype))
    assert interop.view("a", made).dtype == dtype == made.dtype.name


def test_subclasses_count_as_what_they_hold(tmp_path: Any) -> None:
    memmap = np.memmap(tmp_path / "numbers", np.float32, "w+", shape=(2, 3))
    memmap[:] = 7
    with pytest.warns(PendingDeprecationWarning):
        matrix = np.matrix([[1.0, 2.0]])
    for made in (memmap, matrix):
        view = interop.view("a", made)
        assert view.shape == made.shape and view.owner is made
        np.testing.assert_array_equal(read_back(view), np.asarray(made))
    mapped = np.memmap(tmp_path / "numbers", np.float32, "r", shape=(2, 3))
    assert interop.view("a", mapped).read_only


class Quantity(np.ndarray[Any, np.dtype[Any]]):
    def __array_ufunc__(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("nobody calls it")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1.0], r"a must be an array of NumPy.*not 'list'; use numpy.asarray\(a\)"),
        (1.0, "a must be an array"),
        (np.float32(1), "a must be an array"),
        (None, "a must be an array.*'NoneType'"),
        (np.ma.MaskedArray([1.0, 2.0], [False, True]), r"a must have no mask.*a\.filled\(0\)"),
        (np.array([1.0, 2.0]).view(Quantity), r"arithmetic of its own.*Quantity.*numpy.asarray\(a\)"),
        (np.array([object()]), r"a must have numbers.*object.*astype"),
        (np.array(["x"]), "a must have numbers"),
        (np.array(["2020-01-01"], "datetime64[D]"), "a must have numbers"),
        (np.zeros(2, [("x", "f4")]), "a must have numbers"),
        (np.zeros(2, ">f4"), r"byte order.*a\.astype\('float32'\)"),
        (np.zeros(9, np.uint8)[1:].view("f4"), r"aligned.*numpy\.array\(a\)"),
        (
            np.zeros(4, np.dtype([("x", "f4"), ("y", "u1"), ("z", "f2")], align=False))["x"],
            "aligned|multiples",
        ),
    ],
)
def test_what_has_no_view(value: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message) as caught:
        interop.view("a", value)
    assert caught.value.argument == "a" and caught.value.fix


@pytest.mark.parametrize(
    "value",
    [
        *([[1, 2], [3, 4]], ((1.5, 2.5),), range(4), [np.ones(2, np.float32), np.ones(2, np.float32)]),
        *(3, True, 2.5, 1j, np.float32(3)),
        *(memoryview(b"abc"), array.array("d", [1, 2])),
    ],
)
def test_lists_and_numbers_become_arrays(value: Any) -> None:
    made, expected = interop.as_array("a", value), np.asarray(value)
    assert type(made) is np.ndarray and made.dtype == expected.dtype
    np.testing.assert_array_equal(made, expected)
    interop.view("a", made)


def test_arrays_stay_as_they_are() -> None:
    for value in (SOURCE, SOURCE.T, np.ma.MaskedArray([1.0]), "text", None, object(), np.array([object()])):
        assert interop.as_array("a", value) is value


def test_values_are_kept_where_the_layout_cannot_be() -> None:
    packed = np.dtype([("x", "f4"), ("y", "f2")], align=False)
    for value in (
        np.arange(6, dtype=">f8").reshape(2, 3).T,
        np.frombuffer(b"x" + np.arange(6, dtype="f4").tobytes(), "f4", offset=1),
        np.ones(4, packed)["x"],
        np.array(2, ">i4"),
    ):
        made = interop.as_array("a", value)
        assert made is not value and made.shape == value.shape and made.dtype.isnative
        np.testing.assert_array_equal(read_back(interop.view("a", made)), value)


@pytest.mark.parametrize("value", [[[1, 2], [3]], [object, [1]], [1, [2]]])
def test_ragged_lists_are_refused(value: Any) -> None:
    with pytest.raises(ArgumentError, match="b must be convertible to an array"):
        interop.as_array("b", value)


def test_outputs_are_writable_and_share_nothing() -> None:
    whole = np.zeros((3, 4), np.float32)
    assert interop.view_output("out", whole[:, ::2]).strides == (4, 2)
    whole.flags.writeable = False
    with pytest.raises(ArgumentError, match=r"out must be writable.*numpy\.array\(x\)"):
        interop.view_output("out", whole)
    shared = np.lib.stride_tricks.as_strided(np.zeros(4, np.float32), (3, 4), (0, 4))
    with pytest.raises(ArgumentError, match="share no memory"):
        interop.view_output("out", shared)
    single = np.lib.stride_tricks.as_strided(np.zeros(4, np.float32), (1, 4), (0, 4))
    interop.view_output("out", single)


@given(
    st.tuples(st.integers(0, 4), st.integers(0, 4)),
    st.tuples(st.integers(-6, 6), st.integers(-6, 6)),
    st.booleans(),
)
def test_what_is_written_has_a_place_for_every_element(
    shape: tuple[int, int], steps: tuple[int, int], stacked: bool
) -> None:
    whole = np.zeros(64, np.float32)
    lies = np.lib.stride_tricks.as_strided(whole[32:], shape, [4 * step for step in steps])
    lies = lies[:, None] if stacked else lies
    places = {i * steps[0] + j * steps[1] for i, j in np.ndindex(*shape)}
    if len(places) == lies.size:
        assert interop.view_output("out", lies).shape == lies.shape
    else:
        with pytest.raises(ArgumentError, match="out must have elements that share no memory, not 'shape"):
            interop.view_output("out", lies)


def test_overlap() -> None:
    whole = interop.view("a", SOURCE)
    for first, second, expected in [
        (SOURCE[0], SOURCE[1], False),
        (SOURCE[0], SOURCE[0], True),
        (SOURCE[0:3], SOURCE[2:5], True),
        (SOURCE[0:2], SOURCE[2:5], False),
        (SOURCE[1::-1], SOURCE[2:5], False),
        (SOURCE[0:0], SOURCE[0:5], False),
    ]:
        x, y = interop.view("x", first), interop.view("y", second)
        assert interop.may_overlap(x, y, 4, 4) is interop.may_overlap(y, x, 4, 4) is expected
    assert not interop.may_overlap(whole, whole._replace(space=(2, 0)), 4, 4)


def test_nothing_imports_a_framework() -> None:
    program = (
        "import sys, numpy; from tilewise import interop; interop.view('a', numpy.ones(3));"
        "print([n for n in ('torch', 'cupy', 'jax', 'llvmlite', 'cuda.core') if n in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


# ── tilewise's own ─────────────────────────────────────────────────────────────────────────────────────


def test_emulated_arrays() -> None:
    device = tw.device("emulator")
    made = device.array(SOURCE)[1:, ::2]  # type: ignore[index]
    view = interop.view("a", made)
    assert (view.library.name, view.space, view.owner) == ("tilewise", HOST, made)
    np.testing.assert_array_equal(read_back(view), SOURCE[1:, ::2])
    result = view.library.empty((2, 3), "bfloat16", view)
    assert type(result) is type(made) and result.device is made.device
    assert (result.shape, result.dtype) == ((2, 3), ml_dtypes.bfloat16)
    assert view.library.finish(result, view) is result


class Memory:
    """A block of GPU memory, as far as an array asks about it."""

    def __init__(self, device: Any, ptr: int) -> None:
        self.device, self.ptr, self.freed = device, ptr, False
        self.used: list[Any] = []

    def check(self) -> None:
        """It is never freed."""

    def use(self, stream: Any) -> None:
        self.used.append(stream)


class Gpu:
    """A GPU device without a GPU."""

    def __init__(self, ordinal: int = 0) -> None:
        self.ordinal, self.name = ordinal, f"gpu:{ordinal}"
        self.current_stream = SimpleNamespace(handle=0xAB0 + ordinal)
        self.taken: list[Any] = []

    def empty(self, shape: tuple[int, ...], dtype: Any) -> GpuArray:
        dense = np.empty(shape, dtype)
        memory: Any = Memory(self, 0x7000)
        return GpuArray(memory, 0, shape, dense.strides, dense.dtype)

    def array(self, source: Any) -> GpuArray:
        self.taken.append(source)
        if getattr(source, "ordinal", self.ordinal) != self.ordinal:
            raise ArgumentError("source", f"must lie on {self.name}", source.ordinal, "copy it there")
        return self.empty((2, 3), np.float32)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> list[Gpu]:
    made = [Gpu(0), Gpu(1)]
    monkeypatch.setattr(gpu, "open", lambda ordinal=0: made[ordinal])
    monkeypatch.setattr(gpu, "count", lambda: 2)
    return made


def test_gpu_arrays(gpus: list[Gpu]) -> None:
    array_ = gpus[1].empty((4, 6), np.float32)[1:, ::2]
    view = interop.view("a", array_)
    assert view[:5] == (0x7000 + 24, (3, 3), (6, 2), "float32", (2, 1))
    assert view.library.name == "tilewise" and view.library.stream(view) is None and not view.read_only
    memory: Any = array_._memory
    assert memory.used == [gpus[1].current_stream]  # so that the memory outlives the launch
    result = view.library.empty((2, 2), "float64", view)
    assert isinstance(result, GpuArray) and result.device is array_.device and result.dtype == np.float64


# ── CuPy, as a stand-in ────────────────────────────────────────────────────────────────────────────────


class Cupy(ModuleType):
    """What interop uses of CuPy, without a GPU."""

    def __init__(self) -> None:
        super().__init__("cupy")
        current = [0]
        streams = {0: SimpleNamespace(ptr=0), 1: SimpleNamespace(ptr=0xC001)}

        class ndarray:  # noqa: N801  # CuPy's name
            def __init__(self, shape: tuple[int, ...], dtype: Any, ordinal: int, ptr: int = 0x9000) -> None:
                dense = np.empty(shape, dtype)
                self.shape, self.strides, self.dtype = shape, dense.strides, dense.dtype
                self.data, self.device = SimpleNamespace(ptr=ptr), SimpleNamespace(id=ordinal)

            @property
            def __cuda_array_interface__(self) -> Any:
                raise AssertionError("the attributes are faster")

        @contextlib.contextmanager
        def on_device(ordinal: int) -> Iterator[None]:
            before, current[0] = current[0], ordinal
            yield
            current[0] = before

        ndarray.__module__ = "cupy"
        self.ndarray = ndarray
        self.empty = lambda shape, dtype: ndarray(shape, dtype, current[0])
        self.cuda = SimpleNamespace(Device=on_device, get_current_stream=lambda: streams[current[0]])


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    made = Cupy()
    monkeypatch.setitem(sys.modules, "cupy", made)
    interop._FRAMEWORKS["cupy"][1].cache_clear()  # type: ignore[attr-defined]
    yield made
    interop._FRAMEWORKS["cupy"][1].cache_clear()  # type: ignore[attr-defined]
    interop._by_type.pop(made.ndarray, None)


def test_cupy_arrays(cupy: Any) -> None:
    given_array = cupy.ndarray((4, 6), ml_dtypes.bfloat16, 1)
    view = interop.view("a", given_array)
    assert view[:5] == (0x9000, (4, 6), (6, 1), "bfloat16", (2, 1))
    assert view.library.name == "cupy" and view.owner is given_array and view.library.stream(view) == 0xC001
    result = view.library.empty((2, 2), "float32", view)
    assert type(result) is cupy.ndarray and (result.device.id, result.dtype) == (1, np.float32)


def test_subclasses_are_sorted_in_by_their_bases(cupy: Any) -> None:
    mine = type("Mine", (cupy.ndarray,), {"__module__": "somewhere"})
    assert (
        interop.view("a", mine((2, 2), "f4", 0)).library
        is interop.view("a", cupy.ndarray((2, 2), "f4", 0)).library
    )
    interop._by_type.pop(mine, None)


# ── strangers ──────────────────────────────────────────────────────────────────────────────────────────


class Stranger:
    """Speaks today's DLPack, or the one from before versions."""

    def __init__(
        self, values: npt.NDArray[Any], *, old: bool = False, device: int = 1, read_only: bool = False
    ) -> None:
        self.values, self.old, self.device, self.read_only = values, old, device, read_only
        self.streams: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0

    def __dlpack__(self, *, stream: Any = None, **more: Any) -> Any:
        self.streams.append(stream)
        if self.old and more:
            raise TypeError("no such argument")
        values = self.values
        where = self.__dlpack_device__()
        layout = values.ctypes.data, values.shape, values.strides, values.dtype
        return exchange.capsule(*layout, where, self, read_only=self.read_only, versioned=not self.old)


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("device", [1, 3])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_strangers_on_the_host(old: bool, device: int, dtype: str) -> None:
    values = SOURCE.astype(interop.numpy_dtype(dtype))[:, ::2]
    stranger = Stranger(values, old=old, device=device)
    view = interop.view("b", stranger)
    assert (view.library.name, view.space, view.dtype, view.ptr) == (
        "dlpack",
        HOST,
        dtype,
        values.ctypes.data,
    )
    assert set(stranger.streams) == {None} and view.owner.source is stranger
    np.testing.assert_array_equal(read_back(view), values)
    assert type(view.library.empty((2, 2), "bfloat16", view)) is np.ndarray


# Of dlpack.h: the code of a type, and its bits.
DLPACK_TYPES = {
    **{f"int{bits}": (0, bits) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (1, bits) for bits in (8, 16, 32, 64)},
    **{f"float{bits}": (2, bits) for bits in (16, 32, 64)},
    **{f"complex{bits}": (5, bits) for bits in (64, 128)},
    "bfloat16": (4, 16),
    "bool": (6, 8),
    "float8_e3m4": (7, 8),
    "float8_e4m3": (8, 8),
    "float8_e4m3b11fnuz": (9, 8),
    "float8_e4m3fn": (10, 8),
    "float8_e4m3fnuz": (11, 8),
    "float8_e5m2": (12, 8),
    "float8_e5m2fnuz": (13, 8),
    "float8_e8m0fnu": (14, 8),
}


@pytest.mark.parametrize("dtype", DLPACK_TYPES)
def test_element_types_have_the_numbers_of_dlpack(dtype: str) -> None:
    values = np.zeros(3, dtype if dtype in np.sctypeDict else getattr(ml_dtypes, dtype))
    assert exchange.type_code(values.dtype) == DLPACK_TYPES[dtype]
    assert interop.view("b", Stranger(values)).dtype == dtype


@pytest.mark.parametrize(("device", "gpu"), [(1, ""), (2, "gpu:0"), (3, ""), (13, "gpu:0")])
def test_the_numbers_of_devices_are_dlpacks(device: int, gpu: str) -> None:
    assert gpu_of("b", Stranger(SOURCE, device=device)) == gpu


def test_a_stranger_that_needs_no_word_when_it_is_let_go_of_is_taken() -> None:
    """DLPack allows a tensor without a deleter."""
    made = exchange.capsule(
        SOURCE.ctypes.data, SOURCE.shape, SOURCE.strides, SOURCE.dtype, (1, 0), SOURCE, versioned=False
    )
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    tensor = pointer(made, b"dltensor")
    deleter = ctypes.c_void_p.from_address(tensor + 56)  # behind the tensor and the manager's context
    before, deleter.value = deleter.value, None
    found = exchange.from_capsule(made, None)
    assert (found.ptr, found.shape) == (SOURCE.ctypes.data, SOURCE.shape)
    del found
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(before or 0)(tensor)


def test_strangers_may_be_read_only() -> None:
    assert interop.view("b", Stranger(SOURCE, read_only=True)).read_only


def test_strangers_elsewhere_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"b must lie in host memory or on an NVIDIA GPU.*type 8"):
        interop.view("b", Stranger(SOURCE, device=8))
    with pytest.raises(ArgumentError, match="b must be handed over by DLPack, but refuses: no") as caught:
        interop.view("b", Refusing(SOURCE))
    assert caught.value.argument == "b"


class Refusing(Stranger):
    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("no")


class Interface:
    def __init__(self, ordinal: int) -> None:
        self.ordinal = ordinal
        self.__cuda_array_interface__ = {"shape": (2, 3), "typestr": "<f4", "data": (0x7000, False)}


def test_strangers_on_a_gpu(gpus: list[Gpu]) -> None:
    stranger = Stranger(SOURCE, device=2)
    view = interop.view("a", stranger)
    assert view[:5] == (0x7000, (2, 3), (3, 1), "float32", (2, 0)) and gpus[0].taken == [stranger]
    assert view.library.name == "dlpack" and view.owner.source is stranger
    assert isinstance(view.library.empty((2, 2), "float32", view), GpuArray)
    stranger.ordinal = 7
    with pytest.raises(ArgumentError, match=r"^out must lie on gpu:0, not 7; copy it there$"):
        interop.view("out", stranger)


@pytest.mark.parametrize("ordinal", [0, 1])
def test_the_cuda_array_interface_leads_to_its_gpu(gpus: list[Gpu], ordinal: int) -> None:
    assert interop.view("a", Interface(ordinal)).space == (2, ordinal)
    with pytest.raises(ArgumentError, match=r"^b must lie on gpu:1, not 7; copy it there$") as caught:
        interop.view("b", Interface(7))
    assert caught.value.argument == "b"


def test_the_only_gpu_is_where_a_stranger_lies(gpus: list[Gpu], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "count", lambda: 1)
    assert interop.view("a", Interface(0)).space == (2, 0)
    with pytest.raises(ArgumentError, match="b must lie on gpu:0"):
        interop.view("b", Interface(1))


def test_without_a_gpu_a_stranger_on_one_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewise.devices.gpu.device.probe", lambda: (0, "no driver"))
    for stranger in (Interface(0), Stranger(SOURCE, device=2)):
        with pytest.raises(DeviceUnavailable, match="no GPU to use"):
            interop.view("a", stranger)


# ── several libraries at once ──────────────────────────────────────────────────────────────────────────


def of(name: str, made: Any) -> View:
    return interop.view(name, made)


def test_one_library_on_the_host() -> None:
    a, b = of("a", SOURCE), of("b", SOURCE)
    assert interop.common({"a": a, "b": b}) == (a.library, HOST, a, ())


def test_the_kind_of_the_result(gpus: list[Gpu], cupy: Any) -> None:
    emulated = tw.device("emulator").array(SOURCE)
    host = {"numpy": SOURCE, "tilewise": emulated, "dlpack": Stranger(SOURCE)}
    for first, second, expected in [
        ("numpy", "tilewise", "tilewise"),
        ("tilewise", "numpy", "tilewise"),
        ("numpy", "dlpack", "dlpack"),
        ("dlpack", "tilewise", "tilewise"),
    ]:
        found = interop.common({"a": of("a", host[first]), "b": of("b", host[second])})
        assert found.library.name == found.like.library.name == expected
        assert found.streams == () and found.space == HOST
    ours, theirs = gpus[1].empty((2, 2), "f4"), cupy.ndarray((2, 2), "f4", 1)
    for a, b in [(ours, theirs), (theirs, ours)]:
        found = interop.common({"a": of("a", a), "b": of("b", b)})
        assert (found.library.name, found.space, found.like.owner) == ("cupy", (2, 1), theirs)
    one = of("a", theirs)
    other = one._replace(library=type(one.library)())
    assert interop.common({"a": one, "b": other}).library is one.library  # of equals, the first


def test_the_streams_that_have_to_be_ordered(gpus: list[Gpu], cupy: Any) -> None:
    ours = [of("a", device.empty((2, 2), "f4")) for device in gpus]
    theirs = [of("b", cupy.ndarray((2, 2), "f4", ordinal)) for ordinal in (0, 1)]
    assert interop.common({"a": ours[0], "b": ours[0]}).streams == (None,)
    alike = ours[0]._replace(
        library=type(ours[0].library)()
    )  # of another library, without a stream of its own
    assert interop.common({"a": ours[0], "b": alike}).streams == (None,)
    assert interop.common({"a": theirs[1], "b": theirs[1]}).streams == (0xC001,)
    assert interop.common({"a": theirs[0], "b": theirs[0]}).streams == (1,)  # the default stream
    assert interop.common({"a": ours[1], "b": theirs[1], "c": ours[1]}).streams == (0xC001, 0xAB1)
    gpus[0].current_stream.handle = exchange.LEGACY_STREAM
    assert interop.common({"a": ours[0], "b": theirs[0]}).streams == (1,)  # the very same


def test_operands_that_lie_apart(gpus: list[Gpu], cupy: Any) -> None:
    ours, theirs = of("a", gpus[0].empty((2, 2), "f4")), of("b", cupy.ndarray((2, 2), "f4", 1))
    host = of("bias", SOURCE)
    for views, message in [
        (
            {"a": ours, "b": theirs},
            r"^a and b must lie on one device, but a \(tilewise\) lies on gpu:0 and b \(cupy\) lies on gpu:1; ",
        ),
        (
            {"b": theirs, "bias": host},
            r"^b and bias .*bias \(numpy\) lies in host memory; "
            r"use cupy\.asnumpy\(b\) or tw\.device\('gpu:1'\)\.array\(bias\)$",
        ),
        ({"bias": host, "a": ours}, r"use tw\.device\('gpu:0'\)\.array\(bias\) or a\.numpy\(\)$"),
    ]:
        with pytest.raises(ArgumentError, match=message):
            interop.common(views)


# ── element types ──────────────────────────────────────────────────────────────────────────────────────

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


@pytest.mark.parametrize("a", FLOATS)
@pytest.mark.parametrize("b", FLOATS + INTEGERS)
def test_products_have_numpys_types(a: str, b: str) -> None:
    try:
        expected = np.promote_types(interop.numpy_dtype(a), interop.numpy_dtype(b)).name
    except TypeError:  # NumPy has no rule for bfloat16 with these
        expected = {"float16": "float32", "int16": "float32", "uint16": "float32"}.get(
            b if a == "bfloat16" else a, "float64"
        )
    assert interop.result_type(a, b) == interop.result_type(b, a) == expected


@pytest.mark.parametrize("a", ["int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("b", ["int8", "uint8", "int16", "uint16", "int32", "int64"])
def test_products_of_integers_have_64_bits_only_if_one_of_them_has(a: str, b: str) -> None:
    expected = "int8" if a == b == "int8" else "int64" if "int64" in (a, b) else "int32"
    assert interop.result_type(a, b) == interop.result_type(b, a) == expected


@pytest.mark.parametrize("a", FLOATS)
@pytest.mark.parametrize("b", FLOATS + INTEGERS)
def test_an_exact_product_type_holds_every_value(a: str, b: str) -> None:
    if b in ("int64", "uint64"):
        with pytest.raises(ArgumentError, match=rf"^b must have a type.*{b}.*2\^53"):
            interop.result_type(a, b, exact=True)
        return
    found = interop.numpy_dtype(interop.result_type(a, b, exact=True))
    for name in (a, b):
        kind = interop.numpy_dtype(name)
        if kind.kind == "b":
            extremes: list[Any] = [False, True]
        elif name in INTEGERS:
            extremes = [np.iinfo(kind).min, np.iinfo(kind).max, np.iinfo(kind).max - 1]
        else:
            limits: Any = ml_dtypes.finfo(kind)  # type: ignore[no-untyped-call]
            extremes = [limits.max, limits.smallest_normal, 1 + limits.eps]
        values = np.array(extremes, kind)
        exact: Any = int if name in INTEGERS else float
        assert [exact(value) for value in values.astype(found)] == [exact(value) for value in values]


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ("int8", "uint32", r"^a and b must be integers that int8.*int8 and uint32.*exact modulo 2\^64"),
        ("bool", "bool", "^a and b must be integers that int8, int32 or int64 hold"),
        ("complex256", "float32", r"^a must have a type of complex64, complex128, if it is complex"),
        ("complex64", "uint128", r"^b must have a type of bfloat16"),
        ("float8_e5m2", "float8_e4m3fn", "^a must have a type of bfloat16, .*float16 holds every value"),
        ("float64", "float128", "^b must have a type of bfloat16"),
        ("int4", "float32", "^a must have a type of"),
    ],
)
def test_products_without_a_type(a: str, b: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        interop.result_type(a, b)


def test_the_refusal_names_the_callers_arguments() -> None:
    with pytest.raises(ArgumentError, match=r"^weight must have a type of complex64"):
        interop.result_type("float32", "complex256", arguments=("x", "weight"))
