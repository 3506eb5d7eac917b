"""Checkpoints: directories whose files become visible at one moment, or not at all."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from typing import Any

from potluck._native import Pool

#: For how long room stays reserved for a checkpoint whose program dies, in seconds.
RESERVED = 4 * 3600.0
#: How many bytes of a local file are handed on at once.
PIECE = 16 << 20

_UNITS = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgtp", 1):
    _UNITS |= {f"{_letter}ib": 1024**_power, f"{_letter}b": 1000**_power, _letter: 1024**_power}


def _size(text: int | str) -> int:
    """Read a size in bytes, such as 40GiB."""
    if isinstance(text, int):
        return text
    read = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*", text)
    if not read or read[2].lower() not in _UNITS:
        raise ValueError(f"{text!r} is no size: write 40GiB, 500MB or a number of bytes")
    return int(float(read[1]) * _UNITS[read[2].lower()])


class Checkpointing:
    """A directory that is written out of sight, and takes its place when the block ends without an exception.

    Files are written by `open`, by any program of fsspec at `url`, or by any library that wants a local path at `path`.
    With `reserve` the room is there before the first byte is written; with `keep_last` the pool purges older
    directories beside this one.
    """

    def __init__(
        self,
        target: str,
        *,
        reserve: int | str | None = None,
        keep_last: int | None = None,
        pool: str | None = None,
    ) -> None:
        self.target = target.rstrip("/")
        self._reserve = None if reserve is None else _size(reserve)
        self._keep_last, self._name = keep_last, pool
        self._pool: Pool | None = None
        self._local: str | None = None
        self._reservation: str | None = None

    def __enter__(self) -> Checkpointing:
        if self._pool is not None:
            return self  # it was begun before the block
        self._pool = Pool(self._name)
        if self._keep_last is not None:
            above = self.target.rsplit("/", 1)[0]
            if "/" in above.removeprefix("pot://"):
                self._pool.make_dir(above, True)
            self._pool.keep_last(above, self._keep_last)
        if self._reserve is not None:
            self._reservation = self._pool.reserve(self.target, self._reserve, RESERVED)
        try:
            self._checkpoint = self._pool.begin_checkpoint(self.target)
        except BaseException:
            self._release()
            raise
        return self

    def url(self, name: str) -> str:
        """Return where a program of fsspec writes the file `name` of the checkpoint."""
        return self._checkpoint.staged(f"{self.target}/{name}")

    def open(self, name: str, mode: str = "wb", **options: Any) -> Any:
        """Open the file `name` of the checkpoint."""
        from potluck.filesystem import PotluckFileSystem

        return PotluckFileSystem(pool=self._name).open(self.url(name), mode, **options)

    def path(self, name: str) -> str:
        """Return a path on this machine whose file becomes `name` of the checkpoint when the block ends."""
        if self._local is None:
            self._local = tempfile.mkdtemp(prefix="potluck-checkpoint-")
        path = os.path.join(self._local, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    def __exit__(self, kind: Any, *rest: Any) -> None:
        if kind is None:
            self.commit()
        else:
            self.abort()

    def commit(self) -> None:
        """Make the directory visible as it was written, as the end of the block does."""
        try:
            self._bring_local()
            self._checkpoint.commit()
        finally:
            self._clean()

    def abort(self) -> None:
        """Remove what was written, as an exception in the block does."""
        try:
            self._checkpoint.abort()
        finally:
            self._clean()

    def _clean(self) -> None:
        self._release()
        if self._local is not None:
            shutil.rmtree(self._local, ignore_errors=True)

    def _bring_local(self) -> None:
        assert self._pool is not None
        for directory, _, names in os.walk(self._local or os.devnull):
            for name in names:
                local = os.path.join(directory, name)
                below = os.path.relpath(local, self._local).replace(os.sep, "/")
                writer = self._pool.create(self.url(below), size=os.path.getsize(local))
                piece = memoryview(bytearray(PIECE))
                with open(local, "rb") as content:
                    while count := content.readinto(piece):
                        writer.write(piece[:count])
                writer.finish()

    def _release(self) -> None:
        if self._pool is not None and self._reservation is not None:
            self._pool.release(self._reservation)
            self._reservation = None
