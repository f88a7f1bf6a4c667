"""Files of a cache, one by one: what is removed, and what is not ours to remove."""

from __future__ import annotations

import importlib.util
import os
import struct
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewise.errors import ArgumentError
from tilewise.toolchain import cache as module
from tilewise.toolchain.cache import Cache, _remove, digest


def test_entries_are_opened_as_carefully_as_the_system_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """As files, not as what a link names, without waiting; what a system has no flag for is left out."""
    names = "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"
    spec = importlib.util.find_spec("tilewise.toolchain.cache")
    assert spec is not None and spec.loader is not None
    for known in (names, names[:1], names[1:2], names[2:3], names[3:], ()):
        for number, name in enumerate(names):
            monkeypatch.setattr(os, name, 1 << 40 + number, raising=False)
            if name not in known:
                monkeypatch.delattr(os, name)
        fresh = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(fresh)
        assert known == tuple(name for i, name in enumerate(names) if fresh._OPEN_FLAGS >> 40 + i & 1)
        assert fresh._OPEN_FLAGS < 1 << 44 and not fresh._OPEN_FLAGS % (1 << 40)
        monkeypatch.undo()


def test_what_cannot_be_removed_is_still_there(tmp_path: Path) -> None:
    """A file, an empty directory and nothing at all are gone afterwards; a directory with something in it is not."""
    file, empty, full, gone = (tmp_path / name for name in ("file", "empty", "full", "gone"))
    file.write_bytes(b"x")
    empty.mkdir()
    full.mkdir()
    (full / "inner").write_bytes(b"y")
    assert [_remove(str(path)) for path in (file, empty, full, gone)] == [True, True, False, True]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full"] and (full / "inner").exists()


@pytest.mark.parametrize("content", [b"", b"tw", b"something else that lies there"])
def test_a_file_that_is_no_entry_is_not_removed_for_room(tmp_path: Path, content: bytes) -> None:
    """It is of a name that an entry may have, and was used before all others."""
    cache = Cache(tmp_path, limit_bytes=4000)
    assert cache.put("binary", digest("first"), {"data": bytes(900)})
    (entry,) = (path for path in tmp_path.rglob("*") if path.is_file() and path.name != ".usage")
    other = entry.with_name(entry.name[:2] + digest("other")[2:])  # else it lies where no entry would
    other.write_bytes(content)
    for number in range(12):
        cache.put("binary", digest(str(number)), {"data": bytes(900)})
    assert other.read_bytes() == content and not entry.exists()
    assert cache.get("binary", digest("11")) is not None
    # Nor does it count as gone: what is told to be left is all that lies there.
    assert Cache(tmp_path, limit_bytes=1)._evict("") == len(content) and other.exists()


def test_a_cache_where_a_file_lies_says_what_to_do(tmp_path: Path) -> None:
    (place := tmp_path / "file").write_bytes(b"x")
    cache = Cache(place)
    assert cache.get("binary", digest("key")) is None
    assert cache.problem == (
        f"the cache {place} is not a directory; remove it, or set TILEWISE_CACHE_DIR to a directory of your own"
    )
    with pytest.raises(ArgumentError, match=r"must be lower-case letters, digits, '-' and '_'"):
        cache.get("Binary", digest("key"))


def test_a_cache_that_cannot_record_its_size_stays_within_its_limit_all_the_same(tmp_path: Path) -> None:
    """What lies there is then counted whenever something is added."""
    (tmp_path / ".usage").mkdir()
    cache = Cache(tmp_path, limit_bytes=4000)
    for number in range(12):
        assert cache.put("binary", digest(str(number)), {"data": bytes(900)})
        assert cache.get("binary", digest(str(number))) is not None
        assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) <= 4000
    assert cache.get("binary", digest("0")) is None


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="only Linux lists a process's open files")
def test_nothing_stays_open(tmp_path: Path) -> None:
    """Whether an entry is read, is not there, is damaged, or is no file."""
    cache, key, before = Cache(tmp_path), digest("key"), len(os.listdir("/proc/self/fd"))
    for damage in (None, Path.unlink, lambda entry: entry.write_bytes(b"tw"), _make_pipe):
        assert cache.put("binary", key, {"data": bytes(900)})
        (entry,) = tmp_path.rglob(key)
        if damage is not None:
            damage(entry)
        assert (cache.get("binary", key) is None) == (damage is not None)
        assert len(os.listdir("/proc/self/fd")) <= before


def _make_pipe(entry: Path) -> None:
    entry.unlink()
    os.mkfifo(entry)


def test_temporary_files_are_stale_after_an_hour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, now = Cache(tmp_path), 10**18
    assert cache.put("binary", digest("key"), {"data": b"x"})
    monkeypatch.setattr(time, "time_ns", lambda: now)
    folder = next(tmp_path.rglob(digest("key"))).parent
    hour = 3600 * 10**9
    files = {age: folder / module._temporary_name() for age in (hour + 1, hour, 1)}
    for age, file in files.items():
        file.write_bytes(b"x")
        os.utime(file, ns=(now - age, now - age))
    cache._evict("")
    assert [age for age, file in files.items() if file.exists()] == [hour, 1]


# ── the record of its size ──


_RECORDS = st.lists(
    st.one_of(
        st.tuples(st.just(0), st.integers(0, 9)),
        st.tuples(st.integers(1, 3), st.sampled_from((-1, 0, 100, 200))),
    ),
    max_size=12,
)


@given(_RECORDS)
def test_a_caches_size_is_what_the_last_whole_scan_found_and_what_was_written_since_it_began(
    records: list[tuple[int, int]],
) -> None:
    """A scan whose beginning is not recorded says nothing; nor does one that has not ended."""
    written, begun, size = 0, dict[int, int](), None
    kept = []
    for scan, number in records:
        if number == -1 and scan in begun:
            continue  # every scan has a number of its own
        if number >= 0 and scan and scan not in begun:
            begun[scan] = -1  # it ends without having begun
        kept.append((scan, number))
        if not scan:
            written, size = written + number, None if size is None else size + number
        elif number == -1:
            begun[scan] = written
        elif begun[scan] >= 0:
            size = number + written - begun[scan]
    data = b"".join(struct.pack("<qq", *record) for record in kept)
    assert module._Ledger(Path())._estimate(data) == size


def test_a_record_that_is_full_or_cut_says_nothing() -> None:
    ledger = module._Ledger(Path())
    scanned = struct.pack("<qqqq", 5, -1, 5, 70)
    full = scanned + struct.pack("<qq", 0, 1) * 4094
    assert (ledger._estimate(scanned), ledger._estimate(full)) == (70, 70 + 4094)
    for wrong in (full + struct.pack("<qq", 0, 1), full[:-1], scanned[:-8], b""):
        assert ledger._estimate(wrong) is None
