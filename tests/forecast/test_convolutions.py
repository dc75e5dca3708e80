"""Workspaces of convolutions: cuDNN's own answer, and the model where it cannot be asked."""

import json
import pathlib
import shutil
import subprocess
import sys

import pytest
import torch
from test_forecast import live, run
from torch import nn

import tenon
from tenon.forecast import _cudnn, _scratch

H200 = _scratch.Card("H200")


@pytest.fixture
def library(monkeypatch):
    """A cuDNN of this test's own."""
    made = _cudnn.Library()
    monkeypatch.setattr(_cudnn, "LIBRARY", made)
    yield made
    made.close()


def asked(operation, batch, channels, size, kernel, stride, padding, card=H200, **options):
    """A square convolution of `channels` (in, out)."""
    out = (size + 2 * padding - kernel) // stride + 1
    shapes = [
        (batch, channels[0], size, size),
        (batch, channels[1], out, out),
        (*channels[::-1], kernel, kernel),
    ]
    made = [torch.empty(shape, device="meta", **options) for shape in shapes]
    return _cudnn.workspace(operation, *made, [padding] * 2, [stride] * 2, [1, 1], card)


@pytest.mark.parametrize(
    "operation, shape, expected",
    [  # data/traces/multistream_prefetch.csv.zst, the first step
        ("forward", (91, (3, 64), 160, 7, 2, 3), 177087248),
        ("forward", (91, (64, 64), 40, 3, 1, 1), 74694803),
        ("forward", (91, (64, 128), 40, 3, 2, 1), 37568528),
        ("forward", (91, (64, 128), 40, 1, 2, 0), 0),
        ("weight", (91, (3, 64), 160, 7, 2, 3), 192439440),
        ("weight", (91, (64, 128), 40, 3, 2, 1), 58564752),
        ("input", (91, (64, 64), 40, 3, 1, 1), 74694803),
    ],
)
def test_a_workspace_is_the_recorded_one(library, operation, shape, expected):
    assert asked(operation, *shape) == expected


def test_partial_sums_are_those_of_the_cards_multiprocessors(library):
    recorded = 76759719
    assert asked("weight", 91, (64, 64), 40, 3, 1, 1) == pytest.approx(recorded, abs=1024)
    half = _scratch.Card("half", processors=66)
    tile = 64 * 64 * 4  # nine tiles, divided by 7 rather than by 14
    assert asked("weight", 91, (64, 64), 40, 3, 1, 1, half) == pytest.approx(
        recorded - 63 * tile, abs=1024
    )


def test_cards_take_kernels_of_their_own(library):
    shape = "forward", 91, (64, 64), 40, 3, 1, 1
    found = [
        asked(*shape, card=_scratch.Card(name, major, minor))
        for name, major, minor in (("A100", 8, 0), ("H100", 9, 0), ("V100", 7, 0))
    ]
    assert None not in found[:2] and len(set(found[:2])) == 2


def test_channels_last_in_half_precision_takes_little(library):
    options = {"dtype": torch.bfloat16, "memory_format": torch.channels_last}
    assert asked("forward", 64, (64, 64), 56, 3, 1, 1, **options) < 1 << 20


def test_single_points_are_a_product_of_matrices(library):
    for operation in ("forward", "input", "weight"):
        assert asked(operation, 8, (64, 256), 56, 1, 1, 0) == 0
    assert asked("forward", 8, (64, 256), 56, 1, 2, 0, dtype=torch.float16) > 0


@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_every_kind_of_convolution_is_asked_for(library, dimensions, transposed):
    kind = getattr(nn, f"Conv{'Transpose' * transposed}{dimensions}d")

    def train():
        layer = kind(16, 24, 3).cuda()
        x = torch.randn(4, 16, *[12] * dimensions, device="cuda", requires_grad=True)
        layer(x).square().sum().backward()

    forecast = tenon.forecast(train, card="H200")
    assert not library.missing and len(library._known) == 3
    assert None not in library._known.values()
    assert not any("cuDNN" in note for note in forecast.notes)


def test_a_depthwise_convolution_has_no_workspace(library):
    def run(groups):
        with torch.no_grad():
            weight = torch.empty(64, 64 // groups, 3, 3, device="cuda")
            nn.functional.conv2d(torch.empty(8, 64, 56, 56, device="cuda"), weight, groups=groups)

    operands = 4 * (8 * 64 * 56 * 56 + 8 * 64 * 54 * 54 + 64 * 9)
    assert live(tenon.forecast(run, 64)) == operands
    assert live(tenon.forecast(run, 32)) > 1.9 * operands


def convolve():
    with torch.no_grad():
        nn.Conv2d(64, 64, 3).cuda()(torch.empty(8, 64, 56, 56, device="cuda"))


def test_without_a_library_there_is_a_model_and_a_note(library, monkeypatch):
    monkeypatch.setattr(_cudnn.glob, "glob", lambda pattern: [])
    forecast = tenon.forecast(convolve)
    assert any("by a model" in note for note in forecast.notes)
    operands = 4 * (8 * 64 * 56 * 56 + 8 * 64 * 54 * 54 + 64 * 64 * 9)
    assert live(forecast) == 2 * operands + 256


def test_a_library_that_ends_is_done_without(library):
    assert asked("forward", 8, (64, 64), 56, 3, 1, 1)
    library._process.kill()
    library._process.wait()
    assert any("by a model" in note for note in tenon.forecast(convolve).notes)


def test_a_library_that_is_silent_is_done_without(library, monkeypatch):
    asleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 0}
    monkeypatch.setattr(_cudnn, "_start", lambda: _cudnn._Process(asleep, **pipes))
    monkeypatch.setattr(_cudnn, "_PATIENCE", 0.2)
    assert any("by a model" in note for note in tenon.forecast(convolve).notes)
    assert library.missing and library._process is None  # it is not waited for


def test_a_question_that_is_interrupted_leaves_no_answer(library, monkeypatch):
    expected = asked("forward", 8, (64, 64), 56, 3, 1, 1)
    read = library._read
    monkeypatch.setattr(library, "_read", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        asked("forward", 8, (64, 128), 56, 5, 1, 2)
    monkeypatch.setattr(library, "_read", read)
    library._known.clear()
    assert asked("forward", 8, (64, 64), 56, 3, 1, 1) == expected


def test_a_package_beside_the_script_asks_too(tmp_path):
    """As from a source tree: what is no installed library's is not the program's for that."""
    package = pathlib.Path(tenon.__file__).parent
    shutil.copytree(package, tmp_path / "tenon", ignore=shutil.ignore_patterns("__pycache__"))
    script = """
    import torch
    with torch.no_grad():
        torch.nn.Conv2d(64, 64, 3).cuda()(torch.empty(8, 64, 56, 56, device="cuda"))
    """
    answer = json.loads(run(tmp_path, script, options=["--json"]).stdout)
    assert answer["problem"] is None and not answer["notes"]
