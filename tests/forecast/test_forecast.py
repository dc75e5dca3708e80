"""Forecasts of small programs whose memory is known, and of bad input."""

import json
import os
import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn

import tenon

MIB = 1 << 20


def linear(rows=256, amp=False, device="cuda"):
    """Two steps of a layer of 1024 × 1024."""
    model = nn.Sequential(*(nn.Linear(1024, 1024, bias=False) for _ in range(4))).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        x = torch.randn(rows, 1024, device=device)
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=amp):
            loss = model(x).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def live(forecast):
    assert forecast.problem is None, forecast.problem
    return forecast.live_peak_bytes


def test_counted_by_hand():
    # Backward of the first layer: 4 weights of 4 MiB, 4 gradients, two workspaces of 32 MiB, the
    # input, the gradient of its result; SGD adds nothing.
    found = live(tenon.forecast(linear))
    assert 2 * 16 * MIB + 64 * MIB <= found <= 2 * 16 * MIB + 64 * MIB + 5 * MIB


def test_workspace_depends_on_the_card():
    older = live(tenon.forecast(linear, card="A100"))
    newer = live(tenon.forecast(linear, card="H100"))
    assert newer - older == 2 * (32 * MIB - 8_519_680)


def test_autocast_keeps_copies_of_weights():
    def model_only(amp):
        model = nn.Linear(4096, 4096, bias=False, device="cuda")
        x = torch.randn(1, 4096, device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=amp):
            model(x)
            model(x)

    plain = live(tenon.forecast(model_only, False))
    cast = live(tenon.forecast(model_only, True))
    assert 32 * MIB <= cast - plain < 33 * MIB  # one copy, whatever the number of calls


def test_checkpoints_save_activations():
    def chain(segments):
        x = torch.randn(MIB, device="cuda", requires_grad=True)
        layers = nn.Sequential(*(nn.GELU() for _ in range(16)))
        checkpoint = torch.utils.checkpoint.checkpoint_sequential
        (
            checkpoint(layers, segments, x, use_reentrant=False) if segments else layers(x)
        ).sum().backward()

    plain, checked = live(tenon.forecast(chain, 0)), live(tenon.forecast(chain, 4))
    assert plain >= 17 * 4 * MIB and checked <= 11 * 4 * MIB


def test_the_same_trace_twice(tmp_path):
    texts = []
    for number in range(2):
        path = tmp_path / f"{number}.csv"
        tenon.forecast(linear, amp=True).recording.save(path)
        texts.append(path.read_bytes())
    assert texts[0] == texts[1]


def test_the_same_trace_in_two_processes(tmp_path):
    """Autocast's copies of biases end in the order of their addresses' hashes."""
    text = """
        import torch
        from torch import nn
        model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(32))).cuda()
        with torch.autocast("cuda"): loss = model(torch.ones(8, 64, device="cuda")).sum()
        loss.backward()
    """
    for number in range(3):
        assert not run(tmp_path, text, options=["--save", f"{number}.csv"]).returncode
    assert len({(tmp_path / f"{number}.csv").read_bytes() for number in range(3)}) == 1


def test_generators_of_the_card():
    def draw():
        generator = torch.Generator(device="cuda").manual_seed(1)
        assert generator.device.type == "cuda" and isinstance(generator, torch.Generator)
        assert torch.Generator().device.type == "cpu" and torch.cuda.default_generators
        same = torch.rand(4, device="cuda", generator=generator)
        assert same.is_cuda and torch.randperm(9, device="cuda", generator=generator).shape == (9,)
        torch.nn.init.normal_(torch.empty(MIB, device="cuda"), generator=generator)

    assert live(tenon.forecast(draw)) == 4 * MIB + 16
    assert live(tenon.forecast(draw, real="always")) == 4 * MIB + 16
    assert torch.Generator is torch._C.Generator


def test_other_answers_apply():
    forecast = tenon.forecast(linear)
    explained = forecast.recording.explain().text
    assert "live peak" in explained.lower() and "tenon-forecast-" not in explained
    assert forecast.figures()["default"]["reserved_peak_bytes"] >= forecast.live_peak_bytes
    assert forecast.recording.plan()["peak_bytes"] >= forecast.live_peak_bytes
    frames = [
        frame
        for site in forecast.recording.devices[0].blocks["site"]
        for frame in forecast.recording.devices[0].stack(site)
    ]
    assert any(frame.file == __file__ for frame in frames)


def test_attention_keeps_no_scores_where_a_kernel_does_not():
    def attend(dtype):
        parts = [torch.randn(1, 8, 4096, 64, device="cuda", dtype=dtype) for _ in range(3)]
        nn.functional.scaled_dot_product_attention(*parts)

    scores = 8 * 4096 * 4096
    assert live(tenon.forecast(attend, torch.bfloat16)) < scores * 2
    assert live(tenon.forecast(attend, torch.float64)) > scores * 8


def test_numbers_that_are_known_are_read():
    def read():
        count = torch.arange(10, device="cuda")
        assert int((count > 6).sum()) == 3
        assert torch.nonzero(count > 6).shape == (3, 1)
        assert count.float().mean().item() == 4.5
        torch.empty(int(count.sum().item()) * MIB, dtype=torch.uint8, device="cuda")

    assert live(tenon.forecast(read)) // MIB == 45


def test_torch_is_as_before():
    linear_before = torch.cuda.is_available, torch.cuda.Stream, torch.save, open, os.remove
    tenon.forecast(linear)
    assert linear_before == (
        torch.cuda.is_available,
        torch.cuda.Stream,
        torch.save,
        open,
        os.remove,
    )
    assert not torch.cuda.is_available()
    x = torch.ones(3, requires_grad=True)
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_defaults_are_as_before():
    def changes():
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("cuda")
        torch.set_grad_enabled(False)
        torch.set_float32_matmul_precision("medium")
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.set_num_threads(1)
        torch.manual_seed(7)
        assert torch.zeros(4).device.type == "cuda"

    threads, state = torch.get_num_threads(), torch.get_rng_state()
    for _ in range(2):
        tenon.forecast(changes)
        assert torch.zeros(4).dtype == torch.float32
        assert torch.zeros(4).device.type == "cpu"
        assert torch.is_grad_enabled()
        assert torch.get_float32_matmul_precision() == "highest"
        assert not torch.are_deterministic_algorithms_enabled()
        assert not torch.is_deterministic_algorithms_warn_only_enabled()
        assert not torch.backends.cudnn.benchmark and torch.backends.cudnn.allow_tf32
        assert not torch.backends.cuda.matmul.allow_tf32
        assert torch.get_num_threads() == threads
        assert torch.equal(torch.get_rng_state(), state)


def run(tmp_path, text, *arguments, options=()):
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(text))
    return subprocess.run(
        [sys.executable, "-m", "tenon.forecast", *options, "train.py", "--", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_termination_keeps_the_answer(tmp_path):
    lines = ("import signal, torch", "x = torch.ones(1 << 20, device='cuda')",
             "signal.raise_signal(signal.SIGTERM)")
    done = run(tmp_path, "\n".join(lines))
    assert done.returncode == 1
    assert "live peak" in done.stdout and " 4 MiB" in done.stdout
    assert "train.py:3: it was interrupted" in done.stdout


LOOP = """
    import sys, torch
    layer = torch.nn.Linear(1024, 1024).cuda()
    optimizer = torch.optim.Adam(layer.parameters())
    for step in range(1000000):
        layer(torch.randn(int(sys.argv[1]), 1024, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def test_script_with_arguments_stops_after_three_steps(tmp_path):
    done = run(tmp_path, LOOP, "4096", options=["--json"])
    answer = json.loads(done.stdout)
    assert done.returncode == 0 and answer["steps"] == 3 and answer["problem"] is None
    assert answer["live_peak_bytes"] > 4096 * 1024 * 4


@pytest.mark.parametrize(
    "text, line, word",
    [
        (
            "import torch\nx = torch.ones(9, device='cuda')\nraise ValueError('my own')\n",
            3,
            "my own",
        ),
        ("import torch\nx = torch.ones(9, device='cuda')\nopen('missing.bin')\n", 3, "missing.bin"),
        (
            "import torch\nx = torch.ones(9, device='cuda')\nimport os\nos.fork()\n",
            4,
            "one process",
        ),
        (
            "import torch\nx = torch.ones(9, device='cuda')\nimport sys\nsys.exit(3)\n",
            4,
            "exited with 3",
        ),
        (
            (
                "import torch\nx = torch.ones(9, device='cuda')\nimport multiprocessing as m\n"
                "m.Process(target=print).start()\n"
            ),
            4,
            "starts a process",
        ),
        (
            (
                "import torch\nx = torch.ones(9, device='cuda')\nimport signal\n"
                # a shell's background job would ignore it
                "signal.signal(signal.SIGINT, signal.default_int_handler); "
                "signal.raise_signal(signal.SIGINT)\n"
            ),
            4,
            "was interrupted",
        ),
        (
            "import torch\nx = torch.ones(9, device='cuda')\nx.view(3, 3).to_sparse_csr()\n",
            3,
            "_to_sparse_csr.default has no fake",
        ),
        *[
            (
                f"import torch\nx = torch.ones(9, device='cuda')\nimport os, subprocess\n{call}\n",
                4,
                "starts a process",
            )
            for call in (
                "os.system('true')",
                "os.posix_spawn('/bin/true', ['true'], {})",
                "subprocess.Popen('true')",
                "subprocess.run(['true'])",
            )
        ],
    ],
)
def test_what_ends_a_script(tmp_path, text, line, word):
    done = run(tmp_path, text, options=["--json"])
    answer = json.loads(done.stdout)
    assert done.returncode == 1
    assert f"train.py:{line}: " in answer["problem"] and word in answer["problem"]
    assert answer["live_peak_bytes"] == 36  # the part that ran


def test_an_explanation_names_the_script(tmp_path):
    done = run(tmp_path, LOOP, "64", options=["--explain"])
    assert done.returncode == 0 and "\nDevice 0 (train): " in done.stdout
    assert "tenon-forecast-" not in done.stdout


def test_a_crash_names_the_line(tmp_path):
    text = "import ctypes, torch\nx = torch.ones(9, device='cuda')\nctypes.string_at(0)\n"
    done = run(tmp_path, text)
    assert done.returncode < 0 and 'train.py", line 3' in done.stderr


def test_an_endless_script_ends(tmp_path):
    done = run(
        tmp_path,
        "import torch\nx = torch.ones(9, device='cuda')\nwhile True: pass\n",
        options=["--json", "--time-limit", "3"],
    )
    assert done.returncode == 1 and "3 s" in json.loads(done.stdout)["problem"]


def test_nothing_is_written_over(tmp_path):
    (tmp_path / "model.pt").write_text("mine")
    (tmp_path / "log.txt").write_text("mine")
    done = run(
        tmp_path,
        """
        import os, torch
        x = torch.ones(9, device="cuda")
        torch.save({}, "model.pt")
        with open("log.txt", "w") as out: out.write("other")
        assert open("log.txt").read() == "other"
        os.remove("log.txt")
    """,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "model.pt").read_text() == "mine"
    assert (tmp_path / "log.txt").read_text() == "mine"


def test_devices_are_no_files(tmp_path):
    done = run(
        tmp_path,
        """
        import os, torch
        x = torch.ones(9, device="cuda")
        os.write(os.open(os.devnull, os.O_RDWR), b"nothing")
        with open("/dev/stderr", "w") as out: out.write("heard")
    """,
    )
    assert done.returncode == 0 and "heard" in done.stderr, done.stdout + done.stderr
    assert "files" not in done.stdout


def test_bad_use(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tenon.forecast", str(tmp_path / "none.py")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "none.py" in done.stderr
    done = run(tmp_path, "import torch; torch.ones(9).cuda()", options=["--save", "no/where.csv"])
    assert done.returncode == 2 and "36 B" in done.stdout
    assert done.stderr.count("\n") == 1 and "no/where.csv" in done.stderr
    with pytest.raises(tenon.forecast.ForecastError, match="card"):
        tenon.forecast(linear, card="Voodoo")


def test_no_torch_is_one_line(tmp_path):
    (tmp_path / "train.py").write_text("")
    blocked = (
        "import sys, importlib.util as u; f = u.find_spec\n"
        "u.find_spec = lambda n, *a: None if n == 'torch' else f(n, *a)\n"
        "import tenon.forecast.__main__ as m; sys.exit(m.main(['train.py']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", blocked], cwd=tmp_path, capture_output=True, text=True
    )
    assert (
        done.returncode == 2 and done.stderr.count("\n") == 1 and "pip install torch" in done.stderr
    )


def test_recurrent_layers_and_formats():
    def train():
        layer = nn.LSTM(64, 128, 2, batch_first=True).cuda()
        found = layer(torch.randn(8, 100, 64, device="cuda"))[0]
        loss = found.square().mean()
        loss.backward()
        assert f"{loss:.2f}" == "0.00" and loss.cpu().numpy() == 0
        assert layer.weight_ih_l0.grad.shape == (512, 64)

    assert live(tenon.forecast(train)) > 2 * 8 * 100 * 128 * 4 * 5


def test_reductions_split_over_blocks():
    # A sum over 31,714 rows of 256 columns: 496 blocks share an output, each of 128 partial
    # results.
    from tenon.forecast import _reduce

    assert _reduce.scratch(torch.empty(31714, 256), [0], 4, 132) == [65_011_712, 8]
    assert _reduce.scratch(torch.empty(4096, 4096), [1], 4, 132) == []


@pytest.mark.parametrize("how", ["global", "argument"])
def test_fit_finds_the_largest(tmp_path, how):
    number = "batch_size = 4" if how == "global" else "import sys; batch_size = int(sys.argv[2])"
    (tmp_path / "train.py").write_text(textwrap.dedent(f"""
        import torch
        {number}
        layers = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(4))).cuda()
        optimizer = torch.optim.Adam(layers.parameters())
        while True:
            layers(torch.randn(batch_size * 1024, 1024, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    """))
    behind = ["--", "--batch", "{}"] if how == "argument" else []
    done = subprocess.run(
        [sys.executable, "-m", "tenon.fit", "train.py", "--capacity", "512MiB", *behind],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = int(done.stdout.split()[2])
    for value, fits in ((found, True), (found + 1, False)):
        text = (tmp_path / "train.py").read_text().replace("int(sys.argv[2])", str(value))
        (tmp_path / "one.py").write_text(text.replace("batch_size = 4", f"batch_size = {value}"))
        forecast = tenon.forecast.forecast_script(str(tmp_path / "one.py"))
        assert forecast.fits(512 * MIB) is fits
    for name in ("as it is", "expandable", "bf16", "checkpoints", "accumulated", "on the host"):
        assert name in done.stdout


def test_fit_tries_multiples(tmp_path):
    (tmp_path / "train.py").write_text(textwrap.dedent("""
        import torch
        batch_size = 4
        assert batch_size % 4 == 0, "batches of four"
        layer = torch.nn.Linear(1024, 1024).cuda()
        optimizer = torch.optim.SGD(layer.parameters())
        for _ in range(3):
            layer(torch.randn(batch_size * 1024, 1024, device="cuda")).sum().backward()
            optimizer.step()
    """))

    def fit(*options):
        command = [sys.executable, "-m", "tenon.fit", "train.py", "--capacity", "512MiB", *options]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)

    plain = fit()
    assert plain.returncode == 2 and "batch_size=1: " in plain.stderr
    assert "batches of four" in plain.stderr and "--multiple-of" in plain.stderr
    done = fit("--multiple-of", "4")
    assert done.returncode == 0, done.stderr
    found = int(done.stdout.split()[2])
    assert "the largest multiple of 4 that fits" in done.stdout and found % 4 == 0
    assert f"; {found + 4} does not" in done.stdout
    assert fit("--multiple-of", "0").stderr == "tenon.fit: --multiple-of 0: give 1 or more\n"


def test_fit_says_what_it_cannot_vary(tmp_path):
    (tmp_path / "train.py").write_text("import torch\ntorch.ones(9, device='cuda')\n")
    done = subprocess.run(
        [sys.executable, "-m", "tenon.fit", "train.py", "--capacity", "1GiB"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and "batch_size" in done.stderr and done.stderr.count("\n") == 1
