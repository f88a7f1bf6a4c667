"""The samples: MNIST's files from a folder, downloaded ones, or digits made by strokes."""

from __future__ import annotations

import gzip
import hashlib
import os
import struct
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilewise.errors import ArgumentError, ToolError, integer
from tilewise.nn.digit_strokes import SIDE, make_digits
from tilewise.nn.options import CLASSES, FEATURES
from tilewise.whole_file import replace_when_whole

__all__ = ["Digits", "download_mnist", "has_mnist", "load_digits"]

_Array = npt.NDArray[Any]

_TRAINING, _TEST = 60_000, 10_000  # samples of MNIST, and of what is made in its place
_MEAN, _DEVIATION = 0.1307, 0.3081  # of MNIST's pixels, between 0 and 1
_SOURCE = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_TIMEOUT = 10.0  # seconds without a byte
_MEND = "delete it, or fetch MNIST's with --download"


class _File(NamedTuple):
    """A file of MNIST: its name without ``.gz``, how many bytes are zipped, and the SHA-256 of those and of all."""

    name: str
    bytes: int
    zipped_sha256: str
    sha256: str


_TRAINING_FILES = (
    _File(
        "train-images-idx3-ubyte",
        9_912_422,
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    _File(
        "train-labels-idx1-ubyte",
        28_881,
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
)
_TEST_FILES = (
    _File(
        "t10k-images-idx3-ubyte",
        1_648_877,
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
    _File(
        "t10k-labels-idx1-ubyte",
        4_542,
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
)


@dataclass(frozen=True, slots=True)
class Digits:
    """Images to train and to test with, rows of 784 features in float16, and their labels.

    ``source`` says where they come from; ``made`` whether they were drawn here.
    """

    samples: _Array
    labels: _Array
    test_samples: _Array
    test_labels: _Array
    source: str
    made: bool

    @property
    def digest(self) -> str:
        """A content address: a run is resumed with the samples that it began with."""
        parts = (self.samples, self.labels, self.test_samples, self.test_labels)
        return hashlib.sha256(b"".join(hashlib.sha256(part.tobytes()).digest() for part in parts)).hexdigest()


def load_digits(folder: str | Path | None = None, limit: int | None = None, seed: int = 0) -> Digits:
    """The digits of MNIST's files in a folder, or 60,000 and 10,000 that are made, always the same of a seed.

    Files may be as they come (``train-images-idx3-ubyte.gz`` and so on) or unzipped; any images of 28 × 28 in ten
    classes that lie so will do, and where both are there the zipped one counts. ``limit`` takes the first so many of
    both.
    """
    limit = None if limit is None else integer("limit", limit, least=1)
    seed = integer("seed", seed)
    if folder is None:
        made: list[_Array] = []
        for count, test in ((_TRAINING, False), (_TEST, True)):
            made += make_digits(count if limit is None else min(count, limit), seed, test)
        return _digits(made, f"digits made by strokes, seed {seed}", True)
    place = Path(folder) if isinstance(folder, str | os.PathLike) else None
    if place is None or not place.is_dir():
        given = folder if place is None else str(folder)
        raise ArgumentError("data", "must be a folder", given, "leave it out to have digits made")
    parts: list[_Array] = []
    known = True
    for pair in (_TRAINING_FILES, _TEST_FILES):
        images, labels, same = _read_pair(place, pair)
        parts += [images[:limit], labels[:limit]]
        known = known and same
    return _digits(parts, "MNIST" if known else f"the files in {place}", False)


def _digits(parts: list[_Array], source: str, made: bool) -> Digits:
    images, labels, test_images, test_labels = parts
    return Digits(_features(images), labels, _features(test_images), test_labels, source, made)


def _features(images: _Array) -> _Array:
    """Pixels as features around 0, by way of a table: there are 256 of them."""
    table = ((np.arange(256) / 255 - _MEAN) / _DEVIATION).astype(np.float16)
    found: _Array = table[images.reshape(len(images), FEATURES)]
    return found


# ── files ──


def _read_pair(folder: Path, pair: tuple[_File, _File]) -> tuple[_Array, _Array, bool]:
    """Images and labels of two files, and whether they are MNIST's own."""
    images, known = _read_idx(folder, pair[0], (SIDE, SIDE))
    labels, also = _read_idx(folder, pair[1], ())
    if len(images) != len(labels):
        rule = f"must hold as many labels as images, {len(images):,}"
        raise ArgumentError(f"data: {folder / pair[1].name}", rule, len(labels))
    if not len(images):
        raise ArgumentError(f"data: {folder / pair[0].name}", "must hold an image")
    if labels.max() >= CLASSES:
        raise ArgumentError(
            f"data: {folder / pair[1].name}", f"must hold labels below {CLASSES}", int(labels.max())
        )
    return images, labels, known and also


def _read_idx(folder: Path, file: _File, inner: tuple[int, ...]) -> tuple[_Array, bool]:
    """The array of bytes of an IDX file whose elements have the shape ``inner``."""
    plain, zipped = folder / file.name, folder / f"{file.name}.gz"
    path = zipped if zipped.exists() else plain  # a download leaves zipped ones, beside whatever is there
    argument = f"data: {path}"
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if path == zipped else content
    except FileNotFoundError:
        fix = "tilewise train mnist --download fetches MNIST; without --data digits are made"
        raise ArgumentError("data", f"must hold {file.name}, or that with .gz", str(folder), fix) from None
    except (OSError, EOFError, gzip.zlib.error) as error:  # type: ignore[attr-defined]
        raise ArgumentError(argument, f"must be readable: {error}", fix=_MEND) from None
    axes = 1 + len(inner)
    if len(content) < 4 + 4 * axes or content[:4] != bytes((0, 0, 8, axes)):
        raise ArgumentError(
            argument, f"must begin as an IDX file of bytes with {axes} axes", content[:4].hex(), _MEND
        )
    shape = struct.unpack(f">{axes}I", content[4 : 4 + 4 * axes])
    if shape[1:] != inner:
        raise ArgumentError(argument, f"must hold elements of shape {inner}", shape[1:])
    data = np.frombuffer(content, np.uint8, offset=4 + 4 * axes)
    if data.size != np.prod(shape, dtype=object):
        raise ArgumentError(
            argument, f"must hold the {np.prod(shape, dtype=object):,} bytes that it says", data.size, _MEND
        )
    return data.reshape(shape), hashlib.sha256(content).hexdigest() == file.sha256


def has_mnist(folder: Path) -> bool:
    """Whether a folder has all of the files, as :func:`download_mnist` leaves them."""
    return all((folder / f"{file.name}.gz").exists() for file in (*_TRAINING_FILES, *_TEST_FILES))


def download_mnist(folder: str | Path) -> Path:
    """Fetch those of MNIST's four files that a folder lacks (11 MB), each checked before it gets its name."""
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError("data", f"must be a folder that can be written: {error}", str(folder)) from None
    for file in (*_TRAINING_FILES, *_TEST_FILES):
        path = place / f"{file.name}.gz"
        if path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == file.zipped_sha256:
            continue
        content = _fetch(f"{_SOURCE}{path.name}", file.bytes)
        if hashlib.sha256(content).hexdigest() != file.zipped_sha256:
            raise ToolError(f"{_SOURCE}{path.name} is not the file that it was: its SHA-256 is another")
        with replace_when_whole(path) as opened:
            opened.write(content)
    return place


def _fetch(address: str, most: int) -> bytes:
    try:
        with urllib.request.urlopen(address, timeout=_TIMEOUT) as response:
            found: bytes = response.read(most + 1)
            return found
    except (urllib.error.URLError, OSError) as error:
        reason = getattr(error, "reason", error)
        raise ToolError(
            f"{address} cannot be fetched: {reason}; without --download digits are made, and --data takes a folder"
        ) from None
