# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def"
"""Stand-ins for torch.cuda's functions while a forecast runs."""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import types
from typing import Any, Dict, Iterator, List, Tuple

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.cuda._utils import _get_device_index


class Stream:
    """A stream of the fake device: a number."""

    session: Any = None
    numbers: Any = None

    def __init__(self, device: Any = None, priority: int = 0, number: Any = None, **_: Any) -> None:
        self._session = self.session
        if number is None:
            number = next(self.numbers)
        self.number = self.stream_id = self.cuda_stream = number
        self.device = torch.device("cuda", 0)
        self.device_index = 0
        self.device_type = 1
        self.priority = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.number == self.number

    def __hash__(self) -> int:
        return hash(self.number)

    def __enter__(self) -> "Stream":
        self._before = self._session.mode.stream
        self._session.mode.stream = self.number
        return self

    def __exit__(self, *_: Any) -> None:
        self._session.mode.stream = self._before

    def synchronize(self) -> None:
        self._session.mode.recorder.complete_frees()

    def query(self) -> bool:
        return True

    @staticmethod
    def priority_range() -> Tuple[int, int]:
        return 0, -5

    def is_capturing(self) -> bool:
        return False

    def wait_stream(self, stream: Any) -> None:
        pass

    def wait_event(self, event: Any) -> None:
        pass

    def record_event(self, event: Any = None) -> Any:
        return event if event is not None else Event()


class Event:
    """An event that has always happened. A millisecond lies between two: programs divide by it."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.cuda_event = 0

    def record(self, stream: Any = None) -> None:
        pass

    def wait(self, stream: Any = None) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: Any) -> float:
        return 1.0

    def synchronize(self) -> None:
        pass


class Generator(torch.Generator):  # type: ignore[misc, unused-ignore]
    """torch.Generator("cuda"): the host's random numbers under the card's name."""

    def __new__(cls, device: Any = "cpu") -> Any:
        if torch.device(device).type != "cuda":
            return torch._C.Generator(device)
        return super().__new__(cls)

    @property
    def device(self) -> torch.device:
        return torch.device("cuda", 0)


def replacements(session: Any) -> List[Tuple[Any, str, Any]]:
    """What is replaced where: (holder, name, value)."""
    mode, card, capacity = session.mode, session.card, session.capacity
    kind = type("Stream", (Stream,), {"session": session, "numbers": iter(range(1, 1 << 30))})
    default = kind(number=0)

    def current_stream(device: Any = None) -> Any:
        return kind(number=mode.stream)

    def set_stream(stream: Any) -> None:
        mode.stream = stream.number

    @contextlib.contextmanager
    def on_stream(stream: Any) -> Iterator[Any]:
        before = mode.stream
        if stream is not None:
            mode.stream = stream.number
        try:
            yield stream
        finally:
            mode.stream = before

    properties = types.SimpleNamespace(
        name=f"NVIDIA {card.name} (forecast)",
        major=card.major,
        minor=card.minor,
        total_memory=capacity,
        multi_processor_count=card.processors,
        warp_size=32,
        max_threads_per_multi_processor=2048,
        max_threads_per_block=1024,
        clock_rate=1500000,
        memory_clock_rate=1500000,
        memory_bus_width=0,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=232448,
        shared_memory_per_multiprocessor=233472,
        L2_cache_size=52428800,
        is_integrated=False,
        is_multi_gpu_board=False,
        gcnArchName="",
        uuid="",
        pci_bus_id=0,
        pci_device_id=0,
        pci_domain_id=0,
    )

    def properties_of(device: Any = None) -> Any:
        if not 0 <= _get_device_index(device, optional=True) < session.devices:
            last = session.devices - 1
            raise AssertionError(f"Invalid device id: the forecast has cards 0 to {last}")
        return properties

    recorder = mode.recorder
    nothing = lambda *_, **__: None  # noqa: E731
    told = recorder.statistics
    memory: Dict[str, Any] = {
        "memory_allocated": lambda *_, **__: told.current["allocated_bytes"],
        "max_memory_allocated": lambda *_, **__: told.peaks["allocated_bytes"],
        "memory_reserved": lambda *_, **__: told.current["reserved_bytes"],
        "max_memory_reserved": lambda *_, **__: told.peaks["reserved_bytes"],
        "reset_peak_memory_stats": lambda *_, **__: told.reset_peaks(),
        "reset_accumulated_memory_stats": lambda *_, **__: told.reset_totals(),
        "empty_cache": lambda *_, **__: recorder.empty_cache(),
        "memory_stats": lambda *_, **__: told.all(),
    }
    functions: Dict[str, Any] = {
        **memory,
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": nothing,
        "_lazy_init": nothing,
        "device_count": lambda: session.devices,
        "current_device": lambda: 0,
        "set_device": nothing,
        "synchronize": _synchronize(recorder),
        "get_device_name": lambda device=None: properties.name,
        "get_device_capability": lambda device=None: (card.major, card.minor),
        "get_device_properties": properties_of,
        "can_device_access_peer": lambda *_: True,
        "get_arch_list": lambda: [f"sm_{card.major}{card.minor}"],
        "is_bf16_supported": lambda including_emulation=True: card.major >= 8,
        "is_current_stream_capturing": lambda: False,
        "_is_compiled": lambda: True,
        "Stream": kind,
        "Event": Event,
        "current_stream": current_stream,
        "default_stream": lambda device=None: default,
        "set_stream": set_stream,
        "stream": on_stream,
        "_exchange_device": lambda device: 0,
        "_maybe_exchange_device": lambda device: 0,
        "manual_seed": nothing,
        "manual_seed_all": nothing,
        "seed": nothing,
        "seed_all": nothing,
        "initial_seed": lambda: 0,
        "get_rng_state": lambda device="cuda": torch.zeros(16, dtype=torch.uint8),
        "get_rng_state_all": lambda: [torch.zeros(16, dtype=torch.uint8)],
        "set_rng_state": nothing,
        "set_rng_state_all": nothing,
        "memory_cached": memory["memory_reserved"],
        "max_memory_cached": memory["max_memory_reserved"],
        "reset_max_memory_allocated": memory["reset_peak_memory_stats"],
        "reset_max_memory_cached": memory["reset_peak_memory_stats"],
        "ipc_collect": nothing,
        "mem_get_info": lambda device=None: (capacity - told.current["reserved_bytes"], capacity),
        "set_per_process_memory_fraction": nothing,
        "get_per_process_memory_fraction": lambda device=None: 1.0,
        "list_gpu_processes": lambda device=None: "",
        "device_memory_used": lambda device=None: told.current["reserved_bytes"],
        **{
            name: lambda device=None: 0  # what NVML measures
            for name in ("utilization", "memory_usage", "temperature", "power_draw", "clock_rate")
        },
    }
    found = [
        (torch.cuda, name, value) for name, value in functions.items() if hasattr(torch.cuda, name)
    ]
    for name in (
        "get_rng_state",
        "set_rng_state",
        "manual_seed",
        "manual_seed_all",
        "get_rng_state_all",
        "set_rng_state_all",
        "initial_seed",
        "seed",
        "seed_all",
    ):
        found.append((torch.cuda.random, name, functions[name]))
    for name, value in functions.items():
        if hasattr(torch.cuda.memory, name) and name not in ("is_initialized", "_lazy_init"):
            found.append((torch.cuda.memory, name, value))
    found += [
        *[(torch.cuda.profiler, name, nothing) for name in ("start", "stop")],
        (torch.cuda.memory, "_record_memory_history", nothing),
        (torch.cuda.memory, "_dump_snapshot", nothing),
        (torch.cuda.memory, "_snapshot", lambda *_, **__: {"segments": [], "device_traces": []}),
        (torch, "Stream", kind),
        (torch, "Event", Event),
        (torch._C, "_cuda_isCurrentStreamCapturing", lambda: False),
        (torch._C, "_get_accelerator", lambda *_: torch.device("cuda")),
    ]
    if hasattr(torch, "accelerator"):
        found += [
            (torch.accelerator, name, value)
            for name, value in {
                "is_available": lambda: True,
                "device_count": lambda: session.devices,
                "current_accelerator": lambda check_available=False: torch.device("cuda"),
                "current_device_index": lambda: 0,
                "current_device_idx": lambda: 0,
                "set_device_index": nothing,
                "set_device_idx": nothing,
                "current_stream": current_stream,
                "set_stream": set_stream,
                "synchronize": functions["synchronize"],
                **memory,
                "get_memory_info": functions["mem_get_info"],
            }.items()
            if hasattr(torch.accelerator, name)
        ]
    found += [
        (torch.Tensor, "pin_memory", lambda self, device=None: self),
        (torch.Tensor, "is_pinned", lambda self, device=None: False),
        (torch.Tensor, "record_stream", lambda self, stream: mode._record_stream(self, stream)),
    ]
    found += _host_values(mode.values)
    enable_autocast = torch.set_autocast_enabled

    def set_autocast_enabled(*arguments: Any) -> None:
        enable_autocast(*arguments)
        if arguments[0] == "cuda" or len(arguments) == 1:
            mode.autocast = bool(arguments[-1])

    clear_cache = torch.clear_autocast_cache

    def clear() -> None:
        with recorder.oldest_first():
            clear_cache()

    found += [
        (torch, "clear_autocast_cache", clear),
        (torch, "set_autocast_enabled", set_autocast_enabled),
        (importlib.import_module("torch.optim.lbfgs"), "float", _float),
        (torch, "Generator", Generator),
        (torch.cuda, "default_generators", (Generator("cuda"),)),
    ]
    found += [
        (torch.backends.cudnn, "is_acceptable", lambda tensor: False),
        (torch.backends.cudnn, "version", lambda: card.cudnn),
        (torch.backends.cudnn, "is_available", lambda: True),
    ]
    return found


def _host_values(values: Any) -> List[Tuple[Any, str, Any]]:
    """Ways out of PyTorch, which a fake tensor has no bytes for."""
    real_format = torch.Tensor.__format__

    def formatted(self: Any, spec: str) -> str:
        return format(self.item(), spec) if self.dim() == 0 else real_format(self, spec)

    def item(self: Any) -> Any:
        """PyTorch's own makes a plain float of what the mode returns."""
        if self.numel() != 1:
            raise RuntimeError(
                f"a Tensor with {self.numel()} elements cannot be converted to Scalar"
            )
        return values.number(self)

    def array(self: Any, dtype: Any = None, copy: Any = None) -> Any:
        found = values.host(self)
        return found if dtype is None else found.astype(dtype)

    real_tensor = torch.tensor

    def tensor(data: Any, **options: Any) -> Any:
        """PyTorch's own reads the bytes of the tensors in a list."""
        try:
            return real_tensor(data, **options)
        except RuntimeError:
            dtypes: List[Any] = []
            numbers = _without_fakes(data, item, dtypes)
            if numbers is data:
                raise
            if options.get("dtype") is None:
                options["dtype"] = functools.reduce(torch.promote_types, dtypes)
            return real_tensor(numbers, **options)

    return [
        (torch, "tensor", tensor),
        (FakeTensor, "__format__", formatted),
        (FakeTensor, "__array__", array),
        (FakeTensor, "item", item),
        (FakeTensor, "__deepcopy__", deep_copy),
        (torch.UntypedStorage, "data_ptr", _address),
        (FakeTensor, "data_ptr", _address_of_first),
        (FakeTensor, "numpy", lambda self, *, force=False: values.host(self)),
        (FakeTensor, "tolist", lambda self: values.host(self).tolist()),
    ]


def _without_fakes(data: Any, item: Any, dtypes: List[Any]) -> Any:
    """The same lists with a number for each fake tensor, and what dtypes their elements have."""
    if isinstance(data, (list, tuple)):
        found = [_without_fakes(each, item, dtypes) for each in data]
        return data if all(new is old for new, old in zip(found, data)) else found
    fake = isinstance(data, FakeTensor)
    dtypes.append(data.dtype if fake else torch.as_tensor(data).dtype)
    return item(data) if fake else data


def deep_copy(self: Any, memo: Any) -> Any:
    """copy.deepcopy of a tensor: PyTorch's own copies what makes it a fake, too."""
    if id(self) in memo:
        return memo[id(self)]
    if not self.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
            "protocol at the moment."
        )
    with torch.no_grad():
        found = self.detach().clone()
    if isinstance(self, torch.nn.Parameter) and not isinstance(self, FakeTensor):
        found = torch.nn.Parameter(found, self.requires_grad)
    found.requires_grad_(self.requires_grad)
    memo[id(self)] = found
    if self.grad is not None:
        found.grad = copy.deepcopy(self.grad, memo)
    for name, value in vars(self).items():
        if name == "_is_param" or name not in vars(found):
            setattr(found, name, copy.deepcopy(value, memo))
    return found


def _float(value: Any) -> Any:
    """float(), which PyTorch's LBFGS calls: a number that is not known stays one."""
    return value.item() if isinstance(value, FakeTensor) else float(value)


_real_address = torch.UntypedStorage.data_ptr


def _address(storage: Any) -> int:
    """An address that no other storage has."""
    return int(storage._cdata if storage.device.type == "meta" else _real_address(storage))


def _address_of_first(tensor: Any) -> int:
    offset: int = tensor.storage_offset() * tensor.element_size()
    return _address(tensor.untyped_storage()) + offset


def _synchronize(recorder: Any) -> Any:
    return lambda *_, **__: recorder.complete_frees()
