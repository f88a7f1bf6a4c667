"""A disk cache by content: compiled binaries, line tables, object code.

One entry is one file, ``<directory>/<kind>/<key[:2]>/<key>``: a head, a table of parts, the parts, and a
seal over all of it. A read verifies everything, so a damaged entry is a miss and never a wrong answer.
A cache never raises because of the disk: what went wrong is kept in :attr:`Cache.problem`.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import re
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tilewise.errors import ArgumentError, integer

__all__ = ["Cache", "CacheKind", "CacheStats", "default", "digest"]

_MAGIC = b"tilewise"
_FORMAT = 1
_HEAD = struct.Struct("<8sIIQ")  # magic, format, bytes of the table, bytes of all parts
_SEAL = hashlib.sha256().digest_size

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,199}")
_TEMPORARY = re.compile(r"\.[0-9]+-[0-9a-f]{16}\.tmp")
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*(?:([kmgt])(i)?)?b?", re.IGNORECASE)

_DIRECTORY_VARIABLE = "TILEWISE_CACHE_DIR"
_SIZE_VARIABLE = "TILEWISE_CACHE_SIZE"
_VARIABLES = (_DIRECTORY_VARIABLE, _SIZE_VARIABLE, "XDG_CACHE_HOME", "HOME", "LOCALAPPDATA", "USERPROFILE")
_ADVICE = f"set {_DIRECTORY_VARIABLE} to a directory of your own"

_FULL = {getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EFBIG") if hasattr(errno, name)}
_DEFAULT_LIMIT = 2**30
_KEEP = 0.9  # of the limit, after an eviction
_TOUCH_SECONDS = 60  # an entry's time of use is written at most this often
_STALE_SECONDS = 3600  # a write takes milliseconds: a temporary file this old has no writer left

# NOTE: without these a link or a pipe in an entry's place would be followed, or would block for ever.
_OPEN_FLAGS = (
    getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)


@dataclass(frozen=True, slots=True)
class CacheKind:
    """How much of one kind a cache holds."""

    entries: int
    bytes: int


@dataclass(frozen=True, slots=True)
class CacheStats:
    """What a cache holds and whether it works; ``problem`` says what is wrong and what to do."""

    directory: Path | None
    entries: int
    bytes: int
    limit: int
    writable: bool
    problem: str | None
    kinds: Mapping[str, CacheKind]


class _Damaged(Exception):
    """The file in an entry's place is not that entry."""


class _File(NamedTuple):
    """One file found by a scan."""

    used: int  # nanoseconds: when it was written or last read
    size: int
    path: str
    kind: str
    temporary: bool


class Cache:
    """A directory of entries, bounded in bytes, safe under many processes.

    ``directory`` and ``limit_bytes`` default to what the environment says (see :func:`default`).
    """

    def __init__(self, directory: Path | None = None, limit_bytes: int | None = None) -> None:
        self.directory: Path | None
        self._problem: str | None = None
        if directory is None:
            self.directory, self._problem = _directory_of_environment()
        else:
            self.directory = Path(os.path.abspath(directory))
        self.limit = _limit_of_environment() if limit_bytes is None else integer("limit_bytes", limit_bytes)

    @property
    def problem(self) -> str | None:
        """What last kept the cache from working, and what to do; None while it works."""
        return self._problem

    def get(self, kind: str, key: str) -> dict[str, bytes] | None:
        """The parts stored under ``key``, verified, or None."""
        path = self._path(kind, key)
        if path is None or not self._usable():
            return None
        try:
            data, used = _read(path)
            parts = _decode(data, kind, key)
        except FileNotFoundError:
            return None
        except (_Damaged, KeyError, TypeError, ValueError):
            _remove(path)
            return None
        except OSError as error:
            # A file that may not be read, or a link, is never an entry; other errors may pass. On Windows
            # a file that another process is just replacing may not be read either.
            if (isinstance(error, PermissionError) and os.name != "nt") or os.path.islink(path):
                _remove(path)
            self._note("cannot be read", error)
            return None
        if abs(time.time() - used) > _TOUCH_SECONDS:
            with contextlib.suppress(OSError):
                os.utime(path)
        return parts

    def put(self, kind: str, key: str, parts: Mapping[str, bytes]) -> bool:
        """Store ``parts`` under ``key``; False where that failed or another process won the race."""
        path = self._path(kind, key)
        if path is None or self.directory is None or not self._usable():
            return False
        data = _encode(kind, key, parts)
        if len(data) > self.limit:
            return False
        try:
            stored = _write(path, data)
        except (OSError, ValueError) as error:
            self._note("cannot be written", error)
            return False
        if stored:
            self._problem = None
            self._bound(self.directory, len(data), path)
        return stored

    def stats(self) -> CacheStats:
        """Count what is stored and try whether more can be."""
        writable = self._writable()
        counts: dict[str, tuple[int, int]] = {}
        for file in self._scan() if self._usable() else ():
            if not file.temporary:
                entries, size = counts.get(file.kind, (0, 0))
                counts[file.kind] = (entries + 1, size + file.size)
        kinds = {kind: CacheKind(*count) for kind, count in sorted(counts.items())}
        return CacheStats(
            self.directory,
            sum(kind.entries for kind in kinds.values()),
            sum(kind.bytes for kind in kinds.values()),
            self.limit,
            writable,
            self._problem,
            kinds,
        )

    def clear(self) -> None:
        """Delete every entry, and nothing that is not one."""
        if self.directory is None or not self._usable():
            return
        folders = set()
        for file in self._scan():
            _remove_own(file)
            folders.add(os.path.dirname(file.path))
        _Ledger(self.directory).forget()
        for folder in sorted(
            folders | {os.path.dirname(folder) for folder in folders}, key=len, reverse=True
        ):
            with contextlib.suppress(OSError):
                os.rmdir(folder)

    def _path(self, kind: str, key: str) -> str | None:
        for argument, name in (("kind", kind), ("key", key)):
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise ArgumentError(argument, "must be lower-case letters, digits, '-' and '_'", name)
        return None if self.directory is None else os.path.join(self.directory, kind, key[:2], key)

    def _note(self, what: str, error: Exception) -> None:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        full = isinstance(error, OSError) and error.errno in _FULL
        advice = f"free some space there or {_ADVICE}" if full else _ADVICE
        self._problem = f"the cache {self.directory} {what} ({reason}); {advice}"

    def _usable(self) -> bool:
        """Whether the directory is one to trust; one that is not there yet is."""
        if self.directory is None:
            return False
        try:
            status = os.stat(self.directory)
        except FileNotFoundError:
            return True
        except (OSError, ValueError) as error:
            self._note("cannot be opened", error)
            return False
        if not stat.S_ISDIR(status.st_mode):
            self._problem = f"the cache {self.directory} is not a directory; remove it, or {_ADVICE}"
            return False
        if _foreign(status):
            # Machine code from a directory that another user can write may be that user's code.
            self._problem = f"the cache {self.directory} belongs to another user and is not used; {_ADVICE}"
            return False
        return True

    def _writable(self) -> bool:
        if self.directory is None or not self._usable():
            return False
        folder = os.fspath(self.directory)
        try:
            if os.path.isdir(folder):
                probe = os.path.join(folder, _temporary_name())
                _fill(probe, b"\0")
                os.unlink(probe)
            else:  # try above it: looking must not make it
                while not os.path.lexists(folder):
                    folder = os.path.dirname(folder)
                probe = os.path.join(folder, _temporary_name())
                os.mkdir(probe, 0o700)
                os.rmdir(probe)
        except OSError as error:
            self._note("cannot be written", error)
            return False
        return True

    def _scan(self) -> Iterator[_File]:
        """Every entry and every temporary file. NOTE: the directory may hold other people's files too."""
        for kind in _subfolders(self.directory or "", _NAME.fullmatch):
            for shard in _subfolders(kind.path, lambda name: len(name) <= 2):
                for file in _listing(shard.path):
                    temporary = _TEMPORARY.fullmatch(file.name) is not None
                    if not temporary and not (
                        _NAME.fullmatch(file.name) and file.name[:2] == shard.name  # as put() lays them
                    ):
                        continue
                    try:
                        status = file.stat(follow_symlinks=False)
                    except OSError:  # gone: another process evicts too
                        continue
                    if stat.S_ISREG(status.st_mode):
                        yield _File(status.st_mtime_ns, status.st_size, file.path, kind.name, temporary)

    def _bound(self, directory: Path, size: int, path: str) -> None:
        """Count ``size`` new bytes, and evict where the limit may be passed; never the entry just written."""
        ledger = _Ledger(directory)
        total = ledger.add(size)
        for _ in range(3):  # again when other processes wrote much meanwhile
            if total is not None and total <= self.limit:
                return
            scan = ledger.begin()
            total = ledger.finish(scan, self._evict(path))

    def _evict(self, keep: str) -> int:
        """Delete stale temporary files and, above the limit, the least recently used; return what is left."""
        files = sorted(self._scan())
        total = sum(file.size for file in files)
        stale = time.time_ns() - _STALE_SECONDS * 10**9
        over = total > self.limit
        for file in files:
            if file.temporary:
                doomed = file.used < stale
            else:
                doomed = over and total > self.limit * _KEEP and file.path != keep
            if doomed and _remove_own(file):
                total -= file.size
        return total


class _Ledger:
    """A running estimate of a cache's bytes that its processes share: a file that each one appends to.

    A record is two integers: (0, bytes written), (scan, -1) when a scan begins, (scan, bytes found) when it
    ends. What lies in the cache is at most what the last whole scan found plus what was written since it
    began: an entry is in place before its record is, so a scan misses no entry recorded before it.
    """

    _RECORD = struct.Struct("<qq")
    _MOST = 4096 * _RECORD.size

    def __init__(self, directory: Path) -> None:
        self._path = os.path.join(directory, ".usage")

    def add(self, size: int) -> int | None:
        """Record ``size`` bytes written. Returns the estimate, None where only a scan can tell."""
        return self._estimate(self._append(0, size))

    def begin(self) -> int:
        """Record that a scan begins."""
        scan = int.from_bytes(os.urandom(7), "little") + 1
        with contextlib.suppress(OSError):
            size = os.stat(self._path).st_size
            if size > self._MOST or size % self._RECORD.size:  # full, or cut by a full disk
                os.unlink(self._path)
        self._append(scan, -1)
        return scan

    def finish(self, scan: int, total: int) -> int:
        """Record that the scan found ``total`` bytes. Returns the estimate."""
        estimate = self._estimate(self._append(scan, total))
        return total if estimate is None else estimate

    def forget(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._path)

    def _append(self, *record: int) -> bytes:
        """Append a record and return all of them; nothing where that fails."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | _OPEN_FLAGS
        with contextlib.suppress(OSError):
            for _ in range(4):
                with os.fdopen(os.open(self._path, flags, 0o600), "r+b", buffering=0) as file:
                    file.write(self._RECORD.pack(*record))
                    # NOTE: the file may have been unlinked since it was opened; then no process reads the record.
                    if os.fstat(file.fileno()).st_nlink:
                        file.seek(0)
                        return file.read(self._MOST + 1) or b""
        return b""

    def _estimate(self, data: bytes) -> int | None:
        if len(data) > self._MOST or len(data) % self._RECORD.size:
            return None
        records = list(self._RECORD.iter_unpack(data))
        for scan, total in reversed(records):
            if scan and total >= 0 and (scan, -1) in records:
                since = records[records.index((scan, -1)) :]
                return int(total + sum(size for owner, size in since if not owner))
        return None


def default() -> Cache:
    """The cache that the environment names.

    Its directory is ``TILEWISE_CACHE_DIR``, else the platform's place for caches; its limit is
    ``TILEWISE_CACHE_SIZE`` ("1GiB", "512MiB", a number of bytes), else 1 GiB.
    """
    global _remembered
    variables = tuple(map(os.environ.get, _VARIABLES))
    remembered = _remembered
    if remembered is None or remembered[0] != variables:
        _remembered = remembered = (variables, Cache())
    return remembered[1]


_remembered: tuple[tuple[str | None, ...], Cache] | None = None


def digest(*parts: bytes | str) -> str:
    """The content address of ``parts``: different parts, or parts cut elsewhere, give another one."""
    content = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        content.update(struct.pack("<?Q", isinstance(part, str), len(data)))
        content.update(data)
    return content.hexdigest()


def _encode(kind: str, key: str, parts: Mapping[str, bytes]) -> bytes:
    listed = [(name, len(part)) for name, part in parts.items()]
    table = json.dumps({"kind": kind, "key": key, "parts": listed}).encode("ascii")
    head = _HEAD.pack(_MAGIC, _FORMAT, len(table), sum(size for _, size in listed))
    body = b"".join([head, table, *parts.values()])
    return body + hashlib.sha256(body).digest()


def _decode(data: bytes, kind: str, key: str) -> dict[str, bytes]:
    magic, version, table_size, parts_size = _HEAD.unpack_from(data)
    start = _HEAD.size + table_size
    if (magic, version, start + parts_size + _SEAL) != (_MAGIC, _FORMAT, len(data)):
        raise _Damaged
    view = memoryview(data)
    if hashlib.sha256(view[:-_SEAL]).digest() != view[-_SEAL:]:
        raise _Damaged
    table = json.loads(data[_HEAD.size : start])
    if (table["kind"], table["key"]) != (kind, key):
        raise _Damaged
    parts = {}
    for name, size in table["parts"]:
        parts[name] = data[start : start + size]
        start += size
    return parts


@contextlib.contextmanager
def _open_entry(path: str) -> Iterator[tuple[io.FileIO, os.stat_result]]:
    """Open an entry: a file of ours, and nothing else that may lie in its place."""
    descriptor = os.open(path, os.O_RDONLY | _OPEN_FLAGS)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or _foreign(status):
            raise _Damaged
        with open(descriptor, "rb", buffering=0, closefd=False) as file:
            yield file, status
    finally:
        os.close(descriptor)


def _read(path: str) -> tuple[bytes, float]:
    """The bytes of an entry, and when it was last used."""
    with _open_entry(path) as (file, status):
        head = file.read(_HEAD.size) or b""
        # A file of another size is not read at all: it may be anything, and huge.
        if len(head) < _HEAD.size or sum(_HEAD.unpack(head)[2:]) + _HEAD.size + _SEAL != status.st_size:
            raise _Damaged
        file.seek(0)
        return file.readall(), status.st_mtime


def _write(path: str, data: bytes) -> bool:
    """Put ``data`` at ``path`` whole or not at all; False where another process holds the place."""
    folder = os.path.dirname(path)
    temporary = os.path.join(folder, _temporary_name())
    try:
        _fill(temporary, data)
    except FileNotFoundError:
        _make_directories(folder)
        _fill(temporary, data)
    try:
        os.replace(temporary, path)
    except BaseException as error:
        _remove(temporary)
        # Windows refuses to replace a file that another process reads; and a clear() may take the temporary file.
        lost = isinstance(error, PermissionError) and os.path.isfile(path)
        if lost or isinstance(error, FileNotFoundError):
            return False
        raise
    return True


def _fill(path: str, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN_FLAGS, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except BaseException:  # a full disk, or the user's Ctrl-C: leave no half file behind
        _remove(path)
        raise


def _make_directories(folder: str) -> None:
    if os.path.isdir(folder):
        return
    parent = os.path.dirname(folder)
    if parent != folder:
        _make_directories(parent)
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        if not os.path.isdir(folder):
            raise


def _temporary_name() -> str:
    return f".{os.getpid()}-{os.urandom(8).hex()}.tmp"


def _remove(path: str) -> bool:
    """Remove the file, or the empty directory, at ``path``; True when it no longer exists."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return True
    except OSError:
        try:
            os.rmdir(path)
        except OSError:
            return False
    return True


def _remove_own(file: _File) -> bool:
    """Remove a file that a scan found, if it is ours: the directory may be one with other things in it."""
    if not file.temporary:
        try:
            with _open_entry(file.path) as (opened, _):
                if opened.read(len(_MAGIC)) != _MAGIC:
                    return False
        except FileNotFoundError:
            return True
        except (OSError, _Damaged):
            return False
    return _remove(file.path)


def _foreign(status: os.stat_result) -> bool:
    """Whether a file belongs to neither us nor root. Windows has no such owner: its home is private."""
    return hasattr(os, "geteuid") and status.st_uid not in (os.geteuid(), 0)


def _listing(folder: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(os.fspath(folder)) as found:
            return list(found)
    except OSError:
        return []


def _subfolders(folder: str | Path, wanted: Callable[[str], object]) -> Iterator[os.DirEntry[str]]:
    for item in _listing(folder):
        with contextlib.suppress(OSError):
            if wanted(item.name) and item.is_dir(follow_symlinks=False):
                yield item


def _directory_of_environment(platform: str = sys.platform) -> tuple[Path | None, str | None]:
    """The directory that the environment names, or None and why."""
    named = os.environ.get(_DIRECTORY_VARIABLE)
    if named:
        try:
            return Path(os.path.abspath(os.path.expanduser(named))), None
        except OSError:  # a relative path, and the working directory is gone
            return None, f"{_DIRECTORY_VARIABLE} is relative to a directory that is gone; make it absolute"
    home = "" if os.environ.get("HOME") == "" else os.path.expanduser("~")
    places = {
        "win32": ("LOCALAPPDATA", ("AppData", "Local"), ("tilewise", "cache")),
        "darwin": ("", ("Library", "Caches"), ("tilewise",)),
    }
    variable, below_home, own = places.get(platform, ("XDG_CACHE_HOME", (".cache",), ("tilewise",)))
    base = os.environ.get(variable, "") if variable else ""
    if os.path.isabs(base):  # the XDG rules say that a relative one is to be ignored
        return Path(base, *own), None
    if os.path.isabs(home):
        return Path(home, *below_home, *own), None
    return None, f"there is no home directory to keep a cache in; {_ADVICE}"


def _limit_of_environment() -> int:
    text = os.environ.get(_SIZE_VARIABLE, "").strip()
    if not text:
        return _DEFAULT_LIMIT
    match = _SIZE.fullmatch(text)
    if not match:
        rule = "must be a size such as '1GiB', '512MiB' or a number of bytes"
        raise ArgumentError(_SIZE_VARIABLE, rule, text, "unset it for 1 GiB")
    number, prefix, binary = match.groups()
    power = " kmgt".index(prefix.lower()) if prefix else 0
    return int(float(number) * (1024 if binary else 1000) ** power)
