"""The disk cache: never a wrong answer, never an exception because of the disk, never past its limit."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.clocks import least_seconds, seconds, times_as_long
from tilewise.errors import ArgumentError
from tilewise.toolchain import cache as module
from tilewise.toolchain.cache import Cache, digest

PARTS = {"cubin": b"\x7fELF machine code", "ptx": b".version 9.5", "empty": b""}
KEY = digest("a key")
OTHER = digest("another key")
SOURCES = str(Path(module.__file__).parents[2])

part_names = st.text(st.characters(), max_size=8)  # lone surrogates too, as in a name that is not UTF-8
bits_of_key = st.lists(st.one_of(st.binary(max_size=4), st.text(max_size=4)), max_size=5)


def entry_of(cache: Cache, key: str = KEY, kind: str = "binary") -> Path:
    assert cache.directory
    return cache.directory / kind / key[:2] / key


def temporary_files(folder: Path) -> list[Path]:
    return [file for file in folder.rglob(".*.tmp") if file.is_file()]


@contextmanager
def fresh_cache() -> Iterator[Cache]:
    with tempfile.TemporaryDirectory() as folder:
        yield Cache(Path(folder, "cache"))


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


# What goes in comes out.


@given(st.dictionaries(part_names, st.binary(max_size=300), max_size=5))
@settings(max_examples=60, deadline=None)
def test_parts_come_back_as_they_were(parts: dict[str, bytes]) -> None:
    with fresh_cache() as cache:
        assert cache.get("binary", KEY) is None
        assert cache.put("binary", KEY, parts)
        assert cache.get("binary", KEY) == parts
        assert cache.get("lines", KEY) is None
        assert cache.get("binary", OTHER) is None
        assert cache.problem is None


@given(bits_of_key, bits_of_key)
@settings(deadline=None)
def test_a_digest_tells_parts_apart(a: list[bytes | str], b: list[bytes | str]) -> None:
    def typed(parts: list[bytes | str]) -> list[tuple[bool, bytes | str]]:
        return [(isinstance(part, str), part) for part in parts]

    assert (digest(*a) == digest(*b)) == (typed(a) == typed(b))


@given(st.text(min_size=2, max_size=20), st.data())
@settings(deadline=None)
def test_parts_of_a_digest_do_not_run_together(text: str, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.integers(cut + 1, len(text)))
    assert digest(text[:cut], text[cut:]) != digest(text[:other], text[other:])
    assert digest(text) != digest(text, "")


def test_a_hit_for_100_kilobytes_takes_at_most_a_millisecond(cache: Cache) -> None:
    parts = {"cubin": os.urandom(100_000)}
    assert cache.put("binary", KEY, parts)
    file = entry_of(cache)

    def hit() -> None:
        assert cache.get("binary", KEY) == parts

    def read() -> None:
        """What no hit can do without; a slow machine takes its time for it too."""
        hashlib.sha256(file.read_bytes()).digest()

    assert least_seconds(lambda: seconds(hit), 1e-3, 50) < 1e-3 or times_as_long(hit, read, 4) <= 4


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", "a\\b", "A", ".hidden", "x" * 300, "ä"])
def test_a_name_that_could_leave_its_place_is_refused(cache: Cache, name: str) -> None:
    with pytest.raises(ArgumentError, match="key"):
        cache.get("binary", name)
    with pytest.raises(ArgumentError, match="kind"):
        cache.put(name, KEY, PARTS)


# What was damaged is a miss, and goes.


def test_an_entry_cut_anywhere_is_a_miss_and_is_removed(cache: Cache) -> None:
    assert cache.put("binary", KEY, PARTS)
    file = entry_of(cache)
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        assert cache.get("binary", KEY) is None, length
        assert not file.exists(), length
    file.write_bytes(whole + b"\0")
    assert cache.get("binary", KEY) is None
    file.write_bytes(whole)
    assert cache.get("binary", KEY) == PARTS


def test_an_entry_with_any_byte_changed_is_a_miss_and_is_removed(cache: Cache) -> None:
    assert cache.put("binary", KEY, PARTS)
    file = entry_of(cache)
    whole = file.read_bytes()
    for place in range(len(whole)):
        for bit in (0x01, 0x80, os.urandom(1)[0] | 0x10):
            changed = bytearray(whole)
            changed[place] ^= bit
            file.write_bytes(changed)
            assert cache.get("binary", KEY) is None, (place, bit)
            assert not file.exists(), (place, bit)
    assert cache.put("binary", KEY, PARTS)
    assert cache.get("binary", KEY) == PARTS


def test_an_entry_of_another_format_is_a_miss(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FORMAT", 2)
    assert cache.put("binary", KEY, PARTS)
    assert cache.get("binary", KEY) == PARTS
    monkeypatch.undo()
    assert cache.get("binary", KEY) is None
    assert not entry_of(cache).exists()


@pytest.mark.parametrize(("kind", "key"), [("binary", OTHER), ("lines", KEY)])
def test_an_entry_of_another_key_or_kind_is_a_miss(cache: Cache, kind: str, key: str) -> None:
    assert cache.put("binary", KEY, PARTS)
    place = entry_of(cache, key, kind)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(entry_of(cache).read_bytes())
    assert cache.get(kind, key) is None
    assert not place.exists()
    assert cache.get("binary", KEY) == PARTS


def in_place_of_an_entry() -> dict[str, Callable[[Path], object]]:
    makers: dict[str, Callable[[Path], object]] = {"directory": Path.mkdir}
    if hasattr(os, "mkfifo"):  # what a POSIX system has besides
        makers["pipe"] = os.mkfifo
        makers["link"] = lambda place: place.symlink_to(Path(__file__))
        makers["loop"] = lambda place: place.symlink_to(place)
    return makers


@pytest.mark.parametrize("what", in_place_of_an_entry())
def test_something_else_in_an_entrys_place_is_a_miss_and_goes(cache: Cache, what: str) -> None:
    place = entry_of(cache)
    place.parent.mkdir(parents=True)
    in_place_of_an_entry()[what](place)
    assert cache.get("binary", KEY) is None
    assert not os.path.lexists(place)
    assert cache.put("binary", KEY, PARTS)
    assert cache.get("binary", KEY) == PARTS


def test_a_full_directory_in_an_entrys_place_stays(cache: Cache) -> None:
    theirs = entry_of(cache) / "theirs"
    theirs.mkdir(parents=True)
    assert cache.get("binary", KEY) is None
    assert not cache.put("binary", KEY, PARTS)
    assert cache.problem
    assert theirs.exists()


# A disk that does not play along.


def broken_places() -> dict[str, Callable[[Path], Path]]:
    def file_there(folder: Path) -> Path:
        (folder / "file").write_text("in the way")
        return folder / "file"

    places: dict[str, Callable[[Path], Path]] = {
        "a file there": file_there,
        "a file above": lambda folder: file_there(folder) / "below" / "it",
        "no such name": lambda folder: folder / ("n" * 5000),
        "a NUL": lambda folder: folder / "a\0b",
    }
    if hasattr(os, "mkfifo"):

        def loop(folder: Path) -> Path:
            (folder / "loop").symlink_to(folder / "loop")
            return folder / "loop"

        def nowhere(folder: Path) -> Path:
            (folder / "link").symlink_to(folder / "missing")
            return folder / "link"

        places |= {"a loop": loop, "a link to nothing": nowhere}
    if hasattr(os, "geteuid") and os.geteuid() != 0:  # permissions are no barrier to root

        def read_only(folder: Path) -> Path:
            (folder / "read-only").mkdir(mode=0o500)
            return folder / "read-only"

        places["a read-only directory"] = read_only
    if Path("/proc/self").exists():  # a file system in which not even root makes directories
        places["/proc"] = lambda _: Path("/proc/tilewise/cache")
    return places


@pytest.mark.parametrize("place", broken_places())
def test_a_place_that_cannot_be_used_is_a_problem_and_no_exception(tmp_path: Path, place: str) -> None:
    cache = Cache(broken_places()[place](tmp_path))
    assert cache.get("binary", KEY) is None
    assert not cache.put("binary", KEY, PARTS)
    assert cache.get("binary", KEY) is None
    assert "TILEWISE_CACHE_DIR" in (cache.problem or "")
    stats = cache.stats()
    assert (stats.entries, stats.bytes) == (0, 0)
    assert not stats.writable
    assert stats.problem
    cache.clear()


@pytest.mark.parametrize("call", ["os.open", "os.replace", "os.mkdir", "write"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO, errno.EMFILE])
def test_a_failing_write_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    cache = Cache(tmp_path / "cache")

    def fail(*_: object, **__: object) -> NoReturn:
        raise OSError(code, os.strerror(code))

    class FullFile:
        """A file whose disk has no room."""

        write = staticmethod(fail)

        def __init__(self, descriptor: int, *_: object, **__: object) -> None:
            self.descriptor = descriptor

        def __enter__(self) -> FullFile:
            return self

        def __exit__(self, *_: object) -> None:
            os.close(self.descriptor)

    if call == "write":
        monkeypatch.setattr(os, "fdopen", FullFile)
    else:
        monkeypatch.setattr(os, call.removeprefix("os."), fail)
    assert not cache.put("binary", KEY, PARTS)
    assert os.strerror(code) in (cache.problem or "")
    assert ("; free some space there or set" in (cache.problem or "")) == (code == errno.ENOSPC)
    monkeypatch.undo()
    assert not temporary_files(tmp_path)
    assert cache.get("binary", KEY) is None
    assert cache.put("binary", KEY, PARTS)
    assert cache.problem is None


def test_an_entry_that_cannot_be_opened_is_a_miss(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache.put("binary", KEY, PARTS)

    def fail(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "open", fail)
    assert cache.get("binary", KEY) is None
    assert cache.problem
    monkeypatch.undo()
    assert cache.get("binary", KEY) == PARTS  # that error may pass: the entry stays


def test_a_lost_race_is_no_problem(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache.put("binary", KEY, PARTS)

    def held(*_: object) -> NoReturn:
        raise PermissionError(errno.EACCES, "another process has the file open")

    monkeypatch.setattr(os, "replace", held)
    assert not cache.put("binary", KEY, {"other": b"parts"})
    assert cache.problem is None
    assert cache.get("binary", KEY) == PARTS
    assert not temporary_files(cache.directory or Path())


def test_another_users_directory_is_not_used(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache.put("binary", KEY, PARTS)
    if sys.platform == "win32":
        return  # it has no such owners
    me = os.geteuid()
    for path in (cache.directory, entry_of(cache)):
        assert path
        if me == 0:
            os.chown(path, 12_345, -1)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: me + 1)
        assert cache.get("binary", KEY) is None
        if path == cache.directory:
            assert not cache.put("binary", KEY, PARTS)
            assert cache.problem == (
                f"the cache {path} belongs to another user and is not used; "
                "set TILEWISE_CACHE_DIR to a directory of your own"
            )
            assert not cache.stats().writable
            assert entry_of(cache).exists()
        if me == 0 and path.exists():
            os.chown(path, 0, -1)
    assert me != 0 or not entry_of(cache).exists()


def test_directories_are_private(cache: Cache) -> None:
    assert cache.put("binary", KEY, PARTS)
    if os.name == "posix":
        for folder in list(entry_of(cache).parents)[:3]:
            assert folder.stat().st_mode & 0o777 == 0o700
        files = [one for one in (cache.directory or Path()).rglob("*") if one.is_file()]
        assert len(files) > 1 and all(one.stat().st_mode & 0o077 == 0 for one in files)  # the estimate's, too


# The limit.


def put_numbered(cache: Cache, number: int, seconds_ago: float) -> str:
    key = digest(str(number))
    assert cache.put("binary", key, {"data": bytes(1000)})
    used = time.time() - seconds_ago
    os.utime(entry_of(cache, key), (used, used))
    return key


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit_bytes=12_000)  # room for ten of less than 1,200 bytes
    keys = [put_numbered(cache, number, 10_000 - 100 * number) for number in range(10)]
    assert cache.stats().entries == 10
    assert cache.get("binary", keys[0])  # now the most recently used
    assert cache.get("binary", keys[2])
    newest = put_numbered(cache, 10, 0)
    left = [number for number, key in enumerate(keys) if entry_of(cache, key).exists()]
    assert left == [0, 2, 4, 5, 6, 7, 8, 9]
    assert cache.get("binary", newest)
    assert cache.stats().bytes <= 0.9 * cache.limit


def test_the_limit_holds_and_an_entry_beyond_it_is_not_stored(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit_bytes=5000)
    assert not cache.put("binary", KEY, {"data": bytes(5000)})
    assert cache.problem is None
    for number in range(40):
        assert cache.put("binary", digest(str(number)), {"data": os.urandom(number * 50)})
        assert cache.get("binary", digest(str(number)))
        assert cache.stats().bytes <= 5000
    assert cache.put("binary", KEY, {"data": bytes(4700)})  # above 90% on its own, and kept
    assert cache.get("binary", KEY)
    assert not Cache(tmp_path, limit_bytes=0).put("binary", KEY, PARTS)


def test_a_hit_is_marked_as_used_at_most_once_a_minute(cache: Cache) -> None:
    assert cache.put("binary", KEY, PARTS)
    file = entry_of(cache)
    for seconds_ago, marked in ((30.0, False), (90.0, True), (-30.0, False), (-90.0, True)):
        before = time.time() - seconds_ago
        os.utime(file, (before, before))
        assert cache.get("binary", KEY) == PARTS
        assert (abs(file.stat().st_mtime - before) > 1) == marked, seconds_ago


def test_an_entry_of_the_future_is_no_longer_the_last_to_go_once_it_was_read(tmp_path: Path) -> None:
    """A clock that was wrong for a while marks entries with times that never seem long ago."""
    cache = Cache(tmp_path, limit_bytes=12_000)
    early = put_numbered(cache, 0, -1e6)
    assert cache.get("binary", early)
    keys = [put_numbered(cache, number, -10.0 * number) for number in range(1, 12)]
    left = [number for number, key in enumerate((early, *keys)) if entry_of(cache, key).exists()]
    assert left == [*range(12 - len(left), 12)] and len(left) < 12


def test_an_estimate_that_was_lost_or_damaged_is_made_again(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit_bytes=5000)
    for number in range(30):
        usage = tmp_path / ".usage"
        if number % 3 == 1:
            usage.unlink()
        elif number % 3 == 2:
            usage.write_bytes(os.urandom(number))
        assert cache.put("binary", digest(str(number)), {"data": bytes(900)})
        assert cache.stats().bytes <= 5000
    for size in (2_000_000, 777):
        usage.write_bytes(bytes(size))
        assert cache.put("binary", KEY, PARTS)
        assert usage.stat().st_size in range(16, 200, 16)


def test_the_files_are_listed_once_and_then_only_where_the_limit_is_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, scan = Cache(tmp_path, limit_bytes=100_000), Cache._scan
    listed: list[Cache] = []

    def noted(cache: Cache) -> Any:
        listed.append(cache)
        return scan(cache)

    monkeypatch.setattr(Cache, "_scan", noted)
    for number in range(12):
        assert cache.put("binary", digest(str(number)), {"data": bytes(8700)})
        assert len(listed) == (1 if number < 11 else 2)


def test_an_empty_name_is_no_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILEWISE_CACHE_DIR")
    usual = Cache().directory
    monkeypatch.setenv("TILEWISE_CACHE_DIR", "")
    assert Cache().directory == usual != Path.cwd()


def test_old_temporary_files_go_with_an_eviction_and_young_ones_stay(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit_bytes=3000)
    assert cache.put("binary", KEY, PARTS)
    folder = entry_of(cache).parent
    old, young = (folder / module._temporary_name() for _ in range(2))
    for file in (old, young):
        file.write_bytes(bytes(500))
    os.utime(old, (1, 1))
    for number in range(4):
        cache.put("binary", digest(str(number)), {"data": bytes(900)})
    assert not old.exists()
    assert young.exists()
    cache.clear()
    assert not young.exists()


def test_other_peoples_files_survive(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit_bytes=3000)
    # The last is where an entry of another name would be.
    names = ["notes", "src/ab/abc", "binary/readme.txt", "binary/ab/manifest"]
    theirs = [tmp_path / name for name in names]
    for file in theirs:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"theirs" * 100)
        os.utime(file, (1, 1))
    for number in range(10):
        assert cache.put("binary", digest(str(number)), {"data": bytes(900)})
    cache.clear()
    assert all(file.read_bytes() == b"theirs" * 100 for file in theirs)
    assert "binary" not in cache.stats().kinds
    assert cache.get("binary", digest("9")) is None


def test_a_folder_deep_in_one_that_is_not_there_is_writable(tmp_path: Path) -> None:
    assert Cache(tmp_path / "not" / "there" / "yet").stats().writable
    assert list(tmp_path.iterdir()) == []  # looking makes nothing


def test_stats_count_each_kind_and_clear_empties(cache: Cache) -> None:
    assert cache.stats().writable
    assert list((cache.directory or Path()).parent.iterdir()) == []
    for number in range(5):
        assert cache.put("lines" if number % 2 else "binary", digest(str(number)), PARTS)
    stats = cache.stats()
    (entry_of(cache, digest("0")).parent / module._temporary_name()).write_bytes(b"being written")
    assert cache.stats() == stats
    temporary_files(cache.directory or Path())[0].unlink()
    assert {kind: count.entries for kind, count in stats.kinds.items()} == {"binary": 3, "lines": 2}
    assert stats.entries == 5
    assert stats.bytes == sum(
        f.stat().st_size for f in (stats.directory or Path()).rglob("*/*/*") if f.is_file()
    )
    assert (stats.limit, stats.writable, stats.problem) == (2**30, True, None)
    cache.clear()
    assert cache.stats().entries == 0
    assert list((cache.directory or Path()).iterdir()) == []
    assert cache.put("binary", KEY, PARTS)


WORKER = """
import os, random, sys, time
from pathlib import Path
from tilewise.toolchain.cache import Cache, digest
folder, worker, limit = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
cache = Cache(folder / "cache", limit)
chance = random.Random(worker)
def parts(name):
    inner = random.Random(name)
    return {"name": name.encode(), "data": inner.randbytes(inner.randrange(3000))}
(folder / f"ready{worker}").touch()
while not (folder / "go").exists():
    time.sleep(0.002)
hits = stored = 0
for turn in range(60):
    name = f"shared {chance.randrange(6)}" if turn % 2 else f"own {worker} {turn}"
    stored += cache.put("binary", digest(name), parts(name))
    for _ in range(3):
        name = f"shared {chance.randrange(6)}"
        found = cache.get("binary", digest(name))
        assert found is None or found == parts(name), name
        hits += found is not None
assert cache.problem is None, cache.problem
print(stored, hits)
"""


def test_sixteen_processes_never_see_a_torn_entry_and_keep_the_limit(tmp_path: Path) -> None:
    limit = 25_000
    environment = {**os.environ, "PYTHONPATH": SOURCES}
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tmp_path), str(worker), str(limit)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for worker in range(16)
    ]
    deadline = time.monotonic() + 30
    while len(list(tmp_path.glob("ready*"))) < 16 and time.monotonic() < deadline:
        time.sleep(0.01)
    (tmp_path / "go").touch()
    stored = hits = 0
    for process in workers:
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        stored += int(output.split()[0])
        hits += int(output.split()[1])
    assert stored > 0.9 * 16 * 60  # on POSIX no race is lost
    assert hits > 0
    cache = Cache(tmp_path / "cache", limit)
    stats = cache.stats()
    assert 0 < stats.bytes <= limit
    assert stats.problem is None
    assert not temporary_files(tmp_path)


# What the environment says.


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in ("TILEWISE_CACHE_DIR", "TILEWISE_CACHE_SIZE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    return tmp_path


def test_the_default_follows_the_environment_when_it_changes(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = module.default()
    assert module.default() is first
    assert first.limit == 2**30
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(bare / "one"))
    assert module.default().directory == bare / "one"
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(bare / "two"))
    monkeypatch.setenv("TILEWISE_CACHE_SIZE", "512MiB")
    second = module.default()
    assert (second.directory, second.limit) == (bare / "two", 512 * 2**20)
    assert module.default() is second
    assert second.put("binary", KEY, PARTS)
    assert (bare / "two").exists()
    assert not (bare / "one").exists()


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {}, "home/.cache/tilewise"),
        ("linux", {"XDG_CACHE_HOME": "xdg"}, "xdg/tilewise"),
        ("linux", {"TILEWISE_CACHE_DIR": "own", "XDG_CACHE_HOME": "xdg"}, "own"),
        ("darwin", {"XDG_CACHE_HOME": "xdg"}, "home/Library/Caches/tilewise"),
        ("win32", {"LOCALAPPDATA": "local"}, "local/tilewise/cache"),
        ("win32", {}, "home/AppData/Local/tilewise/cache"),
    ],
)
def test_each_platform_has_its_place(
    bare: Path, monkeypatch: pytest.MonkeyPatch, platform: str, variables: dict[str, str], expected: str
) -> None:
    for home in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(home, str(bare / "home"))
    for name, value in variables.items():
        monkeypatch.setenv(name, str(bare / value))
    assert module._directory_of_environment(platform) == (bare / expected, None)


def test_a_relative_xdg_directory_is_ignored_and_a_tilde_is_the_home(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert module._directory_of_environment("linux")[0] == bare / ".cache" / "tilewise"
    monkeypatch.setenv("TILEWISE_CACHE_DIR", "~/mine")
    assert module.default().directory == bare / "mine"
    monkeypatch.chdir(bare)
    monkeypatch.setenv("TILEWISE_CACHE_DIR", "here")
    assert module.default().directory == bare / "here"

    def gone(_path: str) -> NoReturn:
        raise FileNotFoundError(errno.ENOENT, "getcwd")

    monkeypatch.setattr(os.path, "abspath", gone)  # as where the working directory was removed
    reason = "TILEWISE_CACHE_DIR is relative to a directory that is gone; make it absolute"
    assert module._directory_of_environment("linux") == (None, reason)


def test_without_a_home_nothing_is_stored(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as without a home
    cache = module.default()
    assert cache.directory is None
    assert not cache.put("binary", KEY, PARTS)
    assert cache.get("binary", KEY) is None
    assert cache.problem == (
        "there is no home directory to keep a cache in; set TILEWISE_CACHE_DIR to a directory of your own"
    )
    assert not cache.stats().writable
    cache.clear()
    assert list(bare.iterdir()) == []


SIZES = {"0": 0, "123456789": 123_456_789, "100b": 100, "1GiB": 2**30, "512MiB": 512 * 2**20}
SIZES |= {" 1.5 kib ": 1536, "2GB": 2 * 10**9, "3 TiB": 3 * 2**40, "": 2**30}


@pytest.mark.parametrize(("text", "expected"), SIZES.items())
def test_sizes(bare: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: int) -> None:
    monkeypatch.setenv("TILEWISE_CACHE_SIZE", text)
    assert module.default().limit == expected


@pytest.mark.parametrize(
    "text", ["many", "-1", "1.2.3", "1 GiB or so", "GiB", "1PiB", "inf", "1e9", "9" * 400, "٣"]
)
def test_a_bad_size_is_refused(bare: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("TILEWISE_CACHE_SIZE", text)
    with pytest.raises(ArgumentError, match="TILEWISE_CACHE_SIZE") as caught:
        module.default()
    assert "must be a size such as '1GiB', '512MiB' or a number of bytes, not " in str(caught.value)
    assert str(caught.value).endswith("; unset it for 1 GiB")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("limit", [-1, 1.5, True])
def test_a_bad_limit_is_refused(tmp_path: Path, limit: Any) -> None:
    with pytest.raises(ArgumentError, match="limit_bytes"):
        Cache(tmp_path, limit_bytes=limit)
