"""Arrays of JAX and of other libraries as they are viewed, made and brought elsewhere; and one library's beside another's."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import jax as imported_jax
import ml_dtypes
import numpy as np

import tilewise
from tests.answers.products import split
from tests.answers.shown import show
from tests.fake_xla import PlacedArray
from tilewise import interop
from tilewise.devices import exchange, gpu
from tilewise.devices.gpu.arrays import GpuArray
from tilewise.errors import ArgumentError
from tilewise.interop import HOST
from tilewise.interop.handover import speaks_a_protocol
from tilewise.interop.jax import jax_arrays
from tilewise.interop.view import Library

LINES = """
viewed(«F|F[0]|F[:0]|F[0, 0]|n(2, 3, 4, dtype='float32').T|n(2, dtype='bfloat16')|n(2, dtype='int4')|n(2, dtype='complex64')|jax.random.key(0)|DELETED()|DONATED()|SPLIT()|SPLIT(2)», «view|view_output»)
made_like(F, «(2, 3)|()|(0, 3)|(7,)|(2, 3, 4)», «'float32'|'float64'|'bfloat16'|'int8'|'int64'|'complex64'», x64=«False|True»)
made_like(THERE, «(2,)|(0,)», 'float32')
jax_arrays.JaxLibrary().move('«b|out»', «HOST|(2, 0)|(2, 3)»), jax_arrays.JaxLibrary().convert('b', 'float16')
placed(«'gpu'|'cuda'|'tpu'|'gpu', 'gpu'|'cpu', 'cpu', 'cpu'|»)
finished_on_gpu(«(2, 3)|()»)
viewed(Stranger(np.ones((2, 3), «'f4'|'i1'|ml_dtypes.bfloat16|'c8'|'?'|'u8'|ml_dtypes.float8_e5m2»)[:, ::«1|-2»], old=«True|False», read_only=«True|False»), «view|view_output»)
viewed(Stranger(np.ones((2, 3), 'f4'), device=«1|2|3|4|8|13»)), viewed(«Refusing(np.ones(2))|Halves(np.ones(2))|Odd(np.zeros(2, 'V4'))»)
viewed(Interface(«0|1|7», «True|False»), gpus=«0|1|2»)
viewed(Stranger(np.ones((2, 3), 'f4'), device=2, ordinal=«0|1|7»), «view|view_output»)
made_by(«ours(0)|ours(1)|cupy_array(0)|cupy_array(1)|Stranger(np.ones((2, 3), 'f4'), device=2)|Interface(1, False)|np.ones(3)|DEVICE.zeros(3)|Stranger(np.ones(3))», «(2, 2)|()», «'float32'|'bfloat16'»)
viewed(«ours(1)[1:, ::2]|ours(0)|cupy_array(1)|cupy_array(1, 'i1')|cupy_array(0, ml_dtypes.bfloat16)|cupy_array(0, 'O')|cupy_array(0, '>f4')|cupy_odd()|mine_of_cupy()|frozen_ours()», «view|view_output»)
brought(«np.ones(3)|DEVICE.zeros(3)|ours(0)|cupy_array(0)|Stranger(np.ones(3))|F», «HOST|(2, 0)|(2, 1)»)
shared_by(«np.ones(3)|DEVICE.zeros(3)|ours(0)|ours(1)|cupy_array(0)|cupy_array(1)|Stranger(np.ones(3))|F», «np.ones(3)|DEVICE.zeros(3)|ours(0)|ours(1)|cupy_array(0)|cupy_array(1)|Stranger(np.ones(3))|F», «|np.ones(3)|ours(1)»)
equals(«F|np.ones(3)»)
[speaks_a_protocol(one) for one in (np.ones(1), F, Stranger(np.ones(1)), Refusing(np.ones(1)), Halves(np.ones(1)), Interface(0, False), object(), 5, Stranger)]
plain_library(«'finish'|'addresses_like'|'split'|'stream'|'exchange_api'|'exchange_types'|'tracks_gradients'|'gradients_on'|'ordinary_state'|'convert'»)
viewed(«np.matrix([[1.0, 2.0]])|np.ma.masked_array([1.0, 2.0], [True, False])|Quantity([1.0])|Tame([1.0])|np.zeros(9, 'u1')[1:].view('f4')|np.zeros(4, [('x', 'f4'), ('y', 'u1'), ('z', 'f2')])['x']|np.zeros(4, [('x', 'c8'), ('y', 'f4')])['x']|np.zeros(2, '>f4')|np.zeros(2, 'O')|np.zeros(2, 'S2')|frozen(np.ones(2))|np.broadcast_to(np.ones(3), (2, 3))|np.ones((2, 3))[::-1]|[1.0]|5|None|'text'|np.float32(1)|np.zeros(2, ml_dtypes.int4)», «view|view_output»)
packed(«np.arange(6, dtype='>f8').reshape(2, 3).T|np.frombuffer(b'x' + bytes(24), 'f4', offset=1)|np.zeros(4, [('x', 'f4'), ('y', 'f2')])['x']|np.zeros(4, [('x', 'c8'), ('y', 'f4')])['x']|np.array(2, '>i4')|np.ones(3)|np.zeros(2, 'V0')|np.zeros(2, 'O')|[np.ones(2, 'f4'), np.ones(2, 'f4')]|[[1], [1, 2]]|[F, F]|memoryview(b'ab')|3|1j|None|'a'|F|split(np.ones((4, 128), 'f4'), -1)|tw.quantize(np.ones((2, 3), 'f4'))|__import__('array').array('d', [1.0])|__import__('collections').UserList([1])»)
"""

jax: Any = imported_jax
jnp: Any = jax.numpy
tw: Any = tilewise
DEVICE: Any = tilewise.device("emulator", threads=2)


F: Any = jnp.asarray(np.array([[1.5, -2.0], [0.25, 3.0]], np.float32))
THERE: Any = jax.device_put(F + 1, jax.devices()[-1])


# ── operands ─────────────────────────────────────────────────────────────────────────────────────────────


@functools.cache
def n(*shape: int, dtype: str = "float64", by: int = 1) -> Any:
    """Quarters of both signs, of which sums are exact, as an array of JAX; others with another ``by``."""
    count = int(np.prod(shape))
    start = 3 * len(shape) + by
    values = ((np.arange(start, count + start) * (5 + 2 * by)) % 13 - 6).reshape(shape)
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    with jax_settings(), jax.ensure_compile_time_eval():  # an array, even where a function is traced
        if kind.kind == "c":
            return jax.device_put(
                (values / 4 + values[..., ::-1] * 0.5j if shape else values / 4).astype(kind)
            )
        return jax.device_put((values if kind.kind in "iub" or "int" in dtype else values / 4).astype(kind))


@contextlib.contextmanager
def jax_settings(x64: bool = True) -> Iterator[None]:
    """Float64 in JAX, or not, and programs that XLA does little to improve."""
    wanted = {
        "jax_enable_x64": x64,
        "jax_disable_most_optimizations": True,
        "jax_traceback_filtering": "off",  # which takes longer than all the refusals
    }
    before = {name: jax.config.values[name] for name in wanted}
    try:
        for name, value in wanted.items():
            jax.config.update(name, value)
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)


def told(value: Any, where: bool = False) -> Any:
    """What is in arrays, to four digits, and how they are; as text."""
    if isinstance(value, tuple | list):
        return [told(one, where) for one in value]
    if isinstance(value, jax.Array) or type(value) is np.ndarray:
        kind = "weak " * bool(getattr(value, "weak_type", False))
        place = ""
        if isinstance(value, np.ndarray):
            place = " of NumPy"
        elif where:
            committed = " committed" * value.committed
            place = f" on {sorted(one.id for one in value.devices())}{committed}"
        array = np.asarray(value)
        parts = [array] if array.dtype.kind != "c" else [array.real, array.imag]
        digits = [
            " ".join(f"{round(float(one), 6) + 0.0:.4g}" for one in part.reshape(-1).astype(np.float64))
            for part in parts
        ]
        return f"{kind}{value.dtype} {value.shape}{place}: {' and '.join(digits)}"
    if hasattr(value, "numpy"):
        return f"ours: {told(value.numpy())}"
    return show(value)


def frozen(array: Any) -> Any:
    made = np.array(array)
    made.flags.writeable = False
    return made


def SPLIT(axes: int = 1) -> Any:  # noqa: N802
    """An array of which each device has a part, or the whole."""
    mesh = jax.sharding.Mesh(jax.devices()[:2], ("rows",))
    spec = jax.sharding.PartitionSpec("rows") if axes == 1 else jax.sharding.PartitionSpec()
    return jax.device_put(F, jax.sharding.NamedSharding(mesh, spec))


def DELETED() -> Any:  # noqa: N802
    made = jnp.asarray(np.ones((2, 2), np.float32)) + 0
    made.delete()
    return made


def DONATED() -> Any:  # noqa: N802
    made = jnp.asarray(np.ones((2, 2), np.float32)) + 0
    _double(made)
    return made


@functools.partial(jax.jit, donate_argnums=0)
def _double(x: Any) -> Any:
    return x + x


def made_like(array: Any, shape: tuple[int, ...], dtype: str, x64: bool = False) -> Any:
    """What is made for a result, and handed over: whether it is the same memory, and where it is."""
    with jax_settings(x64):
        view = interop.view("a", array)
        made = view.library.empty(shape, dtype, view)
        address = made.ctypes.data
        made[...] = 2
        result = view.library.finish(made, view)
        same = (
            not made.size or made.dtype.name != result.dtype.name or result.unsafe_buffer_pointer() == address
        )
        return told(result, where=True), address % 64 if made.size else None, same


def placed(*platforms: str) -> Any:
    """The view of an array of JAX that lies elsewhere, on GPUs that are not here."""
    array = PlacedArray(*platforms)
    with _gpus() as made:
        view = jax_arrays.JaxLibrary().view("a", array)
        return show(view), view.ptr, [one.taken == [array] for one in made], view.owner.source is array


def finished_on_gpu(shape: tuple[int, ...]) -> Any:
    """What is made for a result on a GPU, and what JAX is given of it."""
    library: Any = jax_arrays.JaxLibrary()
    like = interop.view("a", F)._replace(space=(2, 1))
    given: list[Any] = []

    def take(one: Any) -> str:
        given.append(one)
        return "JAX's"

    with _gpus(), mock.patch.object(jax.dlpack, "from_dlpack", take):
        made = library.empty(shape, "bfloat16", like)
        return (
            library.finish(made, like),
            [one is made for one in given],
            made.device.name,
            str(made.dtype),
            made.shape,
        )


# ── other libraries, and GPUs that are not here ──────────────────────────────────────────────────────────────


class Stranger:
    """Speaks today's DLPack, or the one from before versions."""

    def __init__(
        self, values: Any, *, old: bool = False, device: int = 1, read_only: bool = False, ordinal: int = 0
    ) -> None:
        self.values, self.old, self.device, self.read_only, self.ordinal = (
            values,
            old,
            device,
            read_only,
            ordinal,
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, self.ordinal

    def __dlpack__(self, *, stream: Any = 0, **more: Any) -> Any:
        if self.old and more:
            raise TypeError("no such argument")
        if stream is not None and self.device == 1:
            raise BufferError("the host has no streams")
        values = self.values
        where = self.__dlpack_device__()
        layout = values.ctypes.data, values.shape, values.strides, values.dtype
        return exchange.capsule(*layout, where, self, read_only=self.read_only, versioned=not self.old)


class Refusing(Stranger):
    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("no")


class Halves:
    """Speaks half of DLPack."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("never asked")


class Odd(Stranger):
    """Gives no capsule."""

    def __dlpack__(self, **_: Any) -> Any:
        return self


class Interface:
    """Speaks the CUDA array interface."""

    def __init__(self, ordinal: int, read_only: bool) -> None:
        self.ordinal, self.read_only = ordinal, read_only
        self.__cuda_array_interface__ = {"shape": (2, 3), "typestr": "<f4", "data": (0x7000, read_only)}


class Memory:
    """A block of GPU memory, as far as an array asks about it."""

    def __init__(self, device: Any, ptr: int) -> None:
        self.device, self.ptr, self.freed = device, ptr, False

    def check(self) -> None:
        """It is never freed."""

    def use(self, stream: Any) -> None:
        """Its stream is of no account."""


class Gpu:
    """A GPU device without a GPU."""

    def __init__(self, ordinal: int = 0) -> None:
        self.ordinal, self.name = ordinal, f"gpu:{ordinal}"
        self.current_stream = SimpleNamespace(handle=0xAB0 + ordinal)
        self.taken: list[Any] = []

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        dense = np.empty(shape, dtype)
        memory: Any = Memory(self, 0x7000)
        return GpuArray(memory, 0, shape, dense.strides, dense.dtype)

    def array(self, source: Any) -> Any:
        self.taken.append(source)
        if getattr(source, "ordinal", self.ordinal) != self.ordinal:
            raise ArgumentError("source", f"must lie on {self.name}", source.ordinal, "copy it there")
        return self.empty((2, 3), np.float32)


@contextlib.contextmanager
def _gpus(count: int = 2) -> Iterator[list[Gpu]]:
    made = [Gpu(0), Gpu(1)]

    def open_gpu(ordinal: int = 0) -> Gpu:
        if ordinal >= max(count, 1):
            raise ArgumentError("gpu", "must be there", ordinal)
        return made[ordinal]

    with mock.patch.multiple(gpu, open=open_gpu, count=lambda: count), _cupy():
        yield made


class Cupy(ModuleType):
    """What is used of CuPy, without a GPU."""

    def __init__(self) -> None:
        super().__init__("cupy")
        self.current = 0
        self.ndarray = CupyArray
        streams = {0: SimpleNamespace(ptr=0), 1: SimpleNamespace(ptr=0xC001)}
        self.cuda = SimpleNamespace(Device=self._on_device, get_current_stream=lambda: streams[self.current])

    @contextlib.contextmanager
    def _on_device(self, ordinal: int) -> Iterator[None]:
        before, self.current = self.current, ordinal
        yield
        self.current = before

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return CupyArray(shape, dtype, self.current)


class CupyArray:
    """What an array of CuPy is asked."""

    def __init__(self, shape: tuple[int, ...], dtype: Any, ordinal: int) -> None:
        dense = np.empty(shape, dtype)
        self.shape, self.strides, self.dtype = shape, dense.strides, dense.dtype
        self.data, self.device = SimpleNamespace(ptr=0x9000), SimpleNamespace(id=ordinal)


CupyArray.__module__ = "cupy"


class MyCupyArray(CupyArray):
    """One of a class of its own."""


@contextlib.contextmanager
def _cupy() -> Iterator[None]:
    """The stand-in for CuPy in its place, and nothing of it left behind."""
    library: Any = interop._FRAMEWORKS["cupy"][1]
    with mock.patch.dict(sys.modules, {"cupy": Cupy()}), mock.patch.dict(interop._by_type):
        library.cache_clear()
        yield
    library.cache_clear()


def cupy_array(ordinal: int, dtype: Any = "f4") -> Any:
    return CupyArray((2, 3), dtype, ordinal)


def cupy_odd() -> Any:
    made = cupy_array(0)
    made.strides = (13, 4)
    return made


def mine_of_cupy() -> Any:
    return MyCupyArray((2, 3), "f2", 1)


def ours(ordinal: int) -> Any:
    return Gpu(ordinal).empty((4, 6), np.float32)


def frozen_ours() -> Any:
    made = ours(1)
    made.read_only = True
    return made


view, view_output = interop.view, interop.view_output


def viewed(array: Any, how: Callable[..., Any] = interop.view, gpus: int = 2) -> Any:
    """The view of an array, its library's stream, and what it keeps; GPUs are not asked for their addresses' sake."""
    with _gpus(gpus):
        found = how("x", array)
        ptr = found.ptr if found.space != HOST else found.alignment >= 1
        stream = found.library.stream(found)
        owner = found.owner
        kept = owner is array or getattr(owner, "source", None) is array
        return show(found), ptr, stream, kept, type(owner).__name__


def made_by(array: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """What the library of an array makes for a result."""
    with _gpus():
        like = interop.view("x", array)
        made = like.library.empty(shape, dtype, like)
        place = getattr(made, "device", None)
        finished = like.library.finish(made, like)
        return (
            type(made).__name__,
            made.shape,
            str(made.dtype),
            getattr(place, "name", getattr(place, "id", None)),
            finished is made,
        )


def brought(array: Any, space: tuple[int, int]) -> Any:
    """How an array is brought elsewhere, and to another type."""
    with _gpus():
        library = interop.view("x", array).library
        return library.move("x", space), library.convert("x", "float16")


def shared_by(*arrays: Any) -> Any:
    """What arrays of several libraries have in common."""
    with _gpus():
        views = {name: interop.view(name, one) for name, one in zip(("a", "b", "bias"), arrays, strict=False)}
        found = interop.common(views)
        which = next(name for name, one in views.items() if one is found.like)
        return found.library.name, found.space, which, found.streams


def equals(array: Any) -> Any:
    """Of libraries that go before one another by nothing, the first decides."""
    one = interop.view("a", array)
    other = one._replace(library=type(one.library)())
    found = [interop.common({"a": a, "b": b}) for a, b in ((one, other), (other, one))]
    return found[0].library is one.library, found[1].library is other.library, found[1].like is other


class Plain(Library):
    """A library that has no more than it must."""

    name, preference = "plain", 0

    def view(self, argument: str, array: Any) -> Any:
        return None

    def empty(self, shape: tuple[int, ...], dtype: str, like: Any) -> Any:
        return None

    def move(self, argument: str, space: tuple[int, int]) -> str:
        return ""


def plain_library(name: str) -> Any:
    """What a library answers that says nothing of its own."""
    given: dict[str, Any] = {
        "finish": ("it", None), "addresses_like": (None, []), "split": (np.ones((2, 1)),), "stream": (None,), "convert": ("x", "int8"),
    }  # fmt: skip
    found = getattr(Plain(), name)
    return found(*given.get(name, ())) if callable(found) else found


class Quantity(np.ndarray):
    """A subclass with arithmetic of its own."""

    def __new__(cls, values: Any) -> Any:
        return np.asarray(values).view(cls)

    def __array_ufunc__(self, *_: Any, **__: Any) -> Any:
        return NotImplemented


class Tame(np.ndarray):
    """A subclass without."""

    def __new__(cls, values: Any) -> Any:
        return np.asarray(values).view(cls)


def packed(value: Any) -> Any:
    """What a value comes to as an array."""
    made = interop.as_array("a", value)
    return (
        made is value,
        type(made).__name__,
        told(made) if type(made) is np.ndarray and made.dtype.kind in "fiu" else None,
    )
