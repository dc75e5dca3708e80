# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-call"
"""A program of one process, as if it trained on several cards: what a rank of it takes.

The model is wrapped where its optimizer is made, with PyTorch's own classes:

    "ddp"    DistributedDataParallel: gradients are averaged through buckets
    "zero1"  the same, and the optimizer has a share of the parameters (ZeroRedundancyOptimizer)
    "zero2"  fully_shard(reshard_after_forward=False): parameters stay whole until backward is done
    "zero3"  fully_shard: parameters are gathered for each layer, forward and backward
"""

from __future__ import annotations

import gc
from typing import Any, Callable, Dict, List, Tuple

import torch

from tenon.forecast import _changes
from tenon.forecast._engine import ForecastError

WAYS = ("ddp", "zero1", "zero2", "zero3")


def replacements(way: str, session: Any) -> List[Tuple[Any, str, Any]]:
    """What is replaced where: (holder, name, value)."""
    real = torch.optim.Optimizer.__init__
    wrapped: Dict[int, Callable[[Any], Any]] = {}

    def init(self: Any, params: Any, defaults: Any) -> None:
        groups = _groups(params)
        given = [param for group in groups for param in group["params"]]
        for root in _roots(given):
            if id(root) not in wrapped:
                _start(session)
                wrapped[id(root)] = _wrap(way, root)
            for group in groups:
                group["params"] = [wrapped[id(root)](param) for param in group["params"]]
        if way == "zero1":
            groups = _share(groups, session.ranks)
            self.zero_grad = lambda set_to_none=True: _forget(given)
        real(self, groups, defaults)

    return [(torch.optim.Optimizer, "__init__", init)]


def _start(session: Any) -> None:
    if torch.distributed.is_initialized():
        if session.group_of:
            raise ForecastError("the program makes its own process group: give no shard")
        return
    from torch.testing._internal.distributed.fake_pg import FakeStore

    session.real_init("fake", store=FakeStore(), rank=0, world_size=session.ranks)
    session.note(
        f"rank 0 of {session.ranks}, each with a batch of the program's size: nothing is sent; the "
        "buffers of NCCL come on top of the figures"
    )


def _groups(params: Any) -> List[Dict[str, Any]]:
    params = list(params)
    if not params or not isinstance(params[0], dict):
        params = [{"params": params}]
    found = []
    for group in params:
        parts = group["params"]
        parts = [parts] if isinstance(parts, torch.Tensor) else list(parts)
        parts = [part[1] if isinstance(part, tuple) else part for part in parts]
        found.append({**group, "params": parts})
    return found


def _roots(params: List[Any]) -> List[Any]:
    """The outermost modules that hold these parameters."""
    wanted = {id(param) for param in params}
    kinds = (torch.nn.parallel.DistributedDataParallel,)
    modules = [
        part
        for part in gc.get_objects()
        if issubclass(type(part), torch.nn.Module)
        and not isinstance(part, kinds)
        and "_parameters" in part.__dict__
    ]
    holding = [
        module
        for module in modules
        if any(id(param) in wanted for param in module.parameters())
    ]
    inner = {
        id(child) for module in holding for child in module.modules() if child is not module
    }
    return [module for module in holding if id(module) not in inner]


def _wrap(way: str, root: Any) -> Callable[[Any], Any]:
    """Wraps a module; returns what a parameter of it becomes."""
    if way in ("ddp", "zero1"):
        _average(root)
        return lambda param: param
    from torch.distributed.fsdp import fully_shard

    root.to("cuda")
    names = {id(param): name for name, param in root.named_parameters()}
    kept = list(root.parameters())  # ids stay those of live objects
    for layer in _changes.layers(root):
        fully_shard(layer, reshard_after_forward=way == "zero3")
    fully_shard(root, reshard_after_forward=way == "zero3")
    after = dict(root.named_parameters())
    changed = {number: after[name] for number, name in names.items()}
    kept.clear()
    return lambda param: changed.get(id(param), param)


def _average(root: Any) -> None:
    """DistributedDataParallel around a module that the program calls itself."""
    ddp = torch.nn.parallel.DistributedDataParallel(root)

    def before(_: Any, arguments: Any, keywords: Any) -> Any:
        return ddp._pre_forward(*arguments, **keywords)

    def after(_: Any, arguments: Any, result: Any) -> Any:
        return ddp._post_forward(result)

    root.register_forward_pre_hook(before, with_kwargs=True)
    root.register_forward_hook(after)


def _share(groups: List[Dict[str, Any]], ranks: int) -> List[Dict[str, Any]]:
    """Rank 0's parameters: the largest first, each to the rank that has least
    (ZeroRedundancyOptimizer._partition_parameters)."""
    loads = [0] * ranks
    found = []
    for group in groups:
        mine = []
        for param in sorted(group["params"], key=lambda param: -param.numel()):
            rank = loads.index(min(loads))
            loads[rank] += param.numel()
            if rank == 0:
                mine.append(param)
        if mine:
            found.append({**group, "params": mine})
    return found


def _forget(params: List[Any]) -> None:
    for param in params:
        param.grad = None
