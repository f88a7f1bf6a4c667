"""What training needs besides a device: samples, options, how weights are kept."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import itertools
import struct
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import URLError

import numpy as np
import numpy.typing as npt
import pytest

import tilewise as tw
from tilewise.cli import train_command
from tilewise.errors import ArgumentError, DeviceError, ToolError
from tilewise.explain.chart import Line
from tilewise.nn import curves, digit_strokes
from tilewise.nn import digits as samples
from tilewise.nn.digit_strokes import make_digits
from tilewise.nn.float64_model import Float64Model
from tilewise.nn.launch_shapes import shape_backward, shape_classify, shape_forward, updates_at_once
from tilewise.nn.network import Network, join_halves, split_weights
from tilewise.nn.tiles import tile_halves, tile_velocities, untile_halves, untile_velocities
from tilewise.nn.trainer import STEPS_IN_GRAPH, Trainer, order_samples
from tilewise.nn.training import EpochFigures, TrainingFigures, _train_epoch
from tilewise.toolchain import cache

Array = npt.NDArray[Any]


def write_idx(path: Path, array: Array) -> None:
    content = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def write_folder(folder: Path) -> tuple[Array, Array]:
    images, labels = make_digits(20, 1, False)
    write_idx(folder / "train-images-idx3-ubyte.gz", images)
    write_idx(folder / "train-labels-idx1-ubyte", labels)
    write_idx(folder / "t10k-images-idx3-ubyte", images[:5])
    write_idx(folder / "t10k-labels-idx1-ubyte.gz", labels[:5])
    return images, labels


def test_files_are_read(tmp_path: Path) -> None:
    images, labels = write_folder(tmp_path)
    digits = tw.nn.load_digits(tmp_path, limit=10)
    assert digits.samples.shape == (10, 784) and digits.test_samples.shape == (5, 784)
    want = (images[:10].reshape(10, 784) / 255 - 0.1307) / 0.3081
    assert np.array_equal(digits.samples, want.astype(np.float16))
    assert np.array_equal(digits.labels, labels[:10])
    assert not digits.made and digits.source == f"the files in {tmp_path}"


@pytest.mark.parametrize("other", [None, 0, 1, 2, 3])
def test_files_are_called_mnist_if_all_of_them_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: int | None
) -> None:
    """By what the files hold, zipped or not, the ``other`` one aside."""
    write_folder(tmp_path)
    known: list[Any] = []
    for i, file in enumerate((*samples._TRAINING_FILES, *samples._TEST_FILES)):
        plain, zipped = tmp_path / file.name, tmp_path / f"{file.name}.gz"
        content = plain.read_bytes() if plain.exists() else gzip.decompress(zipped.read_bytes())
        whole = hashlib.sha256(content).hexdigest()
        known.append(file._replace(sha256="0" * 64 if i == other else whole))
    monkeypatch.setattr(samples, "_TRAINING_FILES", tuple(known[:2]))
    monkeypatch.setattr(samples, "_TEST_FILES", tuple(known[2:]))
    digits = tw.nn.load_digits(tmp_path)
    assert digits.source == ("MNIST" if other is None else f"the files in {tmp_path}") and not digits.made
    (tmp_path / known[0].name).write_bytes(b"broken, before a download put a whole one beside it")
    assert tw.nn.load_digits(tmp_path).digest == digits.digest


def test_a_download_is_kept_only_if_it_is_the_file_that_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a folder has already is not fetched; what it has of other content is fetched anew."""
    files = (*samples._TRAINING_FILES, *samples._TEST_FILES)
    contents = {f"{samples._SOURCE}{file.name}.gz": file.name.encode() for file in files}
    known = [file._replace(zipped_sha256=hashlib.sha256(file.name.encode()).hexdigest()) for file in files]
    monkeypatch.setattr(samples, "_TRAINING_FILES", tuple(known[:2]))
    monkeypatch.setattr(samples, "_TEST_FILES", tuple(known[2:]))
    asked: list[tuple[str, int]] = []

    def fetch(address: str, most: int) -> bytes:
        asked.append((address, most))
        return contents[address]

    monkeypatch.setattr(samples, "_fetch", fetch)
    folder, paths = tmp_path / "new", [tmp_path / "new" / f"{file.name}.gz" for file in files]
    addresses = list(contents)
    assert samples.download_mnist(folder) == folder
    assert asked == list(zip(addresses, [file.bytes for file in files], strict=True))
    assert [path.read_bytes() for path in paths] == list(contents.values())
    asked.clear()
    paths[2].write_bytes(b"another")
    samples.download_mnist(folder)
    assert [address for address, _ in asked] == addresses[2:3] and paths[2].read_bytes() == contents[
        addresses[2]
    ]
    paths[3].unlink()
    contents[addresses[3]] += b" "
    with pytest.raises(ToolError, match=f"{addresses[3]} is not the file that it was"):
        samples.download_mnist(folder)
    assert sorted(folder.iterdir()) == sorted(paths[:3])


def test_a_byte_more_than_a_file_has_is_fetched_and_why_none_can_be_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def answer(address: str, timeout: float) -> Any:
        assert timeout > 1
        if error := {"a": URLError("no route"), "b": TimeoutError("too slow")}.get(address):
            raise error
        return io.BytesIO(b"0123456789")

    monkeypatch.setattr("urllib.request.urlopen", answer)
    assert samples._fetch("c", 5) == b"012345" and samples._fetch("c", 20) == b"0123456789"
    for address, reason in (("a", "no route"), ("b", "too slow")):
        with pytest.raises(ToolError, match=f"^{address} cannot be fetched: {reason}; without --download"):
            samples._fetch(address, 5)


@pytest.mark.parametrize(
    ("name", "content", "rule"),
    [
        ("train-labels-idx1-ubyte", bytes((0, 0, 8, 1, 0, 0, 0, 19)) + bytes(19), "as many labels as images"),
        ("train-labels-idx1-ubyte", bytes((0, 0, 8, 1, 0, 0, 0, 20)) + bytes([10] * 20), "labels below 10"),
        ("train-labels-idx1-ubyte", bytes((0, 0, 8, 1, 0, 0, 0, 20)) + bytes(19), "the 20 bytes that it says"),
        ("train-labels-idx1-ubyte", b"", "must begin as an IDX file of bytes with 1 axes"),
        ("train-labels-idx1-ubyte", bytes((0, 0, 8, 1, 0, 0, 0)), "an IDX file of bytes with 1 axes"),
        ("t10k-images-idx3-ubyte", struct.pack(">4B2I", 0, 0, 8, 3, 20, 28), "an IDX file of bytes with 3 axes"),
        ("train-labels-idx1-ubyte", bytes((0, 0, 8, 1, 0, 0, 0, 0)), "as many labels as images"),
        ("t10k-labels-idx1-ubyte.gz", b"no gzip", "must be readable: Not a gzipped file (b'no'); delete it, or fetch MNIST's with --download"),
        ("t10k-images-idx3-ubyte", struct.pack(">4B3I", 0, 0, 8, 3, 1, 2, 2) + bytes(4), "shape (28, 28)"),
        ("t10k-images-idx3-ubyte", None, "must hold t10k-images-idx3-ubyte, or that with .gz"),
    ],
    ids=["count", "class", "short", "empty", "almost", "cut", "none", "gzip", "shape", "missing"],
)  # fmt: skip
def test_a_broken_file_is_named(tmp_path: Path, name: str, content: bytes | None, rule: str) -> None:
    write_folder(tmp_path)
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ArgumentError) as refused:
        tw.nn.load_digits(tmp_path)
    assert rule in str(refused.value) and refused.value.argument.startswith("data")


def test_made_digits_are_the_same_each_time() -> None:
    images, labels = make_digits(30, 5, False)
    again, _ = make_digits(10, 5, False)
    test, _ = make_digits(10, 5, True)
    assert np.array_equal(images[:10], again) and not np.array_equal(images[:10], test)
    assert images.shape == (30, 28, 28) and set(labels) == set(range(10))
    assert (images.reshape(30, -1).max(1) > 200).all() and images.mean() < 80


def test_made_digits_are_the_same_everywhere() -> None:
    """A state that was kept before is of these digits: with others, training would not go on from it."""
    made = b"".join(part.tobytes() for part in make_digits(30, 5, False))
    assert (
        hashlib.sha256(made).hexdigest() == "c7c64d99e843ea42c666de7fff01069e642aa97985b2db21f9e26c470b3688ba"
    )


@pytest.mark.parametrize("part", ["samples", "labels", "test_samples", "test_labels"])
def test_a_digest_is_of_every_part(part: str) -> None:
    digits = tw.nn.load_digits(limit=4)
    changed = getattr(digits, part).copy()
    changed[-1] += 1
    assert dataclasses.replace(digits, **{part: changed}).digest != digits.digest


def test_every_digit_is_drawn_however_many_are_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewise.nn.digit_strokes._AT_ONCE", 4)
    monkeypatch.setattr(np, "empty", lambda shape, dtype: np.full(shape, 77, dtype))
    images, labels = make_digits(10, 1, False)
    assert set(labels) <= set(range(10))
    assert (images.max((1, 2)) > 77).all() and (images.min((1, 2)) < 77).all()


@pytest.mark.parametrize("askew", range(-1, 6))
def test_a_digit_is_put_askew_by_a_fifth_at_most_and_drawn_with_the_pen_where_that_puts_it(
    askew: int,
) -> None:
    """A fifth wider or higher, a slant of two fifths to the side and a fifth down, a tenth of the square away."""
    spread = np.full((digit_strokes._AT_ONCE, 6), 0.5, np.float32)
    spread[:, askew : askew + 1] = 1.0
    random = SimpleNamespace(
        integers=lambda low, high, count: np.arange(count) % (high - low) + low,
        random=lambda shape, dtype: spread if shape == spread.shape else np.full(shape, 0.5, dtype),
    )
    found, labels = digit_strokes._draw(random, maps := digit_strokes._distance_maps())  # type: ignore[arg-type]
    wide, slant, down, high, right, below = np.eye(6)[askew] * [0.2, 0.4, 0.2, 0.2, 0.1, 0.1] * (askew >= 0)
    line = (np.arange(28) - 13.5) / 20
    y, x = np.meshgrid(line, line, indexing="ij")
    places = ((1 + wide) * x + slant * y + right, down * x + (1 + high) * y + below)
    column, row = (
        np.rint((np.clip(one, -0.5, 0.5) + 0.5) * (maps.shape[-1] - 1)).astype(int) for one in places
    )
    for i in range(10):
        apart = maps[labels[i], i % maps.shape[1], row, column]
        expected = 255 * np.clip((0.045 + 0.03 - apart) / 0.04, 0, 1)
        assert (abs(found[i] - expected) > 2).mean() < 0.02  # but for what lies between two points of the map


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hidden", 0),
        ("hidden", 100),
        ("hidden", 32768),
        ("hidden", 64.0),
        ("epochs", 0),
        ("batch", 48),
        ("limit", 31),
        ("rate", float("nan")),
        ("rate", float("inf")),
        ("rate", True),
        ("momentum", 1.0),
        ("decay", -1.0),
        ("seed", -1),
        *(
            (name, value)
            for name in ("hidden", "epochs", "limit", "seed")
            for value in (64.0, 64.5, True, "64")
        ),
        *((name, value) for name in ("rate", "momentum", "decay") for value in (-1e-9, True, "0.5", None)),
        ("batch", "32"),
        ("batch", 32.0),
        ("rate", 10**400),
        ("rate", np.float32("nan")),
        ("rate", 1j),
    ],
)
def test_a_wrong_option_is_named(name: str, value: object) -> None:
    with pytest.raises(ArgumentError) as refused:
        tw.nn.TrainingOptions(**{name: value})  # type: ignore[arg-type]
    assert refused.value.argument == name


def test_options_are_pythons_numbers_whatever_they_were() -> None:
    """So that a checkpoint can say them as JSON."""
    given: list[Any] = [
        np.int64(64),
        np.int8(2),
        np.uint8(16),
        np.float32(0.5),
        np.float16(0.25),
        0,
        np.int32(32),
        np.uint64(3),
    ]
    options = tw.nn.TrainingOptions(*given)
    assert options == tw.nn.TrainingOptions(64, 2, 16, 0.5, 0.25, 0.0, 32, 3)
    assert {type(value) for value in options.to_dict().values()} == {int, float}


@pytest.mark.parametrize("limit", [-3, 0, 31])
def test_a_limit_has_one_rule(limit: int) -> None:
    with pytest.raises(ArgumentError, match=f"^limit must be at least the batch, 32, not {limit}$"):
        tw.nn.TrainingOptions(limit=limit)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"limit": 0}, "limit must be at least 1, not 0"),
        ({"folder": ".", "limit": -5}, "limit must be at least 1, not -5"),
        ({"limit": "x"}, "limit must be an integer, not 'x'"),
        ({"seed": -1}, "seed must be at least 0, not -1"),
        ({"folder": 3}, "data must be a folder, not 3; leave it out to have digits made"),
    ],
)
def test_what_digits_are_loaded_by_is_checked(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(ArgumentError) as refused:
        tw.nn.load_digits(**given)
    assert str(refused.value) == expected


@pytest.mark.parametrize(("hidden", "nearest"), [(33, 32), (100, 96), (126, 128)])
def test_the_nearest_width_that_will_do_is_told(hidden: int, nearest: int) -> None:
    with pytest.raises(
        ArgumentError, match=rf"^hidden must be a multiple of 32, not {hidden}; take {nearest}$"
    ):
        tw.nn.TrainingOptions(hidden=hidden)


def test_each_epoch_takes_the_samples_in_an_order_of_its_own() -> None:
    """Every sample once at most, in whole batches; another seed has other orders, and the same has the same."""
    options = tw.nn.TrainingOptions()
    count = 3 * options.batch + 1
    orders = [order_samples(options, count, epoch).tolist() for epoch in range(3)]
    orders.append(order_samples(replace(options, seed=options.seed + 1), count, 0).tolist())
    assert all(len(set(order)) == 3 * options.batch and set(order) <= set(range(count)) for order in orders)
    assert len(set(map(tuple, orders))) == 4
    assert order_samples(options, count, 2).tolist() == orders[2]


def test_a_batch_of_samples_is_enough_to_train_with(monkeypatch: pytest.MonkeyPatch) -> None:
    class Began(Exception): ...

    def begin(*_: object) -> None:
        raise Began

    monkeypatch.setattr("tilewise.nn.training.Trainer", begin)
    options = tw.nn.TrainingOptions(hidden=32, epochs=1)
    with pytest.raises(Began):
        tw.nn.train(options, tw.nn.load_digits(limit=options.batch), "emulator")
    with pytest.raises(ArgumentError, match=f"data must have a batch of {options.batch} samples"):
        tw.nn.train(options, tw.nn.load_digits(limit=options.batch - 1), "emulator")


def test_a_mean_of_losses_is_drawn_in_the_middle_of_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Line] = []
    monkeypatch.setattr(curves, "draw_lines", lambda _, __, ___, lines, *____: drawn.extend(lines))
    steps = {1: 8, 2: 5}  # the second epoch's last mean is that of one step
    epochs = [EpochFigures(i, 0.5 / i, 0.75, 0.6, count, 1.0, 4, [2.5, 1.5]) for i, count in steps.items()]
    network: Any = None
    curves.draw_learning(TrainingFigures(tw.nn.TrainingOptions(), "", "", "", True, epochs, network))
    training, test, accuracy = (line.points for line in drawn)
    assert training == [(0.25, 2.5), (0.75, 1.5), (1.4, 2.5), (1.9, 1.5)]
    assert (test, accuracy) == ([(1, 0.5), (2, 0.25)], [(1, 75), (2, 75)])
    assert [(line.name, line.dotted) for line in drawn] == [
        ("training", False),
        ("test", True),
        ("test", True),
    ]


def test_a_long_folder_leaves_the_ends_of_a_title_in_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    titles: list[str] = []
    monkeypatch.setattr(curves, "draw_lines", lambda _, title, *__: titles.append(title))
    network: Any = None
    source = f"the files in /data/{'long/' * 30}digits"
    epochs = [EpochFigures(1, 0.5, 0.75, 0.6, 8, 1.0, 4, [2.5, 1.5])]
    picture = curves.draw_learning(
        TrainingFigures(tw.nn.TrainingOptions(), "", "a GPU", source, False, epochs, network)
    )
    assert len(titles[0]) == 82 and source in picture, "as what the picture is called, all of it"
    assert titles[0].startswith("784-512-512-512-10 on a GPU") and titles[0].endswith("/digits")


def test_two_halves_are_the_weight() -> None:
    random = np.random.default_rng()
    signs = random.choice([-1.0, 1.0], 100_000)
    whole = (signs * 2.0 ** random.uniform(-15.99, 15, 100_000)).astype(np.float32)
    assert np.array_equal(join_halves(*split_weights(whole)), whole)
    assert np.array_equal(split_weights(whole)[0], whole.astype(np.float16))
    small = (signs * 2.0 ** random.uniform(-16.99, -16, 100_000)).astype(np.float32)
    small.view(np.int32)[:1000] = (
        small.view(np.int32)[:1000] & ~0xFFFF | 0x8000
    )  # half way between two float16
    assert (np.abs(join_halves(*split_weights(small)) - small) <= 2.0**-40).all()
    tiny = (signs * 2.0 ** random.uniform(-60, -17, 100_000)).astype(np.float32)
    assert (np.abs(join_halves(*split_weights(tiny)) - tiny) <= 2.0**-25).all()


def test_tiles_are_there_and_back() -> None:
    matrix = np.arange(48 * 96).reshape(48, 96)
    halves, velocities = tile_halves(matrix), tile_velocities(matrix)
    assert np.array_equal(untile_halves(halves), matrix)
    assert np.array_equal(untile_velocities(velocities), matrix)
    # The second tile down, the first across; of its lower half row 3, the elements from 8 on, mixed with row 3 // 2.
    assert list(halves.reshape(-1)[3 * 512 + 256 + (3 * 4 + (1 ^ 1)) * 8 :][:8]) == list(
        matrix[16 + 8 + 3, 8:16]
    )


@pytest.mark.parametrize("batch", [16, 32, 64])
@pytest.mark.parametrize("hidden", [32, 160, 1024, 4096, 16384])
def test_every_launch_fits_a_multiprocessor(batch: int, hidden: int) -> None:
    shapes = [
        shape_classify(batch, hidden, True),
        *(shape_forward(batch, inputs, hidden, clusters) for inputs in (800, hidden) for clusters in (True, False)),
        *(shape_backward(batch, hidden, outputs, momentum, True, True) for outputs in (16, hidden) for momentum in (True, False)),
        shape_backward(batch, 800, hidden, True, False, False),
    ]  # fmt: skip
    for shape in shapes:
        assert shape.shared <= 227 * 1024 and shape.stages >= 2 and batch % shape.split % 2 == 0
        assert shape.shared >= 8 * batch * (shape.columns + 8) * 4


@pytest.mark.parametrize(
    ("batch", "momentum", "batches"),
    [(16, False, 1), (16, True, 1), (64, False, 1), (64, True, 1), (32, False, 0), (32, True, 0), (32, False, 4), (64, True, 2)],
)  # fmt: skip
def test_a_backward_launch_has_room_for_what_its_warps_load(batch: int, momentum: bool, batches: int) -> None:
    """Beside the block's inputs: tiles of both halves, of velocities, of what is ahead, and of 16 columns of each batch's
    errors. Weights that are only read have one half."""
    shape = shape_backward(batch, 4096, 4096, momentum, True, True, batches)
    weight = 2 + 2 + 4 * momentum + 2 * (momentum and batches > 1) if batches else 2
    read = max(batches, 1)
    stage = 16 * shape.columns * weight + 16 * batch * read * 2
    sums = 8 * batch * (shape.columns + 8) * 4
    assert shape.shared == read * batch * (shape.columns + 8) * 2 + max(shape.stages * 8 * stage, sums)
    assert shape.shared * shape.resident <= 227 * 1024


@pytest.mark.parametrize("room", [99 * 1024, 163 * 1024, 227 * 1024])
@pytest.mark.parametrize("hidden", [64, 1024, 4096, 8192])
@pytest.mark.parametrize(("batch", "momentum"), [(16, True), (32, False), (32, True), (64, False)])
def test_launches_fit_gpus_with_less_shared_memory(
    room: int, hidden: int, batch: int, momentum: bool
) -> None:
    for clusters in (False, True):
        forward = shape_forward(batch, hidden, hidden, clusters, room)
        assert max(forward.shared, shape_classify(batch, hidden, clusters, room).shared) <= room
        count = updates_at_once(batch, hidden, hidden, momentum, room)
        for batches in range(0 if count > 1 else 1, count + 1):
            shape = shape_backward(batch, hidden, hidden, momentum, True, clusters, batches)
            assert shape.shared <= room, batches
    many = {(99, 16): 4, (99, 32): 2, (99, 64): 1, (163, 64): 2}.get((room // 1024, batch), 4)
    if momentum:
        many = 2 if room == 227 * 1024 else 1
    assert count == (many if hidden >= 4096 else 1)


@pytest.mark.parametrize("inputs", [1024, 2048, 4096, 8192])
def test_clusters_of_a_backward_launch_have_room_all_at_once(inputs: int) -> None:
    """Two blocks a multiprocessor: with more clusters a second wave has the last few."""
    shape = shape_backward(32, inputs, inputs, False, True, True)
    most = {1: 132, 2: 132, 4: 120, 8: 120}
    assert shape.blocks * shape.split <= 2 * most[shape.split]


@pytest.mark.parametrize("inputs", [32, 256, 320, 800, 1024, 4096, 16384])
def test_a_sum_is_shared_out_while_every_warp_has_some_of_it_and_every_block_a_place(inputs: int) -> None:
    """Eight warps of a block take 32 inputs each at a time; 132 blocks run side by side, at most 8 of a cluster, but 120 in
    clusters of four or eight."""
    shapes = [shape_classify(32, inputs, True)]
    shapes += [shape_forward(32, inputs, outputs, True) for outputs in (32, 512, 1024, 4096)]
    for shape in shapes:
        rounds = inputs / (32 * 8)
        room = {2: 132, 4: 120, 8: 120}
        fits = [split for split in room if split * shape.blocks <= room[split] and split / 2 < rounds]
        assert shape.split == max(fits, default=1), shape
    assert shape_classify(32, inputs, False).split == 1


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_a_step_in_float64_goes_down_the_slope_of_the_loss(momentum: float) -> None:
    """Of the mean loss and half the decay times the squares of all weights: beside differences of that."""
    random, options = (
        np.random.default_rng(),
        tw.nn.TrainingOptions(32, rate=0.25, momentum=momentum, decay=0.1),
    )
    network = tw.nn.Network.begin(options)
    for layer in network.layers:
        layer.bias[:] = random.standard_normal(layer.bias.shape) * 0.1
        layer.bias_velocities[:] = random.standard_normal(layer.bias.shape)
        if layer.velocities is not None:
            layer.velocities[:] = random.standard_normal(layer.velocities.shape)
    samples, labels = random.standard_normal((6, 784)), random.integers(0, 10, 6).astype(np.uint8)
    model, stepped = Float64Model(network, options), Float64Model(network, options)
    arrays = [*model.weights, *model.bias]
    assert (stepped.step(samples, labels) == model.losses(samples, labels)).all()

    def cost() -> Any:
        decay = sum((array**2).sum() for array in arrays) * options.decay / 2
        return model.losses(samples, labels).mean() + decay

    velocities = [*model._velocities, *model._bias_velocities]
    for array, after, velocity in zip(arrays, [*stepped.weights, *stepped.bias], velocities, strict=True):
        gradient = (array - after) / options.rate - momentum * velocity
        direction, before, far = random.standard_normal(array.shape), array.copy(), 1e-7
        array += far * direction
        up = cost()
        array -= 2 * far * direction
        assert (up - cost()) / (2 * far) == pytest.approx((gradient * direction).sum(), rel=1e-4, abs=1e-4)
        array[:] = before


@pytest.mark.parametrize("scale", [1, 2.0**-8])  # the second: most weights are below float16's normal numbers
def test_losses_may_be_off_by_the_roundings_of_weights_and_of_what_hidden_layers_give(scale: float) -> None:
    random, options = np.random.default_rng(), tw.nn.TrainingOptions(32)
    model = Float64Model(tw.nn.Network.begin(options), options)
    model.weights = [weights * scale for weights in model.weights]
    samples, labels = random.standard_normal((5, 784)), random.integers(0, 10, 5).astype(np.uint8)
    outputs, last = model.outputs(samples), len(model.weights)

    def variance(values: npt.NDArray[Any]) -> Any:
        """Of numbers that are anywhere within half of 2⁻¹⁰ of them: that of an interval is its square by 12."""
        return (np.maximum(np.abs(values), 2.0**-14) * 2.0**-10) ** 2 / 12

    def through_layers(spread: Any, number: int) -> Any:
        for weights in model.weights[number:]:
            spread = spread @ np.square(weights).T
        return spread

    spread: Any = sum(
        through_layers(outputs[i] ** 2 @ variance(weights).T, i + 1)
        for i, weights in enumerate(model.weights)
    )
    spread += sum(through_layers(variance(outputs[i]), i) for i in range(1, last))
    shares = np.exp(outputs[last][:, :10]) / np.exp(outputs[last][:, :10]).sum(1, keepdims=True)
    slope = np.pad(shares - np.eye(10)[labels], ((0, 0), (0, outputs[last].shape[1] - 10)))
    expected = 8 * np.sqrt((slope**2 * spread).sum(1)) + 1e-6
    assert model.loss_bounds(samples, labels) == pytest.approx(expected, rel=1e-9)


def test_the_command_trains_with_what_was_downloaded_before_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All four files have to be there, as they are downloaded; a folder that is given is taken as it is."""
    cached, given = tmp_path / "cache" / "mnist", tmp_path / "given"
    monkeypatch.setattr(cache, "default", lambda: SimpleNamespace(directory=cached.parent))
    for folder in (cached, given):
        folder.mkdir(parents=True)
        write_folder(folder)
    options = tw.nn.TrainingOptions(limit=32)

    def source(data: str | None = None, download: bool = False) -> str:
        return train_command._load(Namespace(data=data, download=download), options).source

    assert source() == "digits made by strokes, seed 0"  # two of the files are there unzipped
    for name in ("train-labels-idx1-ubyte", "t10k-images-idx3-ubyte"):
        (cached / f"{name}.gz").write_bytes(gzip.compress((cached / name).read_bytes()))
    assert source() == f"the files in {cached}"
    assert source(str(given)) == f"the files in {given}"
    fetched: list[Path] = []

    def fetch(folder: str | Path) -> Path:
        fetched.append(Path(folder))
        return Path(folder)

    monkeypatch.setattr(train_command, "download_mnist", fetch)
    assert source(download=True) == f"the files in {cached}"
    assert source(str(given), download=True) == f"the files in {given}"
    assert fetched == [cached, given]
    monkeypatch.setattr(cache, "default", lambda: SimpleNamespace(directory=None))
    assert source() == "digits made by strokes, seed 0"
    with pytest.raises(ArgumentError, match="--download needs a folder"):
        source(download=True)


def test_figures_of_a_run_are_those_of_its_last_epoch() -> None:
    epochs = [EpochFigures(i, 1 / i, i / 4, 0.6, 10 * i, 3.0 + i, 1, [1.0]) for i in (1, 2, 3)]
    network = Network([])
    figures = TrainingFigures(tw.nn.TrainingOptions(), "", "", "", True, epochs, network)
    assert (figures.loss, figures.accuracy, figures.steps) == (1 / 3, 3 / 4, 60)
    assert figures.seconds_per_step == figures.to_dict()["seconds_per_step"] == 6.0 / 30


def test_after_an_epoch_the_samples_of_the_test_are_classified() -> None:
    """They lie behind those of the training. A trainer that knows the labels, with a sample's number for its loss."""
    digits = replace(
        tw.nn.load_digits(limit=48), test_labels=np.arange(32) % 7, test_samples=np.zeros((32, 784))
    )
    labels = np.concatenate([digits.labels, digits.test_labels])
    given: list[npt.NDArray[Any]] = []
    trainer: Any = SimpleNamespace(
        options=tw.nn.TrainingOptions(batch=16, epochs=1),
        select=given.append,
        run=lambda _batches: None,
        results=lambda count: (np.ones(count), labels[given[-1][:count]]),
        classify=lambda rows: (rows.astype(float), labels[rows]),
        has_finite_weights=lambda: True,
    )
    found = _train_epoch(trainer, digits, 0, lambda *_: None)
    assert (found.loss, found.accuracy) == (np.arange(48, 80).mean(), 1.0)


def test_an_epoch_that_leaves_weights_that_are_no_numbers_ends_the_run_whatever_the_loss() -> None:
    digits = tw.nn.load_digits(limit=16)
    trainer: Any = SimpleNamespace(
        options=tw.nn.TrainingOptions(batch=16, rate=2),
        select=lambda _rows: None,
        run=lambda _batches: None,
        results=lambda count: (np.ones(count), digits.labels[:count]),
        has_finite_weights=lambda: False,
    )
    with pytest.raises(DeviceError, match=r"^after epoch 3 not every weight .* lower the rate \(now 2\)$"):
        _train_epoch(trainer, digits, 2, lambda *_: None)


def test_weights_begin_otherwise_in_each_layer_and_for_each_seed() -> None:
    drawn = [
        layer.master[:10, :32]
        for seed in (0, 1)
        for layer in Network.begin(tw.nn.TrainingOptions(hidden=32, seed=seed)).layers
    ]
    for i, one in enumerate(drawn):
        assert not any(np.corrcoef(one.ravel(), other.ravel())[0, 1] > 0.5 for other in drawn[:i])


@pytest.mark.parametrize("at_once", [1, 2, 4])
def test_what_is_read_of_the_last_batch_lies_where_that_one_put_it(at_once: int) -> None:
    """Batches that update layers at once have a place each; those of which nothing is learnt all have the first."""
    trainer: Any = Trainer.__new__(Trainer)
    places = SimpleNamespace(numpy=lambda: np.arange(at_once))
    trainer._launches = SimpleNamespace(at_once=at_once, outputs=[places], of_batches=lambda *_: [])
    for graded, batches in itertools.product((True, False), range(1, 9)):
        trainer.start(graded, batches)
        trainer.start(not graded, 0)  # of none
        assert trainer.read_outputs() == [(batches - 1) % at_once if graded else 0]


def test_a_graph_ends_with_an_update() -> None:
    """Of one batch's gradients, of two or of four."""
    for momentum, room in itertools.product((False, True), (99 * 1024, 163 * 1024, 227 * 1024)):
        for batch in (16, 32, 64):
            assert STEPS_IN_GRAPH % updates_at_once(batch, 4096, 4096, momentum, room) == 0
    assert STEPS_IN_GRAPH % 4 == 0
