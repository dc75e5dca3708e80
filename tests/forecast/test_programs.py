"""Scripts as they are written: files, handlers, compiled code, libraries' trainers."""

import json
import textwrap

import numpy as np
import pytest
import torch
from test_forecast import MIB, live, run

import tenon

HEAD = """
    import io, os, sqlite3, torch
    from torch import nn
    layer = nn.Linear(64, 64).cuda()
    optimizer = torch.optim.Adam(layer.parameters())
    layer(torch.ones(2, 64, device="cuda")).sum().backward()
    optimizer.step()
"""


def passes(tmp_path, text, *options):
    done = run(tmp_path, text, options=["--json", "--steps", "0", *options])
    answer = json.loads(done.stdout)
    assert done.returncode == 0 and answer["problem"] is None, (answer, done.stderr)
    return answer


def test_what_is_saved_can_be_loaded(tmp_path):
    torch.save({"w": torch.ones(5)}, tmp_path / "own.pt")
    before = sorted(path.name for path in tmp_path.iterdir())
    passes(
        tmp_path,
        HEAD
        + """
    torch.save({"model": layer.state_dict(), "optimizer": optimizer.state_dict(), "n": 3}, "a.pt")
    assert os.path.exists("a.pt")
    state = torch.load("a.pt", map_location="cpu", weights_only=True)
    assert state["model"]["weight"].device.type == "cpu" and state["n"] == 3
    layer.load_state_dict(state["model"]); optimizer.load_state_dict(state["optimizer"])
    assert torch.load("a.pt")["model"]["weight"].is_cuda
    torch.save(layer, "whole.pt")
    assert torch.load("whole.pt", weights_only=False)(torch.ones(2, 64).cuda()).shape == (2, 64)
    buffer = io.BytesIO(); torch.save(torch.get_rng_state(), buffer); buffer.seek(0)
    assert torch.load(buffer).numel() == torch.get_rng_state().numel()
    os.makedirs("runs/1"); os.replace("a.pt", "runs/1/b.pt")
    assert os.listdir("runs/1") == ["b.pt"] and not os.path.exists("a.pt")
    assert [entry.name for entry in os.scandir("runs/1")] == ["b.pt"]
    os.remove("own.pt"); assert not os.path.exists("own.pt")
    """,
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*before, "train.py"])


def test_files_of_the_user_are_read(tmp_path):
    torch.save({"w": torch.ones(5)}, tmp_path / "own.pt")
    safetensors = pytest.importorskip("safetensors.torch")
    safetensors.save_file({"w": torch.ones(5)}, tmp_path / "own.safetensors")
    kept = (tmp_path / "own.safetensors").read_bytes()
    passes(
        tmp_path,
        HEAD
        + """
    assert torch.load("own.pt", map_location="cuda")["w"].shape == (5,)
    from safetensors.torch import load_file, save_file
    assert load_file("own.safetensors")["w"].sum().item() == 5
    save_file(layer.state_dict(), "own.safetensors", {"format": "pt"})
    assert load_file("own.safetensors")["weight"].shape == (64, 64)
    from safetensors import safe_open
    with safe_open("own.safetensors", "pt", device="cuda") as opened:
        assert opened.metadata() == {"format": "pt"} and opened.get_tensor("bias").is_cuda
        assert opened.get_slice("weight")[:2].is_cuda
    assert load_file("own.safetensors", device="cuda")["bias"].is_cuda
    layer.load_state_dict(load_file("own.safetensors"))
    """,
    )
    assert (tmp_path / "own.safetensors").read_bytes() == kept


def test_a_data_base_is_left_as_it_is(tmp_path):
    import sqlite3

    with sqlite3.connect(tmp_path / "log.db") as base:
        base.execute("create table log (value)")
    kept = (tmp_path / "log.db").read_bytes()
    passes(
        tmp_path,
        HEAD
        + """
    with sqlite3.connect("log.db") as base:
        base.execute("insert into log values (1)")
        assert base.execute("select count(*) from log").fetchone() == (1,)
    base = sqlite3.connect(f"file:{os.path.abspath('log.db')}?mode=rwc", uri=True)
    from sqlite3 import dbapi2
    for base in (base, dbapi2.connect("log.db")):
        with base:
            base.execute("insert into log values (1)")
    assert base.execute("select count(*) from log").fetchone() == (3,)
    assert sqlite3.connect("file:other?mode=memory", uri=True).execute("select 1").fetchone()
    """,
    )
    assert (tmp_path / "log.db").read_bytes() == kept


def test_copies_and_archives_lie_elsewhere(tmp_path):
    (tmp_path / "best.pt").write_text("mine")
    (tmp_path / "all.tar").write_text("mine")
    (tmp_path / "all.bz2").write_text("mine")
    passes(
        tmp_path,
        HEAD
        + """
    import bz2, shutil, tarfile
    torch.save(layer.state_dict(), "last.pt")
    shutil.copy2("last.pt", "best.pt")
    assert os.access("last.pt", os.R_OK) and not os.access("none.pt", os.R_OK)
    assert torch.load("best.pt")["weight"].shape == (64, 64)
    shutil.move("last.pt", "moved.pt"); assert not os.path.exists("last.pt")
    with tarfile.open("all.tar", "w") as archive: archive.add("train.py")
    with bz2.open("all.bz2", "w") as out: out.write(b"other")
    number = os.open("best.pt", os.O_RDONLY); os.close(number)
    """,
    )
    for name in ("best.pt", "all.tar", "all.bz2"):
        assert (tmp_path / name).read_text() == "mine"


def test_handlers_in_modules_do_not_keep_the_end(tmp_path):
    (tmp_path / "own.py").write_text(textwrap.dedent("""
        import torch
        def train():
            layer = torch.nn.Linear(8, 8).cuda()
            optimizer = torch.optim.SGD(layer.parameters(), 0.1)
            while True:
                try:
                    layer(torch.ones(2, 8, device="cuda")).sum().backward()
                    optimizer.step()
                except:
                    pass
    """))
    done = run(tmp_path, "import own\nown.train()\n", options=["--json", "--time-limit", "60"])
    assert json.loads(done.stdout)["steps"] == 3 and done.returncode == 0
    assert not (tmp_path / "__pycache__").exists()


@pytest.mark.parametrize("clause", ["except:", "except BaseException as error:"])
def test_handlers_do_not_keep_the_end(tmp_path, clause):
    done = run(
        tmp_path,
        f"""
        import torch
        layer = torch.nn.Linear(8, 8).cuda()
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)
        while True:
            try:
                layer(torch.ones(2, 8, device="cuda")).sum().backward()
                optimizer.step()
            {clause}
                pass
        """,
        options=["--json", "--time-limit", "60"],
    )
    assert json.loads(done.stdout)["steps"] == 3 and done.returncode == 0
    done = run(
        tmp_path,
        f"""
        import torch
        x = torch.ones(9, device="cuda")
        while True:
            try:
                while True: pass
            {clause}
                pass
        """,
        options=["--json", "--time-limit", "2"],
    )
    assert "2 s" in json.loads(done.stdout)["problem"] and done.returncode == 1


def test_compiled_code_and_graphs_run_as_they_are():
    def train():
        layer = torch.nn.Linear(1024, 1024).cuda()
        step = torch.compile(lambda x: layer(x).sum(), mode="max-autotune")

        @torch.compile(fullgraph=True)
        def double(x):
            return 2 * x

        layer.compile()
        step(double(torch.ones(4, 1024, device="cuda"))).backward()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            layer(torch.ones(4, 1024, device="cuda"))
        graph.replay()

    forecast = tenon.forecast(train)
    assert live(forecast) // MIB == 73  # weight, gradient, workspaces
    notes = " ".join(forecast.notes)
    assert "eager" in notes and "CUDA graphs" in notes


def test_torchscript_runs_as_it_is(tmp_path):
    plain = """
        import torch
        from torch import nn
        SCRIPT
        def scaled(x, factor: int):
            return x * torch.tensor(float(factor)).sqrt().to(x.dtype) + 1
        model = (nn.Sequential(nn.Linear(64, 64), nn.ReLU())).cuda()
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(3):
            loss = scaled(model(torch.randn(256, 64).cuda()), 4).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        """
    scripted = plain.replace("SCRIPT", "@torch.jit.script").replace("(nn.Seq", "torch.jit.script(nn.Seq")
    scripted += "    model.save('model.pt')\n"
    answers = [passes(tmp_path, text) for text in (plain.replace("SCRIPT", ""), scripted)]
    assert answers[0]["live_peak_bytes"] == answers[1]["live_peak_bytes"]
    assert any("torch.jit" in note for note in answers[1]["notes"])
    assert not (tmp_path / "model.pt").exists()


@torch.jit.script
def _compiled_before(x):
    return torch.where(x.abs() <= 4, x, torch.sign(x) * x.abs() + 1)


def test_torchscript_of_the_caller_is_not_fused():
    def train():
        weight = torch.nn.Parameter(torch.zeros(64, 64, device="cuda"))
        optimizer = torch.optim.SGD([weight])
        for _ in range(5):
            _compiled_before(weight).sum().backward()
            optimizer.step()

    fuses = torch._C._jit_texpr_fuser_enabled()
    forecast = tenon.forecast(train, steps=0)
    assert forecast.problem is None and torch._C._jit_texpr_fuser_enabled() == fuses


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_grouped_products_of_every_float(dtype):
    def multiply():
        rows = torch.randn(64, 32, device="cuda", dtype=dtype, requires_grad=True)
        weights = torch.randn(4, 32, 16, device="cuda", dtype=dtype, requires_grad=True)
        ends = torch.arange(16, 65, 16, device="cuda", dtype=torch.int32)
        result = torch._grouped_mm(rows, weights, offs=ends)
        result.backward(torch.ones_like(result))
        shapes.append((result.shape, rows.grad.shape, weights.grad.shape))

    shapes = []
    forecast = tenon.forecast(multiply)
    assert forecast.problem is None and shapes == [((64, 16), (64, 32), (4, 32, 16))]


def test_workers_of_a_loader_by_place(tmp_path):
    passes(
        tmp_path,
        HEAD
        + """
    from torch.utils.data import DataLoader, TensorDataset
    loader = DataLoader(TensorDataset(torch.ones(64, 8)), 16, True, None, None, 4)
    assert sum(x.cuda().shape[0] for (x,) in loader) == 64
    import inspect
    assert "batch_size" in inspect.signature(DataLoader.__init__).parameters
    """,
    )


def test_a_copy_of_a_model_and_of_a_number():
    def average():
        import copy

        model = torch.nn.Linear(1024, 1024, bias=False).cuda()
        mean = copy.deepcopy(model)
        assert mean.weight is not model.weight and mean.weight.requires_grad
        number = copy.deepcopy(torch.tensor(2.0))
        assert (number + 1).item() == 3

    assert live(tenon.forecast(average)) == 8 * MIB


def test_types_of_the_card_make_and_convert_tensors():
    def program():
        kind = torch.cuda.FloatTensor
        made = kind(1024, 1024)
        assert made.device.type == "cuda" and made.dtype is torch.float32
        assert isinstance(made, kind) and not isinstance(made, torch.cuda.LongTensor)
        assert not isinstance(torch.zeros(2), kind) and made.type() == "torch.cuda.FloatTensor"
        filled = kind(np.zeros((1024, 512)))
        assert filled.shape == (1024, 512) and filled.dtype is torch.float32
        assert kind([1.0, 2.0]).tolist() == [1.0, 2.0] and kind(made.size()).shape == made.shape
        labels = torch.zeros(256, 256, dtype=torch.uint8).type(torch.cuda.LongTensor)
        assert isinstance(labels, torch.cuda.LongTensor)
        assert labels.type("torch.FloatTensor").device.type == "cpu"
        assert labels.type("torch.cuda.HalfTensor").dtype is torch.float16
        assert made.type(kind) is made and torch.zeros(2).type(torch.int64).dtype is torch.int64

    real = torch.cuda.FloatTensor, torch.Tensor.type
    found = tenon.forecast(program)
    assert live(found) >= 4 * MIB + 2 * MIB + 8 * 256 * 256
    assert real == (torch.cuda.FloatTensor, torch.Tensor.type)


def test_a_default_type_of_the_card(tmp_path):
    text = """
        import torch
        torch.set_default_tensor_type("torch.cuda.DoubleTensor")
        x = torch.zeros(512, 1024)
        assert x.is_cuda and x.dtype is torch.float64
        y, z = torch.Tensor([1, 2]), torch.Tensor(3, 4)
        assert y.is_cuda and z.is_cuda and z.shape == (3, 4) and torch.cat([y, z[0]]).is_cuda
        assert isinstance(torch.nn.Parameter(y), torch.nn.Parameter)
        torch.set_default_tensor_type("torch.FloatTensor")
        assert not torch.Tensor([1]).is_cuda and not torch.ones(1).is_cuda
    """
    assert passes(tmp_path, text)["live_peak_bytes"] == 4 * MIB + 16 + 96 + 48  # y, z and both


def test_nested_tensors_are_named():
    def ask():
        parts = [torch.ones(3, 4), torch.ones(5, 4)]
        torch.nested.nested_tensor(parts, layout=torch.jagged, device="cuda")

    assert "nested tensors have no fakes" in tenon.forecast(ask).problem


def test_a_tensor_that_no_card_has():
    def ask():
        torch.ones(9, device="cuda")
        torch.empty(1 << 50, device="cuda")

    assert "4,503,599,627,370,496 bytes" in tenon.forecast(ask).problem


def test_a_script_without_cuda_is_one_line(tmp_path):
    done = run(tmp_path, "import torch\ntorch.ones(9)\n")
    assert done.returncode == 2 and "allocates nothing" in done.stderr


def test_generation_to_its_longest():
    transformers = pytest.importorskip("transformers")

    def generate():
        config = transformers.GPT2Config(n_layer=2, n_embd=256, n_head=2, vocab_size=100)
        model = transformers.GPT2LMHeadModel(config).cuda().eval()
        prompt = torch.ones(64, 8, dtype=torch.long, device="cuda")
        found = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=64, pad_token_id=0
        )
        lengths.append(found.shape[1])

    lengths = []
    forecast = tenon.forecast(generate)
    assert forecast.problem is None and max(lengths) == 72
    assert forecast.live_peak_bytes == max(forecast.live_peak_range)


def test_a_trainer_of_transformers(tmp_path):
    pytest.importorskip("accelerate")
    answer = passes(
        tmp_path,
        """
        import torch
        from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
        class Data(torch.utils.data.Dataset):
            def __len__(self): return 16
            def __getitem__(self, place):
                x = torch.randint(0, 100, (32,))
                return {"input_ids": x, "labels": x, "attention_mask": torch.ones_like(x)}
        model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=64, n_head=2, vocab_size=100))
        options = TrainingArguments(
            output_dir="out", per_device_train_batch_size=4, max_steps=2, save_steps=1,
            save_total_limit=1, eval_strategy="steps", eval_steps=1, bf16=True, report_to=[],
            gradient_checkpointing=True, load_best_model_at_end=False,
        )
        trainer = Trainer(model=model, args=options, train_dataset=Data(), eval_dataset=Data())
        trainer.train()
        trainer.save_model("out/last")
        """,
    )
    assert answer["steps"] == 2 and not (tmp_path / "out").exists()


def test_a_trainer_of_lightning(tmp_path):
    pytest.importorskip("lightning")
    answer = passes(
        tmp_path,
        """
        import lightning, torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset
        class Module(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.net = nn.Linear(8, 2)
            def training_step(self, batch, place):
                loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
                self.log("loss", loss, prog_bar=True)
                return loss
            validation_step = training_step
            def configure_optimizers(self):
                return torch.optim.AdamW(self.parameters())
        data = TensorDataset(torch.randn(32, 8), torch.randint(0, 2, (32,)))
        trainer = lightning.Trainer(max_epochs=1, accelerator="gpu", devices=1, logger=False)
        trainer.fit(Module(), DataLoader(data, 8), DataLoader(data, 8))
        """,
    )
    assert answer["steps"] == 4 and not (tmp_path / "checkpoints").exists()
