"""Potluck in Python: files of a pool by fsspec and by handles, and checkpoints that appear whole.

Nothing is connected, and no thread starts, before something is used.
"""

from __future__ import annotations

import importlib.metadata
from typing import TYPE_CHECKING, Any

from potluck._native import Pool

if TYPE_CHECKING:
    from potluck.checkpoints import Checkpointing
    from potluck.checkpoints import Checkpointing as checkpoint
    from potluck.filesystem import PotluckFileSystem

__all__ = ["Checkpointing", "Pool", "PotluckFileSystem", "checkpoint", "open"]


def __getattr__(name: str) -> Any:
    # fsspec is imported only by who uses it.
    if name == "PotluckFileSystem":
        from potluck.filesystem import PotluckFileSystem

        return PotluckFileSystem
    if name in ("checkpoint", "Checkpointing"):
        from potluck.checkpoints import Checkpointing

        return Checkpointing
    if name == "__version__":
        return importlib.metadata.version("potluck")
    raise AttributeError(f"module 'potluck' has no attribute {name!r}")


def open(path: str, mode: str = "rb", *, pool: str | None = None, **options: Any) -> Any:
    """Open a file of a pool, as `fsspec.filesystem("pot", pool=pool).open` does."""
    from potluck.filesystem import PotluckFileSystem

    return PotluckFileSystem(pool=pool).open(path, mode, **options)
