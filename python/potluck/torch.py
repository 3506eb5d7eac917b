"""Distributed checkpoints of PyTorch that become visible at one moment.

`torch.distributed.checkpoint` writes to `pot://` by itself, too: then files appear one by one, and the metadata last.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from torch.distributed.checkpoint.fsspec_filesystem import FsspecReader, FsspecWriter

from potluck.checkpoints import Checkpointing

__all__ = ["StorageReader", "StorageWriter"]

#: A checkpoint that was committed is read as any other.
StorageReader = FsspecReader


class StorageWriter(FsspecWriter):
    """Writes the files of all ranks out of sight, and commits them together when the coordinator has written the metadata.

    `reserve` and `keep_last` are those of `potluck.checkpoint`. A checkpoint that fails leaves what was there before.
    """

    def __init__(
        self,
        path: str,
        *,
        reserve: int | str | None = None,
        keep_last: int | None = None,
        pool: str | None = None,
        **options: Any,
    ) -> None:
        # What was committed has been acknowledged by donors, so that no file is synced by itself.
        options = {"sync_files": False} | options | ({"pool": pool} if pool else {})
        super().__init__(path, **options)
        self._target = str(path)
        self._options: dict[str, Any] = {"reserve": reserve, "keep_last": keep_last, "pool": pool}
        self._open: Checkpointing | None = None

    @property
    def checkpoint_id(self) -> str:
        return self._target

    def reset(self, checkpoint_id: Any = None) -> None:
        self._give_up()
        super().reset(None)
        if checkpoint_id:
            self._target = str(checkpoint_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        super().set_up_storage_writer(is_coordinator, *args, **kwargs)
        if not self.use_collectives:
            raise ValueError("a checkpoint that is committed at once needs use_collectives=True")

    def prepare_local_plan(self, plan: Any) -> Any:
        # Nothing is made at the target before the commit.
        return plan

    def prepare_global_plan(self, plans: list[Any]) -> list[Any]:
        self._give_up()
        self._open = Checkpointing(self._target, **self._options).__enter__()
        place = self._open.url("").rstrip("/")
        prefixed = super().prepare_global_plan(plans)
        return [
            dataclasses.replace(plan, storage_data=(place, plan.storage_data)) for plan in prefixed
        ]

    def write_data(self, plan: Any, planner: Any) -> Any:
        self.path, prefix = plan.storage_data
        return super().write_data(dataclasses.replace(plan, storage_data=prefix), planner)

    def finish(self, metadata: Any, results: Any) -> None:
        assert self._open is not None, "the coordinator began the checkpoint"
        checkpointing, self._open = self._open, None
        with checkpointing:
            super().finish(metadata, results)

    def _give_up(self) -> None:
        if self._open is not None:
            checkpointing, self._open = self._open, None
            checkpointing.abort()
