"""PyTorch's memory pools on Tenon, and what PyTorch's own library refuses with them."""

import warnings
import weakref

import tenon_torch


class MemPool:
    """torch.cuda.MemPool, which PyTorch does not make with a pluggable allocator.

    For torch.cuda.use_mem_pool(pool), also during a capture, and torch.cuda.graph(pool=pool). The
    pool's memory is its own, stays where it is, and goes back once the pool, the graphs that keep
    it and its tensors are gone. Raises RuntimeError for a pool with an allocator of its own, and
    for use_on_oom and no_split: a pool of Tenon's serves no other request, and splits.
    """

    def __init__(self, allocator=None, use_on_oom=False, no_split=False):
        import torch
        self._id = None
        if allocator is not None:
            raise RuntimeError(
                "torch.cuda.MemPool(allocator=...): under tenon_torch every pool is Tenon's, since "
                "PyTorch has one pluggable allocator; leave it out, or run without "
                "tenon_torch.enable()")
        for name, value in (("use_on_oom", use_on_oom), ("no_split", no_split)):
            if value:
                raise RuntimeError(f"torch.cuda.MemPool({name}=True): Tenon's pools serve no "
                                   "request from outside, and split; leave it out")
        self.device = torch.cuda.current_device()
        identity = tuple(torch.cuda.graph_pool_handle())
        retain(self.device, identity)
        self._id = identity
        self._release = torch._C._cuda_releasePool  # modules may be gone when this goes

    @property
    def id(self):
        return self._id

    @property
    def allocator(self):
        return None

    def use_count(self):
        """How many use the pool: itself, open contexts, graphs that keep it."""
        return int(tenon_torch._ask(tenon_torch._enabled(), "tenon_torch_pool_users", self.device,
                                    *self._id))

    def snapshot(self, include_traces=True):
        return [segment for segment in tenon_torch.snapshot()["segments"]
                if segment["segment_pool_id"] == self._id]

    def __del__(self):
        if self._id is not None:
            self._release(self.device, self._id)


class MemPoolContext:
    """PyTorch 2.6 and 2.7 note the pool in use by it; requests find Tenon's pools without."""

    _pools = []

    def __init__(self, pool):
        self._pools.append(pool)

    def __del__(self):
        self._pools.pop()

    @staticmethod
    def active_pool():
        return MemPoolContext._pools[-1] if MemPoolContext._pools else None


def retain(device, identity):
    tenon_torch._ask(tenon_torch._enabled(), "tenon_torch_retain_pool", device, *identity)


def take_over(torch):
    """Pools of torch.cuda are Tenon's from now on."""
    for module in (torch.cuda, torch.cuda.memory):
        for name, ours in (("MemPool", MemPool), ("MemPoolContext", MemPoolContext)):
            if hasattr(module, name):
                setattr(module, name, ours)
    if hasattr(getattr(torch.cuda, "CUDAGraph", None), "_retain_pool"):
        _let_graphs_retain(torch)
    _refuse(torch)


def _let_graphs_retain(torch):
    """A pool that is used in a capture lives as long as the graph (PyTorch 2.15)."""
    graph_class = torch.cuda.CUDAGraph
    reset, pools, release = graph_class.reset, graph_class.pools, torch._C._cuda_releasePool
    kept = weakref.WeakKeyDictionary()  # finalizers, by graph

    def retain_pool(self, pool):
        identity = tuple(getattr(pool, "id", pool) or (0, 0))
        if identity == (0, 0):
            raise RuntimeError("CUDAGraph._retain_pool: expected a memory pool other than (0, 0)")
        device = torch.cuda.current_device()
        finalizers = kept.setdefault(self, {})
        if identity not in finalizers:
            retain(device, identity)
            finalizers[identity] = weakref.finalize(self, release, device, identity)
            finalizers[identity].atexit = False

    def reset_and_release(self):
        reset(self)
        for finalizer in kept.pop(self, {}).values():
            finalizer()

    def pools_and_kept(self):
        return [*pools(self), *kept.get(self, {})]

    graph_class._retain_pool = retain_pool
    graph_class.reset, graph_class.pools = reset_and_release, pools_and_kept


def _check_live(device, pool, expected):
    """torch._C._cuda_checkPoolLiveAllocations: whether just these blocks of the pool live."""
    live = {block["address"] for segment in tenon_torch.snapshot()["segments"]
            if segment["device"] == device and segment["segment_pool_id"] == tuple(pool)
            for block in segment["blocks"] if block["state"] == "active_allocated"}
    return live == set(expected)


def _refuse(torch):
    """What needs PyTorch's own allocator is refused in one line that says what to do."""
    def refusing(what, remedy):
        def refuse(*_, **__):
            raise RuntimeError(f"tenon_torch: {what}: {remedy}")
        return refuse

    checkpoint = refusing(
        "pools cannot be checkpointed under a pluggable allocator",
        'use torch.compile without mode="reduce-overhead", or set '
        "torch._inductor.config.triton.cudagraph_trees = False")
    registration = refusing(
        "NCCL cannot register a pool under a pluggable allocator, since PyTorch tells it of "
        "segments by its own alone (attachAllocatorTraceTracker)",
        "leave register_mem_pool out, or run without tenon_torch.enable()")
    distributed = getattr(torch._C, "_distributed_c10d", None)
    for owner, name, function in (
            (torch._C, "_cuda_checkPoolLiveAllocations", _check_live),
            (torch._C, "_cuda_getCheckpointState", checkpoint),
            (torch._C, "_cuda_setCheckpointPoolState", checkpoint),
            (getattr(distributed, "ProcessGroupNCCL", None), "register_mem_pool", registration),
            (getattr(distributed, "ProcessGroupNCCL", None), "deregister_mem_pool", registration)):
        if hasattr(owner, name):
            setattr(owner, name, function)
    for name in ("_accelerator_setAllocatorSettings",
                 "_cuda_cudaCachingAllocator_set_allocator_settings"):
        if hasattr(torch._C, name):
            setattr(torch._C, name, _warning_of_settings(getattr(torch._C, name)))


def _warning_of_settings(set_settings):
    def set_and_warn(settings):
        warnings.warn("tenon_torch: allocator settings are PyTorch's own; Tenon's are the "
                      "arguments of tenon_torch.enable()", stacklevel=3)
        return set_settings(settings)
    return set_and_warn
