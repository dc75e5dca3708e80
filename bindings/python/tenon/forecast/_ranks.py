# mypy: disable-error-code="import-not-found,import-untyped"
"""Process groups of one process: rank 0 of as many as the program asks for, nothing is sent."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Iterator, List, Tuple

import torch

from tenon.forecast._engine import ForecastError


@contextlib.contextmanager
def environment(ranks: int) -> Iterator[None]:
    """What torchrun tells a process; nothing where no number of ranks is given."""
    if not ranks:
        yield
        return
    told = {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "GROUP_WORLD_SIZE": "1",
        "ROLE_RANK": "0",
        "ROLE_WORLD_SIZE": str(ranks),
        "TORCHELASTIC_RUN_ID": "forecast",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "29500",
    }
    before = {name: os.environ.get(name) for name in told}
    os.environ.update(told)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def destroy() -> None:
    """No group outlives a forecast."""
    dist = torch.distributed
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def _leave_out_checkpoints(session: Any) -> None:
    """torch.distributed.checkpoint plans with the parts of all ranks, and this is one of them."""
    from torch.distributed.checkpoint import state_dict_loader, state_dict_saver

    saved = []

    def save(*_: Any, **__: Any) -> None:
        session.note("torch.distributed.checkpoint was left out: what it loads stays as it is")
        saved.append(True)

    def load(state_dict: Any, storage_reader: Any, *_: Any, **__: Any) -> None:
        if not saved:
            storage_reader.read_metadata()  # so that a missing one is found
            save()

    session.replace(state_dict_saver, "_save_state_dict", save)
    session.replace(state_dict_loader, "_load_state_dict", load)


def replacements(session: Any) -> List[Tuple[Any, str, Any]]:
    """What is replaced where: (holder, name, value)."""
    if not torch.distributed.is_available():
        return []
    import torch.distributed as dist
    from torch.distributed import device_mesh
    from torch.distributed import distributed_c10d as c10d
    from torch.testing._internal.distributed.fake_pg import FakeStore

    from tenon.forecast import _ddp

    session.real_init = real_init = c10d.init_process_group

    def init_process_group(
        backend: Any = None,
        init_method: Any = None,
        timeout: Any = None,
        world_size: int = -1,
        rank: int = -1,
        store: Any = None,
        **keywords: Any,
    ) -> None:
        ranks = session.ranks or world_size
        if ranks <= 0:
            ranks = int(os.environ.get("WORLD_SIZE", "0"))
        if ranks <= 0:
            raise ForecastError("it makes a process group: give ranks, the number of its processes")
        session.note(
            f"rank 0 of {ranks}: nothing is sent; the buffers of NCCL come on top of the figures"
        )
        keywords.pop("pg_options", None)
        keywords.pop("device_id", None)
        session.group_of = ranks
        _leave_out_checkpoints(session)
        real_init("fake", store=FakeStore(), rank=0, world_size=ranks, **keywords)

    real_group = c10d.new_group

    def new_group(ranks: Any = None, *_: Any, **keywords: Any) -> Any:
        kept = {name: keywords[name] for name in ("group_desc",) if name in keywords}
        return real_group(ranks, backend="fake", **kept)

    def all_gather_object(object_list: List[Any], obj: Any, group: Any = None) -> None:
        object_list[:] = [obj] * len(object_list)

    def gather_object(obj: Any, object_gather_list: Any = None, *_: Any, **__: Any) -> None:
        if object_gather_list is not None:
            object_gather_list[:] = [obj] * len(object_gather_list)

    def scatter_object_list(
        scatter_object_output_list: List[Any],
        scatter_object_input_list: Any = None,
        *_: Any,
        **__: Any,
    ) -> None:
        if scatter_object_input_list:
            scatter_object_output_list[0] = scatter_object_input_list[0]

    def spawn(fn: Any, args: Any = (), nprocs: int = 1, *_: Any, **__: Any) -> None:
        """The first process, in this one."""
        session.note(f"of {nprocs} processes that it starts, the first one ran")
        fn(0, *args)

    nothing = lambda *_, **__: None  # noqa: E731
    functions = {
        "init_process_group": init_process_group,
        "new_group": new_group,
        "all_gather_object": all_gather_object,
        "gather_object": gather_object,
        "scatter_object_list": scatter_object_list,
        "broadcast_object_list": nothing,
        "send_object_list": nothing,
        "recv_object_list": nothing,
        "barrier": nothing,
        "monitored_barrier": nothing,
        "is_nccl_available": lambda: True,
        "is_gloo_available": lambda: True,
    }
    found = [(module, name, value) for module in (dist, c10d) for name, value in functions.items()]
    # A mesh makes the group of all processes where the program has made none.
    found.append((device_mesh, "init_process_group", init_process_group))
    from torch import multiprocessing

    found.append((multiprocessing, "spawn", spawn))
    return found + _ddp.replacements()
