"""Pools as a file system of fsspec, under the protocol `pot`."""

from __future__ import annotations

import asyncio
import atexit
import builtins
import datetime
import difflib
import os
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from glob import has_magic
from typing import Any

from fsspec.asyn import AsyncFileSystem, get_loop
from fsspec.callbacks import DEFAULT_CALLBACK

from potluck._native import Pool
from potluck.files import BLOCK, PotFile, PotSpool, PotText, PotWriter

#: How many calls of one process may wait at once; more wait for their turn.
WAITING = 64
#: How many bytes are moved at once between a local file and the pool.
PIECE = 4 * BLOCK
#: The options of every file system of fsspec.
GENERAL_OPTIONS = {
    "asynchronous",
    "batch_size",
    "listings_expiry_time",
    "loop",
    "max_paths",
    "skip_instance_cache",
    "use_listings_cache",
}

#: The options of a file that is opened as text.
TEXT_OPTIONS = {"encoding", "errors", "newline"}

_waiting: tuple[int, ThreadPoolExecutor] | None = None


def _threads() -> ThreadPoolExecutor:
    """Return the threads in which calls of this process wait; a forked process has its own."""
    global _waiting
    if _waiting is None or _waiting[0] != os.getpid():
        _waiting = (os.getpid(), ThreadPoolExecutor(WAITING, "potluck-call"))
    return _waiting[1]


def _settle(pool: weakref.ref[PotluckFileSystem]) -> None:
    if (fs := pool()) is not None:
        fs.pool.settle()


class PotluckFileSystem(AsyncFileSystem):
    """Files of a pool, as `pot://SPACE/PATH`.

    `pool` names one of several pools that the user joined, or the directory of an identity; the command line's
    `--pool` takes the same. Nothing is cached: what another client committed is seen by the next call.
    """

    protocol = "pot"
    root_marker = ""
    cachable = True
    mirror_sync_methods = True
    _pid: int

    def __init__(self, pool: str | None = None, **options: Any) -> None:
        for option in options.keys() - GENERAL_OPTIONS:
            meant = difflib.get_close_matches(option, ["pool", *GENERAL_OPTIONS], 1)
            hint = f": did you mean {meant[0]!r}?" if meant else ""
            raise TypeError(f"pot:// has no storage option {option!r}{hint}")
        super().__init__(**options)
        self.pool = Pool(pool)
        atexit.register(_settle, weakref.ref(self))

    @property
    def loop(self) -> Any:
        # A forked process has no thread that runs the loop of its parent.
        if self._pid != os.getpid() and not self.asynchronous:
            self._pid, self._loop = os.getpid(), get_loop()
        return super().loop

    @property
    def fsid(self) -> str:
        return "pot"

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        stripped = super()._strip_protocol(path)
        return stripped.lstrip("/") if isinstance(stripped, str) else stripped

    @classmethod
    def address(cls, path: Any) -> str:
        """Return a path with its protocol."""
        return f"pot://{cls._strip_protocol(path)}"

    async def _call(self, call: Callable[..., Any], *given: Any) -> Any:
        """Make a call that waits, without keeping the loop from turning."""
        return await asyncio.get_running_loop().run_in_executor(_threads(), call, *given)

    # What is there.

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        return _described(self.pool.stat(self.address(path)))

    async def _info(self, path: str, **options: Any) -> dict[str, Any]:
        return await self._call(self.info, path)

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        found = self.pool.list(self.address(path))
        return [_described(one) if detail else one["name"] for one in found]

    async def _ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        return await self._call(self.ls, path, detail)

    async def _find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, **options: Any
    ) -> Any:
        if maxdepth is not None or self._strip_protocol(path) == "":
            return await super()._find(path, maxdepth=maxdepth, withdirs=withdirs, **options)
        path = self._strip_protocol(path)
        try:
            found = await self._call(self.pool.list, self.address(path), True)
        except (FileNotFoundError, NotADirectoryError):
            found = []
        # A file lists itself, and a directory does not.
        if withdirs and not (len(found) == 1 and found[0]["name"] == path):
            if await self._isdir(path):
                found.append(await self._call(self.pool.stat, self.address(path)))
        kept = [one for one in found if withdirs or one["type"] != "directory"]
        named = {one["name"]: _described(one) for one in sorted(kept, key=lambda one: one["name"])}
        return named if options.get("detail") else list(named)

    def created(self, path: str) -> datetime.datetime:
        return self.info(path)["created"]

    def modified(self, path: str) -> datetime.datetime:
        return self.info(path)["mtime"]

    def ukey(self, path: str) -> str:
        info = self.info(path)
        return f"{info['version']}-{info['digest']}"

    def checksum(self, path: str) -> int:
        info = self.info(path)
        return int(info["digest"], 16) if info["digest"] else info["ctime_ns"]

    # Content.

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **options: Any
    ) -> bytes:
        return self.pool.read(self.address(path), start, end)

    async def _cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **options: Any
    ) -> bytes:
        return await self._call(self.cat_file, path, start, end)

    async def _cat_ranges(
        self,
        paths: Any,
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        batch_size: int | None = None,
        on_error: str = "return",
        **options: Any,
    ) -> list[Any]:
        starts = starts if isinstance(starts, (list, tuple)) else [starts] * len(paths)
        ends = ends if isinstance(ends, (list, tuple)) else [ends] * len(paths)
        if not len(paths) == len(starts) == len(ends):
            raise ValueError("as many starts and ends as paths are needed")
        wanted = list(zip(map(self.address, paths), starts, ends))
        read = await self._call(self.pool.read_ranges, wanted)
        failed = next((one for one in read if isinstance(one, BaseException)), None)
        if failed is not None and on_error != "return":
            raise failed
        return read

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **options: Any) -> None:
        value = memoryview(value).cast("B")
        exclusive = mode == "create"
        writer = self.pool.create(self.address(path), exclusive=exclusive, size=len(value))
        writer.write(value)
        writer.finish()

    async def _pipe_file(
        self, path: str, value: Any, mode: str = "overwrite", **options: Any
    ) -> None:
        await self._call(self.pipe_file, path, value, mode)

    def open(self, path: str, mode: str = "rb", *given: Any, **options: Any) -> Any:
        """Open a file, as text where the mode has no `b`."""
        if "b" in mode:
            return super().open(path, mode, *given, **options)
        form = {key: options.pop(key) for key in TEXT_OPTIONS & options.keys()}
        return PotText(self.open(path, mode.replace("t", "") + "b", *given, **options), **form)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        if mode == "rb":
            return PotFile(self, path, block_size, cache_options=cache_options, **options)
        if mode in ("r+b", "w+b"):
            return PotSpool(self, path, mode, autocommit)
        if mode == "ab":
            writer = self.pool.append(self.address(path))
        elif mode in ("wb", "xb"):
            exclusive = mode == "xb"
            if exclusive and self.exists(path):
                raise FileExistsError(f"{path} is there already")
            size = options.get("size")
            writer = self.pool.create(self.address(path), exclusive=exclusive, size=size)
        else:
            raise ValueError(
                f"files of a pool are opened by rb, wb, xb, ab, w+b or r+b, not {mode}"
            )
        return PotWriter(self, path, mode, autocommit, writer)

    def _download(self, source: str, target: str, callback: Any) -> None:
        try:
            file = self.pool.open(self.address(source))
        except IsADirectoryError:
            os.makedirs(target, exist_ok=True)
            return
        callback.set_size(file.size)
        os.makedirs(os.path.dirname(os.path.abspath(target)), exist_ok=True)
        piece = memoryview(bytearray(min(file.size, PIECE)))
        with builtins.open(target, "wb") as local:
            done = 0
            while done < file.size:
                count = file.read_into(done, piece)
                local.write(piece[:count])
                done += count
                callback.relative_update(count)

    async def _get_file(
        self, rpath: str, lpath: str, callback: Any = DEFAULT_CALLBACK, **options: Any
    ) -> None:
        await self._call(self._download, rpath, lpath, callback)

    def _upload(self, source: str, target: str, mode: str, callback: Any) -> None:
        if os.path.isdir(source):
            self.pool.make_dir(self.address(target), True)
            return
        with builtins.open(source, "rb") as local:
            size = os.fstat(local.fileno()).st_size
            callback.set_size(size)
            exclusive = mode == "create"
            writer = self.pool.create(self.address(target), exclusive=exclusive, size=size)
            piece = memoryview(bytearray(min(size, PIECE) or 1))
            while count := local.readinto(piece):
                writer.write(piece[:count])
                callback.relative_update(count)
            writer.finish()

    async def _put_file(
        self,
        lpath: str,
        rpath: str,
        mode: str = "overwrite",
        callback: Any = DEFAULT_CALLBACK,
        **options: Any,
    ) -> None:
        await self._call(self._upload, lpath, rpath, mode, callback)

    # Names.

    def mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        try:
            self.pool.make_dir(self.address(path))
        except FileNotFoundError:
            # A space is made only by its own name: one that is missing is more often a slip.
            above = self._parent(path)
            if not create_parents or "/" not in above:
                raise
            self.pool.make_dir(self.address(above), True)
            self.pool.make_dir(self.address(path))

    async def _mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        await self._call(self.mkdir, path, create_parents)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        if exist_ok:
            self.pool.make_dir(self.address(path), True)
        else:
            self.mkdir(path)

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        await self._call(self.makedirs, path, exist_ok)

    def rmdir(self, path: str) -> None:
        self.pool.remove_dir(self.address(path))

    async def _rmdir(self, path: str) -> None:
        await self._call(self.rmdir, path)

    def rm_file(self, path: str) -> None:
        self.pool.remove(self.address(path))

    async def _rm_file(self, path: str, **options: Any) -> None:
        await self._call(self.rm_file, path)

    async def _rm(
        self,
        path: Any,
        recursive: bool = False,
        batch_size: int | None = None,
        maxdepth: int | None = None,
        **options: Any,
    ) -> None:
        paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
        if maxdepth is not None:
            paths = await self._expand_path(paths, recursive=recursive, maxdepth=maxdepth)
        elif any(map(has_magic, map(str, paths))):
            paths = await self._expand_path(paths)
        for one in sorted(map(str, paths), reverse=True):
            await self._call(self.pool.remove, self.address(one), recursive)

    def mv(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        **options: Any,
    ) -> None:
        """Move a file or directory. Inside a space that is one step, and no bytes move."""
        if not (isinstance(path1, str) and isinstance(path2, str)) or has_magic(path1):
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **options)
            return
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if path2.endswith("/") or (source != target and self.isdir(target)):
            target = f"{target}/{source.rsplit('/', 1)[-1]}"
        if source == target:
            return
        if source.split("/")[0] != target.split("/")[0]:
            super().mv(source, target, recursive=recursive, maxdepth=maxdepth, **options)
            return
        self.pool.rename(self.address(source), self.address(target))

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        try:
            self.pool.copy(self.address(path1), self.address(path2))
        except IsADirectoryError:
            self.pool.make_dir(self.address(path2), True)

    async def _cp_file(self, path1: str, path2: str, **options: Any) -> None:
        await self._call(self.cp_file, path1, path2)

    async def _mv_file(self, path1: str, path2: str) -> None:
        await self._call(self.pool.rename, self.address(path1), self.address(path2))


def _described(found: dict[str, Any]) -> dict[str, Any]:
    """Add to what the pool says of a path what programs of fsspec look for."""
    found["mtime"] = _moment(found["mtime_ns"])
    found["created"] = _moment(found["ctime_ns"])
    found["islink"] = found["type"] == "link"
    return found


def _moment(nanoseconds: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(nanoseconds / 1e9, tz=datetime.timezone.utc)
