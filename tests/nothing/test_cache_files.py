"""Files of a cache, one by one: what is removed, and what is not ours to remove."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

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
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        assert known == tuple(name for i, name in enumerate(names) if module._OPEN_FLAGS >> 40 + i & 1)
        assert module._OPEN_FLAGS < 1 << 44 and not module._OPEN_FLAGS % (1 << 40)
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
    other = entry.with_name(digest("other") + entry.suffix)
    other.write_bytes(content)
    for number in range(12):
        cache.put("binary", digest(str(number)), {"data": bytes(900)})
    assert other.read_bytes() == content and not entry.exists()
    assert cache.get("binary", digest("11")) is not None


def test_a_cache_that_cannot_record_its_size_stays_within_its_limit_all_the_same(tmp_path: Path) -> None:
    """What lies there is then counted whenever something is added."""
    (tmp_path / ".usage").mkdir()
    cache = Cache(tmp_path, limit_bytes=4000)
    for number in range(12):
        assert cache.put("binary", digest(str(number)), {"data": bytes(900)})
        assert cache.get("binary", digest(str(number))) is not None
        assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) <= 4000
    assert cache.get("binary", digest("0")) is None
