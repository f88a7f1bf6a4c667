"""Calls that are made ready: what XLA hands over and how it is read, and the launches of a bound plan with its addresses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.fake_xla import FakeXla
from tilewise.bound import Bound, BoundLaunch
from tilewise.interop.jax.call_frame import Handler
from tilewise.interop.jax.product_attributes import ProductAttributes, needs_pre
from tilewise.launch import Launch
from tilewise.slots import Gap, Slot

LINES = """
described(arrays=«()|('c',)|('bias',)|('residual',)|('c', 'bias', 'residual')», activation=«None|'relu'|'gelu'|'tanh'|'sigmoid'|'silu'», keep=«True|False»)
described(arrays=«()|('c',)|('bias',)», alpha=«1.0|2.0|0.0», beta=«1.0|0.5|0.0», transpose_a=«False|True»)
described(arithmetic=«None|'tf32'», device=«None|'emulator'», transpose_b=«False|True»)
framed(operands=«[]|[F32]|[F32, HALF]», results=«[]|[BIG]|[BIG, F32]»)
framed(stage=«0|2|3|4»)
framed(struct_size=«0|200|10_000»)
FakeXla().ask_version(Handler(lambda frame: not frame.contents.answer_metadata() or None), «0|1|3|4|5|9»)
framed(memory=«0|256», asked=«1|100»)
framed(text='«product|aaa|none»')
started(copies=«0|1», launches=«1|2|3», shifts=«({},)|({}, {'a': 16})|({'b': 8, 'workspace': 64},)|()»)
started(copies=1, launches=2, regions=«{}|{'sums': 256}|{'sums': 0, 'tables': 512}», workspace=«0|4096», stream=«None|0|7», timeout=«None|2.5»)
ready(«0|1», «1|2», «()|('one', 'two')»)
[bound(«0|2», 3, main=«0|1|2»).main_packed], [one.name for one in bound(«0|2», «1|2»).binaries]
bound(0, 1).launches[0].name, bound(0, 1).launches[0].resources
started(copies=0, launches=1, known=«{}|{'a': 16}|{'a': 16, 'b': 32}|{'a': 2**64 - 1, 'b': 2**64}»)
"""

F32, HALF, BIG = (4096, (2, 3), "float32"), (8192, (), "float16"), (2**40, (5, 0, 7, 1), "bfloat16")


def described(**given: Any) -> Any:
    """What a product in compiled code is, and that its text says all of it."""
    one = ProductAttributes(**given)
    again = ProductAttributes.from_json(one.to_json().encode())
    return one.expression, one.numbers, one.is_bilinear, one.changes_sums, needs_pre(one), again


def framed(
    operands: Any = (), results: Any = (), memory: int | None = None, asked: int = 8, text: str = "product", **changes: Any
) -> Any:  # fmt: skip
    """What a handler reads of a call frame."""
    told: list[Any] = []
    xla = FakeXla(stream=77, allocate=None if memory is None else lambda size: memory + size)

    def handle(pointer: Any) -> int | None:
        frame = pointer.contents
        try:
            frame.check()
            told.append([frame.operands(), frame.results(), frame.stream(), frame.read_text(text.encode())])
            if memory is not None:
                told.append(frame.allocate(asked))
                frame.free(asked, 4096)
        except RuntimeError as error:  # whose words are our own
            return int(frame.make_error(13, str(error)))
        return None

    return xla.call(Handler(handle), operands, results, ProductAttributes(), **changes), told, xla.freed


class _Device:
    """A device that tells what it is given."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def run(
        self, binary: Any, entry: str, launch: Launch, packed: list[bytes], timeout: Any, stream: Any
    ) -> None:
        self.told.append(
            ["run", binary.name, entry, launch.grid, [one.hex() for one in packed], timeout, stream]
        )

    def prepare(self, binary: Any, entry: str, launch: Launch, packed: list[bytes], arrays: Any) -> Any:
        self.told.append(["prepare", binary.name, entry, launch.grid, [one.hex() for one in packed], arrays])
        return lambda: self.told.append(["start", entry])


def bound(copies: int, launches: int, regions: Any = None, shifts: Any = ({},), main: int = 0) -> Bound:
    """A bound plan of launches that take two operands, and all parts of the workspace that there are."""
    device: Any = _Device()

    def launch(name: str) -> BoundLaunch:
        binary: Any = SimpleNamespace(
            name=f"binary of {name}", shown=lambda entry: f"<{entry}>", entries={name: SimpleNamespace(resources=f"of {name}")}
        )  # fmt: skip
        slots = [
            Slot(bytes(range(20)), (Gap(4, "a"), Gap(12, "b", 3))),
            *(Slot(bytes(8), (Gap(0, one),)) for one in regions or ()),
        ]
        return BoundLaunch(binary, name, Launch((len(name), 1, 1), (32, 1, 1), args=tuple(slots)))

    many = [
        tuple(launch(f"{kind}{i}") for i in range(count))
        for kind, count in (("copy", copies), ("k", launches))
    ]
    return Bound(device, many[0], many[1], 1024, regions or {}, shifts, main)


def started(
    copies: int, launches: int, regions: Any = None, shifts: Any = ({},), workspace: int = 0, known: Any = None, **how: Any
) -> Any:  # fmt: skip
    """What is launched, and with which arguments."""
    made: Any = bound(copies, launches, regions, shifts)
    addresses = {"a": 16, "b": 32} if known is None else known
    made({**addresses, **({"workspace": workspace} if workspace else {})}, **how)
    return made.device.told


def ready(copies: int, launches: int, arrays: Any) -> Any:
    made: Any = bound(copies, launches)
    start = made.prepare({"a": 16, "b": 32}, arrays)
    start()
    start()
    return made.device.told
