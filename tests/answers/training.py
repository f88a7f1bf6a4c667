"""Training where no kernel runs: options, shapes and arguments of launches, weights and tiles, files, digits, and float64."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import struct
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

import tilewise as tw
from tests.answers.shown import show
from tests.fake_device import FakeDevice
from tilewise.launch import LaunchLimits
from tilewise.nn import digits, options, step_launches, tiles
from tilewise.nn.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from tilewise.nn.curves import draw_comparison, draw_learning
from tilewise.nn.digit_strokes import make_digits
from tilewise.nn.epoch_figures import EpochFigures, read_epochs
from tilewise.nn.float64_model import Float64Model, LossCurves
from tilewise.nn.launch_shapes import (
    LayerShape,
    shape_backward,
    shape_classify,
    shape_forward,
    shape_products,
    updates_at_once,
)
from tilewise.nn.network import Network, find_fault, join_halves, split_weights
from tilewise.nn.trainer import Trainer, _read_rows, order_samples
from tilewise.nn.training import TrainingFigures, _check_same, _refuse_runaway

LINES = """
Options(hidden=«31|32|33|47|48|49|64|16384|16385|16416|True|64.0|'64'|None»)
Options(epochs=«0|1|-1|1.5|True», batch=«16|32|64|0|17|128|'32'|32.0»)
Options(batch=«16|64», limit=«None|0|15|16|63|64|1.5|-5|True»)
Options(rate=«0|-0.1|1e9|10**400|float('inf')|float('nan')|True|'1'|None|0.5», momentum=«0|0.999|1|1.0|-1|None»)
Options(decay=«0|0.5|-1e-9|float('inf')|1j», seed=«0|-1|7|1.5|2**70»)
Options(hidden=96, limit=100, seed=3).to_dict()
shape_forward(«16|32|64», «800|512|1024|4096», «16|64|512|4096|1024», «True|False», «232448|101376|65536»)
shape_classify(«16|32|64», «32|64|512|4096|16384», «True|False», «232448|101376»)
shape_products(«16|32|64», «512|4096|8192», «1|2|3», «True|False»)
shape_backward(«16|32|64», «800|512|4096», «64|512|4096», «True|False», «True|False», «True|False», «0|1|2|4»)
updates_at_once(«16|32|64», «4096|4095|4128|8192», 4096, «True|False», «232448|101376|200000|166912»)
[LayerShape(16, 2, «3|5», «1|2», 100, «1|4»).grid, LayerShape(16, 2, 3, 1, 100).defines]
split_weights(np.array(«[0.0, 1.0, -2.5]|[1e-8, 65504.0, 70000.0]|[0.1, 1 / 3, -1e-5]», 'float32'))
join_halves(*split_weights(np.array([0.1, 1 / 3, -1e-5, 1024.1], 'float32')))
whole(Network.begin(Options(hidden=«32|64», seed=«0|5», momentum=«0.0|0.9»)).to_arrays())
whole(Network.from_arrays(Network.begin(Options(hidden=32)).to_arrays()).to_arrays()) == whole(Network.begin(Options(hidden=32)).to_arrays())
[(layer.inputs, layer.outputs) for layer in Network.begin(Options(hidden=«32|96»)).layers]
fault(«None|'0.weights'|'3.bias'|'2.velocities'|'9.bias'|'0.x'», «None|np.zeros(3, 'f2')|np.zeros((32, 800), 'f4')|np.full((32, 800), np.nan, 'f2')|[1.0]|np.zeros((32, 800), 'f2')», «0.0|0.9»)
hashed(tiles.«tile_halves|tile_velocities»(numbers(«16|32», «32|64»)))
[tiles.untile_halves(tiles.tile_halves(numbers(32, 64))).tolist() == numbers(32, 64).tolist(), tiles.untile_velocities(tiles.tile_velocities(numbers(32, 64))).tolist() == numbers(32, 64).tolist()]
hashed(tiles.untile_gradients(numbers(2, «16|32», 16)))
epochs(«[]|5|[EPOCH]|[EPOCH, EPOCH]|[EPOCH, dict(EPOCH, epoch=2)]|[dict(EPOCH, epoch=2)]|[dict(EPOCH, x=1)]|[{}]|[5]|[dict(EPOCH, loss='1')]|[dict(EPOCH, loss=1)]|[dict(EPOCH, loss=True)]|[dict(EPOCH, steps=1.5)]|[dict(EPOCH, steps=0)]|[dict(EPOCH, steps_a_point=0)]|[dict(EPOCH, curve=5)]|[dict(EPOCH, curve=[1, 'a'])]|[dict(EPOCH, curve=[])]|[dict(EPOCH, steps=True)]»)
saved(lambda path: (save_checkpoint(path / 'c', checkpoint()), show(load_checkpoint(path / 'c').options), load_checkpoint(path / 'c').digest, load_checkpoint(path / 'c').epochs))
saved(lambda path: (write(path / 'c', **«{}|{'version': 2}|{'version': None}|{'options': 5}|{'options': {'hidden': 33}}|{'options': {'x': 1}}|{'epochs': {}}|{'epochs': [5]}|{'digest': 5}|{'options': {'hidden': 64}}»), load_checkpoint(path / 'c').digest))
saved(lambda path: (write(path / 'c', without='«about|0.weights|none»'), load_checkpoint(path / 'c').digest))
saved(lambda path: (write(path / 'c', about=«b'x'|b'[]'|b'{}'|b'null'»), load_checkpoint(path / 'c')))
saved(lambda path: ((path / 'c').write_bytes(«b''|b'abc'|b'PK'»), load_checkpoint(path / 'c')))
saved(lambda path: load_checkpoint(path / 'none'))
saved(lambda path: [path.mkdir(exist_ok=True), save_checkpoint(path / 'c', checkpoint()), (path / 'c').write_bytes((path / 'c').read_bytes()[:-«1|100|5000»]), load_checkpoint(path / 'c')][3])
[hashed(one) for one in make_digits(«1|1001», 0, «False|True»)], [hashed(one) for one in make_digits(3, 5, False)]
loaded(None, limit=«None|5|41», seed=2)
loaded(None, limit=«0|-1|1.5|5», seed=-1)
loaded(«'none'|5|''|b'x'|None», limit=0)
idx(images=«2|0|3», labels=[1, 2], zipped=«False|True»)
idx(labels=«[1, 9]|[1, 10]|[1]|[0, 0]»)
idx(damage=«'magic'|'short'|'long'|'axes'|'side'|'gzip'|'missing'|'empty'|'both'», limit=«None|1»)
digest_of(tw.nn.Digits(*[np.zeros(«2|3», 'u1')] * 4, 'x', False))
digits._TRAINING_FILES, digits._TEST_FILES, digits._SOURCE, digits._TIMEOUT
digits.has_mnist(Path('/nowhere'))
order_samples(Options(seed=«0|1», batch=«16|32»), «0|15|16|40», «0|1»)
_read_rows(«[]|[0, 1]|np.arange(3)|[True, False]|[1.5]|[[1], [2]]|5|[[1], [1, 2]]|np.array([1], 'u1')|'ab'|np.zeros(0)»)
place(«np.zeros((3, 784), 'f2')|np.zeros((3, 783), 'f2')|np.zeros((0, 784), 'f2')|np.zeros(784, 'f2')|np.full((3, 784), 1e6)|np.eye(3, 784) * np.inf», «np.zeros(3, 'u1')|np.zeros(2, 'u1')|np.array([0, 9, 10])|np.array([0, -1, 3])|np.zeros(3)|np.zeros((3, 1), 'u1')»)
launches(hidden=«32|512», batch=«16|32|64», momentum=«0.0|0.9», arch='«sm_80|sm_90a|sm_86|sm_75»', graded=«True|False»)
launches(hidden=64, batch=«16|32|64», momentum=«0.0|0.9», arch='«sm_80|sm_90a»', batches=«1|2|3|4|5|8», many=64 * 64)
selected(«[]|[0]|[0, 1, 2]|[3]|[-1]|[0] * 16|[0] * 17|[0] * 32|[0] * 33»)
trained(«[0] * 15|[0] * 16|[]|[0] * 33»)
Trainer(Network.begin(Options(hidden=«32|64»)), Options(hidden=32), np.zeros((1, 784), 'f2'), np.zeros(1, 'u1'), DEVICE).graph()
model(momentum=«0.0|0.9», decay=«0.0|0.1», steps=«0|1|3»)
LossCurves([1.0, 2.0], [1.5, «2.25|1.0»], «0.5|1|1.01»).to_dict(), LossCurves([1.0], [1.0], «0.5|1|1.01»).ok
hashed(draw_comparison(LossCurves(«[1.0, 2.0]|[1.0]», «[1.5, 2.25]|[1.0]», 0.5), 'a title'))
hashed(draw_learning(figures(«1|3», curve=«[1.0]|[2.0, 1.0, 0.5]», steps=«5|7», source=«'short'|'a' * 90»)))
shown(figures(«1|2»))
check_same(«{}|{'epochs': 1}|{'epochs': 3}|{'hidden': 64}|{'seed': 2}|{'rate': 0.5}|{'limit': 64}», digest=«'same'|'other'»)
runaway(«0.5|float('nan')|float('inf')», «True|False»)
"""

Options = options.TrainingOptions
DEVICE = FakeDevice()
EPOCH: Any = {
    "epoch": 1, "loss": 0.5, "accuracy": 0.75, "training_loss": 0.625, "steps": 5, "seconds": 2.0, "steps_a_point": 1,
    "curve": [1.0, 0.5],
}  # fmt: skip


def numbers(*shape: int) -> Any:
    return np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)


def hashed(value: Any) -> str:
    """How large something is, and a hash of it."""
    data = value.encode() if isinstance(value, str) else np.ascontiguousarray(value).tobytes()
    return f"{getattr(value, 'shape', len(value))} {hashlib.sha256(data).hexdigest()[:8]}"


def whole(named: Mapping[str, Any]) -> Any:
    return {name: (str(one.dtype), hashed(one)) for name, one in named.items()}


def fault(name: str | None, value: Any, momentum: float) -> str:
    """What is wrong with a network one of whose arrays is another one, or is missing."""
    given = Options(hidden=32, momentum=momentum)
    named: dict[str, Any] = Network.begin(given).to_arrays()
    if name is not None and value is None:
        named.pop(name, None)
    elif name is not None:
        named[name] = value
    return find_fault(named, given)


def epochs(plain: Any) -> Any:
    try:
        return read_epochs(plain)
    except ValueError as error:  # whose words are ours
        return error.args


def saved(work: Callable[[Path], Any]) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        try:
            return str(work(Path(folder))).replace(folder, "FOLDER")
        except tw.TilewiseError as error:
            said = re.sub(r"(cannot be read: |readable: ).*", r"\1…", f"{type(error).__name__}: {error}")
            return said.replace(folder, "FOLDER").partition("unexpected keyword")[0]


def checkpoint() -> Checkpoint:
    given = Options(hidden=32)
    return Checkpoint(Network.begin(given), given, "digest", [EpochFigures(**EPOCH)])


def write(path: Path, without: str = "", about: bytes | None = None, **changes: Any) -> None:
    """A checkpoint whose file has something else, or lacks it."""
    one = checkpoint()
    said = {"version": 1, "options": one.options.to_dict(), "digest": "d", "epochs": [EPOCH]} | changes
    data = json.dumps(said).encode() if about is None else about
    arrays: dict[str, Any] = {"about": np.frombuffer(data, np.uint8), **one.network.to_arrays()}
    with open(path, "wb") as file:
        np.savez(file, **{name: array for name, array in arrays.items() if name != without})


def loaded(folder: Any, **how: Any) -> Any:
    """How many digits there are, and where they come from; of those made, fewer than all are made."""
    with mock.patch.multiple(digits, _TRAINING=40, _TEST=20):
        found = digits.load_digits(folder, **how)
    return (
        hashed(found.samples),
        hashed(found.labels),
        hashed(found.test_samples),
        found.source,
        found.made,
        found.digest[:8],
    )


def idx(
    images: int = 2, labels: Any = (1, 2), zipped: bool = False, damage: str = "", limit: int | None = None
) -> Any:
    """Digits out of files like MNIST's, some of them damaged."""

    def work(folder: Path) -> Any:
        for stem in ("train", "t10k"):
            head, side = 2051 if damage != "magic" else 9999, 27 if damage == "side" else 28
            data = struct.pack(">IIII", head, images, side, 28) + bytes(range(256)) * (
                images * side * 28 // 256 + 1
            )
            data = data[: 16 + images * side * 28]
            data = {
                "short": data[:-1],
                "long": data + b"1",
                "axes": b"\0\0\x08\1" + data[4:],
                "empty": b"",
            }.get(damage, data)
            packed = gzip.compress(data, mtime=0) if zipped or damage in ("gzip", "both") else data
            name = f"{stem}-images-idx3-ubyte"
            (folder / (name + ".gz" * (packed is not data))).write_bytes(
                packed[:-9] if damage == "gzip" else packed
            )
            if damage == "both":
                (folder / name).write_bytes(b"")
            if damage != "missing":
                (folder / f"{stem}-labels-idx1-ubyte").write_bytes(
                    struct.pack(">II", 2049, len(labels)) + bytes(labels)
                )
        found = digits.load_digits(folder, limit)
        return hashed(found.samples), found.test_labels.tolist(), found.source, found.made

    return saved(work)


def digest_of(found: Any) -> str:
    return str(found.digest)[:12]


def _device(arch: str) -> Any:
    room = {"sm_80": 166_912, "sm_86": 101_376, "sm_75": 65_536}.get(arch, 232_448)
    kind: Any = type("Device", (FakeDevice,), {"limits": LaunchLimits("it", shared_bytes_per_block=room)})
    return kind(arch)


class _Kernel:
    """A kernel that notes how it would be launched."""

    def __init__(self, told: list[Any], name: str, defines: Any) -> None:
        self.told, self.name, self.defines = told, name, dict(defines)

    def bind(
        self, grid: Any, block: Any, args: Any, shared: int, cluster: Any, _device: Any, **how: Any
    ) -> Any:
        plain = [
            one if isinstance(one, float) or one is None or abs(one) < 2**20 else "address"
            for one in map(_plain, args)
        ]
        self.told.append((self.name, self.defines, grid, block, shared, cluster, how, plain))
        return SimpleNamespace(number=len(self.told))


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float) or value is None else 2**60


def _trainer(told: list[Any], arch: str = "sm_90a", count: int = 3, **given: Any) -> Trainer:
    chosen = Options(**given)
    with mock.patch.object(
        step_launches, "_kernel", lambda name, _arch, defines: _Kernel(told, name, defines)
    ):
        samples, labels = np.zeros((count, 784), np.float16), np.zeros(count, np.uint8)
        return Trainer(_begin(chosen), chosen, samples, labels, _device(arch))


def _begin(chosen: options.TrainingOptions) -> Network:
    """A network of zeros: large ones take a while to draw."""
    with mock.patch(
        "numpy.random.default_rng",
        lambda _: SimpleNamespace(random=lambda shape, kind: np.zeros(shape, kind)),
    ):
        return Network.begin(chosen)


def launches(arch: str, graded: bool = True, batches: int = 1, many: int = 2**24, **given: Any) -> Any:
    """The launches of some batches: shapes, arguments and compile-time values; layers of so ``many`` weights are large."""
    with mock.patch("tilewise.nn.launch_shapes._MANY_WEIGHTS", many):
        return _launches(arch, graded, batches, given)


def _launches(arch: str, graded: bool, batches: int, given: Mapping[str, Any]) -> Any:
    told: list[Any] = []
    trainer = _trainer(told, arch, **given)
    with mock.patch.object(
        step_launches, "_kernel", lambda name, _arch, defines: _Kernel(told, name, defines)
    ):
        named = trainer.launches(graded, batches)
    return [(name, call.number) for name, call in named], told  # type: ignore[attr-defined]  # the kernel's own answer


def place(samples: Any, labels: Any) -> Any:
    """Samples as a device has them, or what is wrong with them."""
    chosen = Options(hidden=32, batch=16)
    with mock.patch.object(step_launches, "_kernel", lambda name, _arch, defines: _Kernel([], name, defines)):
        found = Trainer(Network.begin(chosen), chosen, samples, labels, DEVICE)._samples
    return [
        (one.shape, str(one.dtype))
        for one in (found.features, found.labels, found.order, found.losses, found.classes)
    ]


def selected(rows: Any) -> Any:
    trainer = _trainer([], hidden=32, batch=16)
    trainer.select(rows)
    return trainer._samples.order.numpy()


def trained(rows: Any) -> Any:
    trainer = _trainer([], hidden=32, batch=16)
    with (
        mock.patch.object(Trainer, "run", lambda *_: None),
        mock.patch.object(Trainer, "results", lambda *_: "results"),
    ):
        return trainer.train(rows)


def model(steps: int, **given: Any) -> Any:
    """Losses, and what they may be off by, of a network in float64 once it has learnt some."""
    chosen = Options(hidden=32, batch=16, **given)
    made = Float64Model(Network.begin(chosen), chosen)
    samples = (numbers(16, 784) % 13 / 8).astype(np.float16)
    labels = np.arange(16) % 10
    for _ in range(steps):
        made.step(samples, labels)
    return [
        f"{one:.4g}" for one in (*made.losses(samples, labels)[:3], *made.loss_bounds(samples, labels)[:3])
    ]


def figures(count: int, curve: Any = (1.0, 0.5), steps: int = 5, source: str = "made") -> TrainingFigures:
    epochs = [
        EpochFigures(**EPOCH | {"epoch": i + 1, "curve": list(curve), "steps": steps, "steps_a_point": 3})
        for i in range(count)
    ]
    return TrainingFigures(Options(hidden=32), "emulator", "a title", source, True, epochs, Network([]))


def shown(found: TrainingFigures) -> Any:
    return found.accuracy, found.loss, found.steps, found.seconds_per_step, found.to_dict()


def check_same(changes: Mapping[str, Any], digest: str) -> Any:
    """Whether a run goes on with other options, or other samples."""
    one = replace(checkpoint(), digest="same")
    chosen: Any = replace(one.options, **changes)
    samples: Any = SimpleNamespace(digest=digest, source="a source")
    return _check_same(one, chosen, samples)


def runaway(loss: float, finite: bool) -> Any:
    trainer: Any = SimpleNamespace(has_finite_weights=lambda: finite, options=Options())
    return _refuse_runaway(trainer, 3, loss)
