"""Open files of a pool, as `open` returns them."""

from __future__ import annotations

import io
import os
import tempfile
import warnings
from typing import TYPE_CHECKING, Any

from fsspec.caching import BaseCache, register_cache
from fsspec.spec import AbstractBufferedFile

if TYPE_CHECKING:
    from potluck._native import File, Writer
    from potluck.filesystem import PotluckFileSystem

#: How many bytes a writer collects before it hands them on, so that a program that writes a few at a time is not slow.
COLLECTED = 1 << 20
#: Reads of this many bytes or more go past the cache.
BLOCK = 4 << 20
#: How many bytes are fetched at least: four segments, the unit that donors serve and that is verified.
LEAST_WINDOW = 256 << 10
#: How many bytes are fetched at most at once, of several chunks side by side.
MOST_WINDOW = 16 << 20


class WideningCache(BaseCache):
    """The bytes that were fetched last. A file that is read in order is fetched in ever larger windows; a read elsewhere
    begins with a small one, so that a few bytes here and there do not cost a chunk each."""

    name = "widening"

    def __init__(self, blocksize: int, fetcher: Any, size: int) -> None:
        super().__init__(blocksize, fetcher, size)
        self.start = self.end = 0
        # Of the cache's own figures older versions of fsspec have none.
        self.hit_count = self.miss_count = self.total_requested_bytes = 0
        self._window = LEAST_WINDOW
        self._held = b""

    def _fetch(self, start: int | None, stop: int | None) -> bytes:
        start = 0 if start is None else start
        stop = self.size if stop is None else min(stop, self.size)
        if start >= stop:
            return b""
        before = b""
        if self.start <= start <= self.end:
            before = self._held[start - self.start : stop - self.start]
            self.hit_count += bool(before)
            if len(before) == stop - start:
                return before
            self._window = min(2 * self._window, MOST_WINDOW) if self.end else LEAST_WINDOW
        else:
            self._window = LEAST_WINDOW
        at = start + len(before)
        held = self.fetcher(at, min(max(stop, at + self._window), self.size))
        self.miss_count += 1
        self.total_requested_bytes += len(held)
        self.start, self.end, self._held = at, at + len(held), held
        return before + held[: stop - at]


register_cache(WideningCache, clobber=True)


class PotFile(AbstractBufferedFile):
    """One version of a file, open for reading. Small reads come from fsspec's cache; others go into the caller's memory."""

    def __init__(
        self, fs: PotluckFileSystem, path: str, block_size: int | None = None, **options: Any
    ) -> None:
        self._process = os.getpid()
        self._file: File | None = fs.pool.open(fs.address(path))
        size = options.pop("size", None)
        if size is not None and size != self._file.size:
            raise OSError(f"{path} has {self._file.size} bytes now, and {size} were expected")
        options.setdefault("cache_type", WideningCache.name)
        super().__init__(fs, path, "rb", block_size or BLOCK, size=self._file.size, **options)

    def close(self) -> None:
        super().close()
        # The pool need not keep the version any longer.
        self._file = None

    @property
    def version(self) -> int:
        """The version that is read, whatever becomes of the path meanwhile."""
        return self._opened().version

    def _opened(self) -> File:
        """Return the file as this process opened it: a forked one opens it anew."""
        if self._file is None:
            raise ValueError("I/O operation on closed file.")
        if self._process != os.getpid():
            file = self.fs.pool.open(self.fs.address(self.path))
            if file.size != self.size:
                raise OSError(f"{self.path} was replaced since it was opened")
            self._file, self._process = file, os.getpid()
        return self._file

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self._opened().read(start, end - start)

    def readinto(self, buffer: Any) -> int:
        into = memoryview(buffer).cast("B")
        if len(into) < self.blocksize:
            return super().readinto(into)
        count = self._opened().read_into(self.loc, into)
        self.loc += count
        return count

    def read(self, length: int = -1) -> bytes:
        left = self.size - self.loc
        length = left if length is None or length < 0 else min(length, left)
        if length < self.blocksize:
            return super().read(length)
        data = self._opened().read(self.loc, length)
        self.loc += len(data)
        return data


class _Kept(io.RawIOBase):
    """What files that are written have in common: they appear as a whole when they are closed, or not at all."""

    def __init__(self, fs: PotluckFileSystem, path: str, mode: str, autocommit: bool) -> None:
        super().__init__()
        self.fs, self.path, self.mode, self.autocommit = fs, path, mode, autocommit
        self._ended = False

    @property
    def full_name(self) -> str:
        """The path with its protocol."""
        return self.fs.address(self.path)

    def writable(self) -> bool:
        return True

    def commit(self) -> None:
        """Make the file visible; closing it does so unless it belongs to a transaction."""
        raise NotImplementedError

    def discard(self) -> None:
        """Give the file up."""
        raise NotImplementedError

    def _complete(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        if self.closed:
            return
        try:
            if not self._ended:
                try:
                    self._complete()
                    if self.autocommit:
                        self.commit()
                except BaseException:
                    self.discard()
                    raise
        finally:
            super().close()

    def __exit__(self, kind: Any, *rest: Any) -> None:
        # What an exception left unfinished is not kept.
        if kind is not None and not self._ended:
            self.discard()
        self.close()

    def __del__(self) -> None:
        if not self.closed:
            if not self._ended:
                warnings.warn(
                    f"{self.full_name} was not closed, so it is not kept",
                    ResourceWarning,
                    stacklevel=2,
                )
                self.discard()
            self.close()


class PotWriter(_Kept):
    """A file that is written in order; its bytes go to the donors as they come."""

    def __init__(
        self, fs: PotluckFileSystem, path: str, mode: str, autocommit: bool, writer: Writer
    ) -> None:
        self._writer, self._collected = writer, bytearray()
        super().__init__(fs, path, mode, autocommit)
        self._position = writer.written

    def tell(self) -> int:
        return self._position

    def write(self, data: Any) -> int:
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        data = memoryview(data)
        if self._ended:
            return data.nbytes  # what a text wrapper still held when the file was given up
        data = data.cast("B") if data.c_contiguous else memoryview(data.tobytes())
        if len(data) >= COLLECTED:
            self._drain()
            self._writer.write(data)
        else:
            self._collected += data
            if len(self._collected) >= COLLECTED:
                self._drain()
        self._position += len(data)
        return len(data)

    def _drain(self) -> None:
        if self._collected:
            self._writer.write(self._collected)
            self._collected = bytearray()

    def sync(self) -> None:
        """Wait until donors have what was written; it is still invisible."""
        self._drain()
        self._writer.flush()

    def _complete(self) -> None:
        self._drain()

    def commit(self) -> None:
        if not self._ended:
            self._ended = True
            self._writer.finish()

    def discard(self) -> None:
        if not self._ended:
            self._ended = True
            self._writer.abort()


class PotSpool(_Kept):
    """A file that is written anywhere in it: it lies on this machine until it is closed, and then goes to the pool."""

    def __init__(self, fs: PotluckFileSystem, path: str, mode: str, autocommit: bool) -> None:
        self._spool = tempfile.TemporaryFile(prefix="potluck-")
        super().__init__(fs, path, mode, autocommit)
        self._replaces: int | None = None
        if mode == "r+b":
            try:
                self._copy_in()
            except BaseException:
                self.discard()
                raise

    def _copy_in(self) -> None:
        with PotFile(self.fs, self.path) as old:
            self._replaces = old.version
            while part := old.read(4 * BLOCK):
                self._spool.write(part)
        self._spool.seek(0)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._spool.readinto(buffer)

    def write(self, data: Any) -> int:
        return self._spool.write(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._spool.seek(offset, whence)

    def tell(self) -> int:
        return self._spool.tell()

    def truncate(self, size: int | None = None) -> int:
        return self._spool.truncate(size)

    def _complete(self) -> None:
        pass

    def commit(self) -> None:
        if self._ended:
            return
        self._ended = True
        size = self._spool.seek(0, io.SEEK_END)
        self._spool.seek(0)
        writer = self.fs.pool.create(self.fs.address(self.path), replaces=self._replaces, size=size)
        while part := self._spool.read(4 * BLOCK):
            writer.write(part)
        writer.finish()
        self._spool.close()

    def discard(self) -> None:
        if not self._ended:
            self._ended = True
            self._spool.close()


class PotText(io.TextIOWrapper):
    """Text over a file of a pool; what an exception left unfinished is not kept of it either."""

    def __exit__(self, kind: Any, *rest: Any) -> None:
        if kind is not None and isinstance(self.buffer, _Kept):
            self.buffer.discard()
        self.close()
