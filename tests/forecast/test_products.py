"""Products of matrices: the workspaces of cuBLAS and cuBLASLt, and copies of operands."""

import pytest
import torch
from test_forecast import MIB, live
from torch import nn

import tenon

KIB = 1024


def product(*operands):
    """What a product takes beside its operands and its result."""

    def multiply():
        with torch.no_grad():
            made = [operand() for operand in operands]
            result = torch.addmm(*made) if len(made) == 3 else torch.matmul(*made)
            sizes.append(
                sum(part.untyped_storage().nbytes() for part in [*made, result])
            )

    sizes = []
    return live(tenon.forecast(multiply)) - sizes[-1]


def matrix(*size, **options):
    return lambda: torch.empty(*size, device="cuda", **options)


@pytest.mark.parametrize(
    "rows, inner, columns, dtype, lt",
    [
        (8, 64, 64, torch.float32, True),
        (8, 64, 64, torch.bfloat16, True),
        (1, 64, 64, torch.float32, False),  # a batch of one
        (8, 64, 1, torch.float32, False),  # one output
        (8, 1, 64, torch.float32, False),  # one input
        (8, 64, 64, torch.complex64, False),
    ],
)
def test_products_that_take_cublaslt(rows, inner, columns, dtype, lt):
    made = product(
        matrix(columns, dtype=dtype), matrix(rows, inner, dtype=dtype),
        matrix(inner, columns, dtype=dtype),
    )
    assert made == 32 * MIB + MIB * lt


def test_a_bias_of_two_dimensions_takes_cublas():
    assert product(matrix(8, 64), matrix(8, 64), matrix(64, 64)) == 32 * MIB
    assert product(matrix(1, 64), matrix(8, 64), matrix(64, 64)) == 33 * MIB


@pytest.mark.parametrize(
    "name, value, beside",
    [
        ("CUBLASLT_WORKSPACE_SIZE", "4096", 4 * MIB),
        ("CUBLASLT_WORKSPACE_SIZE", "none", MIB),
        ("DISABLE_ADDMM_CUDA_LT", "1", 0),
        ("TORCH_CUBLASLT_UNIFIED_WORKSPACE", "1", 0),
    ],
)
def test_settings_of_cublaslt(monkeypatch, name, value, beside):
    monkeypatch.setenv(name, value)
    assert product(matrix(64), matrix(8, 64), matrix(64, 64)) == 32 * MIB + beside


def test_workspaces_of_a_perceptron():
    """One of cuBLAS for each stream and thread; of cuBLASLt where a layer with a bias runs."""

    def train(rows, streams=1):
        layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)).cuda()
        for _ in range(streams):
            with torch.cuda.stream(torch.cuda.Stream()):
                layers(torch.randn(rows, 64, device="cuda")).sum().backward()

    assert live(tenon.forecast(train, 8)) // MIB == 65
    assert live(tenon.forecast(train, 1)) // MIB == 64
    assert live(tenon.forecast(train, 8, 2)) // MIB == 130


def test_operands_that_cublas_cannot_read_are_copied():
    beside = product(lambda: torch.empty(512, 1024, device="cuda")[:, ::2], matrix(512, 8))
    assert beside == 32 * MIB + 512 * 512 * 4
    transposed = product(lambda: torch.empty(512, 512, device="cuda").T, matrix(512, 8))
    assert transposed == 32 * MIB
    batch = product(
        lambda: torch.empty(512, 512, device="cuda").expand(8, 512, 512), matrix(8, 512, 8)
    )
    assert batch == 32 * MIB
    rows = product(
        lambda: torch.empty(8, 1, 512, device="cuda").expand(8, 512, 512), matrix(8, 512, 8)
    )
    assert rows == 32 * MIB + 8 * 512 * 512 * 4
