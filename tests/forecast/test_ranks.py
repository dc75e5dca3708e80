"""Programs of several processes: what one of them takes."""

import pytest
import torch
from test_forecast import MIB, live, run
from torch import nn

import tenon

LAYERS, WIDTH = 8, 1024
PARAMETERS = LAYERS * WIDTH * WIDTH * 4  # bytes
WORKSPACES = 2 * 32 * MIB  # cuBLAS, forward and backward


def train(wrap=lambda model: model, steps=2):
    torch.distributed.init_process_group("nccl")
    rank = torch.distributed.get_rank()
    assert rank == 0 and torch.cuda.device_count() == torch.distributed.get_world_size() == 8
    layers = (nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), nn.ReLU()) for _ in range(LAYERS))
    model = wrap(nn.Sequential(*layers).to(rank))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
    for _ in range(steps):
        loss = model(torch.randn(8, WIDTH, device=rank)).sum()
        loss.backward()
        torch.distributed.all_reduce(loss.detach())
        optimizer.step()
        optimizer.zero_grad()
    found = [None] * 8
    torch.distributed.all_gather_object(found, {"loss": 1})
    assert found == [{"loss": 1}] * 8
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def ddp(**options):
    return lambda model: nn.parallel.DistributedDataParallel(model, device_ids=[0], **options)


def close(found, expected):
    """Activations are half a MiB; what else is small."""
    assert 0 <= found - expected < 2 * MIB, (found - expected) / MIB


def test_buckets_of_ddp():
    # Weights, momentum, gradients, and buckets as large as the gradients.
    close(live(tenon.forecast(train, ddp(), ranks=8)), 4 * PARAMETERS + WORKSPACES)


def test_gradients_that_are_views_of_buckets():
    forecast = tenon.forecast(train, ddp(gradient_as_bucket_view=True), ranks=8)
    # One gradient is in its own memory until it is copied into its bucket.
    close(live(forecast), 3 * PARAMETERS + PARAMETERS // LAYERS + WORKSPACES)


def test_buckets_are_rebuilt_in_sizes_of_the_cap():
    forecast = tenon.forecast(train, ddp(bucket_cap_mb=8), ranks=8)
    sizes = [int(size) for size in forecast.recording.devices[0].blocks["size_bytes"]]
    assert sizes.count(8 * MIB) == LAYERS // 2


def test_accumulation_without_communication():
    def accumulate():
        torch.distributed.init_process_group("nccl")
        model = nn.parallel.DistributedDataParallel(nn.Linear(WIDTH, WIDTH).cuda())
        with model.no_sync():
            model(torch.randn(8, WIDTH, device="cuda")).sum().backward()
        model(torch.randn(8, WIDTH, device="cuda")).sum().backward()

    live(tenon.forecast(accumulate, ranks=2))


def fully_sharded(**options):
    def wrap(model):
        from torch.distributed.fsdp import fully_shard

        for layer in model:
            fully_shard(layer, **options)
        return fully_shard(model, **options)

    return wrap


def test_fsdp2_keeps_an_eighth():
    found = live(tenon.forecast(train, fully_sharded(), ranks=8))
    one = PARAMETERS // LAYERS
    shares = 3 * PARAMETERS // 8  # weights, momentum, gradients
    # Backward has two layers gathered (prefetch), each with its copy out, and one gradient.
    assert shares + WORKSPACES + 2 * one < found < shares + WORKSPACES + 8 * one
    kept = live(tenon.forecast(train, fully_sharded(reshard_after_forward=False), ranks=8))
    assert kept > found + PARAMETERS // 2


def plain(steps=2):
    layers = (nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), nn.ReLU()) for _ in range(LAYERS))
    model = nn.Sequential(*layers).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
    for _ in range(steps):
        model(torch.randn(8, WIDTH, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        assert all(param.grad is None for param in model.parameters())


@pytest.mark.parametrize(
    "shard, wrap",
    [("ddp", ddp()), ("zero2", fully_sharded(reshard_after_forward=False)),
     ("zero3", fully_sharded())],
)
def test_a_plain_program_sharded_is_the_program_that_shards_itself(shard, wrap):
    ours, theirs = tenon.forecast(plain, ranks=8, shard=shard), tenon.forecast(train, wrap, ranks=8)
    assert abs(live(ours) - live(theirs)) < MIB // 8


def test_a_share_of_the_state_can_go_to_the_host():
    forecast = tenon.forecast(plain, ranks=8, shard="zero3")
    moved = forecast.without_optimizer_state().devices[0].live_peak_bytes
    assert live(forecast) - moved == PARAMETERS // 8


def test_zero1_has_an_eighth_of_the_state():
    close(
        live(tenon.forecast(plain, ranks=8, shard="zero1")),
        3 * PARAMETERS + PARAMETERS // 8 + WORKSPACES,
    )


def test_spawned_processes(tmp_path):
    done = run(
        tmp_path,
        """
        import os, torch, torch.distributed as dist, torch.multiprocessing as mp
        def main(rank, count, text):
            assert (rank, count, text) == (0, 4, "x")
            os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="12355")
            dist.init_process_group("nccl", rank=rank, world_size=count)
            layer = torch.nn.SyncBatchNorm(16).cuda()
            model = torch.nn.parallel.DistributedDataParallel(layer, device_ids=[rank])
            model(torch.randn(8, 16, 32, 32, device=rank)).sum().backward()
        if __name__ == "__main__":
            mp.spawn(main, args=(4, "x"), nprocs=4)
        """,
    )
    assert done.returncode == 0 and "rank 0 of 4" in done.stdout, done.stdout + done.stderr


def test_bad_use():
    assert "give ranks" in tenon.forecast(lambda: (torch.ones(9, device="cuda"), train())).problem
    with pytest.raises(tenon.forecast.ForecastError, match="shard needs ranks"):
        tenon.forecast(plain, shard="zero3")
    assert "give no shard" in tenon.forecast(train, ranks=8, shard="zero3").problem
    assert not torch.distributed.is_initialized()


def test_fit_for_a_rank(tmp_path):
    import subprocess
    import sys

    (tmp_path / "train.py").write_text(
        "import torch\nbatch_size = 1\n"
        "model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(4))).cuda()\n"
        "optimizer = torch.optim.Adam(model.parameters())\n"
        "while True:\n"
        "    x = torch.randn(batch_size * 4096, 512, device='cuda')\n"
        "    model(x).sum().backward(); optimizer.step(); optimizer.zero_grad()\n"
    )
    command = [sys.executable, "-m", "tenon.fit", "train.py", "--capacity", "256MiB"]
    done = subprocess.run(
        [*command, "--ranks", "4", "--shard", "zero3"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "--shard zero1" in done.stdout and "--shard zero2" in done.stdout


def test_numbers_are_the_same_on_every_rank():
    def gather():
        torch.distributed.init_process_group("nccl")
        mine = torch.tensor([3, 5], device="cuda")
        found = [torch.empty_like(mine) for _ in range(4)]
        torch.distributed.all_gather(found, mine)
        whole = torch.empty(8, dtype=mine.dtype, device="cuda")
        torch.distributed.all_gather_into_tensor(whole, mine)
        assert [part.tolist() for part in found] == [[3, 5]] * 4
        assert whole.tolist() == [3, 5] * 4

    live(tenon.forecast(gather, ranks=4))


def test_objects_by_name_and_a_distributed_checkpoint(tmp_path):
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    def save():
        dist.init_process_group("nccl")
        found = [None] * 8
        dist.gather_object(obj="mine", object_gather_list=found)
        dist.all_gather_object(object_list=found, obj="mine")
        dist.scatter_object_list(
            scatter_object_output_list=found, scatter_object_input_list=found, src=0
        )
        assert found == ["mine"] * 8
        model = nn.Linear(64, 64).cuda()
        torch.distributed.fsdp.fully_shard(model)
        for part in (dcp.save, dcp.load):
            part({"model": model.state_dict()}, checkpoint_id=str(tmp_path / "checkpoint"))

    found = tenon.forecast(save, ranks=8)
    assert found.problem is None, found.problem
    assert not (tmp_path / "checkpoint").exists()


def test_a_mesh_makes_the_group_of_tensor_parallel_layers():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    def train(width, parallel):
        model = torch.nn.Sequential(
            torch.nn.Linear(1024, width, bias=False), torch.nn.Linear(width, 1024, bias=False)
        ).cuda()
        if parallel:
            mesh = init_device_mesh("cuda", (4,))
            parallelize_module(model, mesh, {"0": ColwiseParallel(), "1": RowwiseParallel()})
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(3):
            model(torch.randn(64, 1024, device="cuda")).sum().backward()
            optimizer.step()

    parallel = live(tenon.forecast(train, 8192, True, ranks=4))
    assert parallel == pytest.approx(live(tenon.forecast(train, 2048, False)), rel=0.02)
