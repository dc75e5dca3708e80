"""Sparse tensors (COO): where their parts lie, and what their operators take."""

import pytest
import torch
from test_forecast import live
from torch import nn

import tenon

NODES, EDGES, WIDTH = 1000, 5000, 64
PARTS = EDGES * (2 * 8 + 4)


def edges():
    """Different places, in no order."""
    order = torch.randperm(NODES * NODES)[:EDGES]
    return torch.stack([order // NODES, order % NODES])


def graph():
    return torch.sparse_coo_tensor(edges(), torch.ones(EDGES), (NODES, NODES))


def test_the_parts_lie_on_the_card():
    def program():
        there = graph().cuda()
        assert there.is_cuda and there._nnz() == EDGES
        assert there.t()._nnz() == EDGES

    assert live(tenon.forecast(program)) == pytest.approx(2 * PARTS, rel=0.01)


def test_a_product_takes_copies():
    def program(coalesced):
        adjacency = graph()
        adjacency = (adjacency.coalesce() if coalesced else adjacency).cuda()
        torch.spmm(adjacency, torch.ones(NODES, WIDTH, device="cuda"))

    matrix, index = NODES * WIDTH * 4, 4 * (NODES + 1 + EDGES)
    # two operands, and zeros to add to, the result, and its copy by columns
    whole = PARTS + 4 * matrix + index
    assert live(tenon.forecast(program, True)) == whole
    assert live(tenon.forecast(program, False)) == whole + PARTS


@pytest.mark.parametrize("legacy", [False, True])
def test_a_graph_network_trains_in_the_same_memory_each_step(legacy):
    def program():
        make = torch.sparse.FloatTensor if legacy else torch.sparse_coo_tensor
        adjacency = make(edges(), torch.ones(EDGES), (NODES, NODES)).cuda()
        weight = nn.Parameter(torch.ones(WIDTH, 8, device="cuda"))
        optimizer = torch.optim.Adam([weight])
        for _ in range(9):
            features = torch.mm(torch.ones(NODES, WIDTH, device="cuda"), weight)
            torch.spmm(adjacency, features).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    assert live(tenon.forecast(program, steps=3)) == live(tenon.forecast(program, steps=8))


def test_gradients_of_values():
    def program():
        values = torch.ones(EDGES, device="cuda", requires_grad=True)
        places = edges().cuda()
        matrix = torch.sparse_coo_tensor(places, values, (NODES, NODES))
        torch.sparse.mm(matrix, torch.ones(NODES, 2, device="cuda")).sum().backward()
        assert values.grad.shape == (EDGES,)

    dense = NODES * NODES * 4  # the product of which PyTorch keeps the elements of the places
    assert dense < live(tenon.forecast(program)) - (32 << 20) < 1.2 * dense


def test_values_are_known():
    def program():
        places = torch.tensor([[0, 1, 1], [1, 0, 0]])
        matrix = torch.sparse_coo_tensor(places, torch.ones(3), (2, 2)).cuda()
        assert matrix.coalesce().indices().tolist() == [[0, 1], [1, 0]]
        assert matrix.to_dense().tolist() == [[0, 1], [2, 0]]
        assert torch.eye(4, device="cuda").to_sparse()._nnz() == 4
        seen.append((matrix.coalesce() * 2).values().tolist())

    seen = []
    assert not tenon.forecast(program).notes and seen == [[2, 4]]


def test_places_that_are_not_known_stay_apart():
    def program():
        places = torch.empty(2, 100_000, dtype=torch.long, device="cuda")
        values = torch.ones(100_000, device="cuda")
        seen.append(torch.sparse_coo_tensor(places, values, (500, 500)).coalesce()._nnz())

    seen = []
    tenon.forecast(program, real="never")
    assert seen == [100_000]


@pytest.mark.parametrize("real", ["never", "always"])
@pytest.mark.parametrize("kind", ["SGD", "SparseAdam", "Adagrad"])
def test_gradients_of_an_embedding(kind, real):
    rows = 100_000

    def program():
        layer = nn.Embedding(rows, 16, sparse=True).cuda()
        optimizer = getattr(torch.optim, kind)(layer.parameters(), lr=0.1)
        for _ in range(3):
            layer(torch.arange(9, device="cuda")).sum().backward()
            assert layer.weight.grad.is_sparse
            optimizer.step()
            optimizer.zero_grad()

    copies = {"SGD": 1, "SparseAdam": 3, "Adagrad": 2}[kind]  # the weights, and the state
    forecast = tenon.forecast(program, real=real)
    assert copies * rows * 64 <= live(forecast) < copies * rows * 64 + 20_000


def test_a_number_of_elements_that_depends_on_data():
    def program():
        dense = torch.randn(300, 300, device="cuda").relu()
        return dense, dense.to_sparse()

    forecast = tenon.forecast(program)
    assert "ran on the CPU with real values" in forecast.text and "to_sparse 4" in forecast.text
    assert live(forecast) == pytest.approx(90_000 * 4 + 45_000 * 20, rel=0.02)


def test_what_has_no_rule_is_named():
    def program():
        torch.ones(9, device="cuda")
        graph().to_sparse_csr()

    assert "_to_sparse_csr" in tenon.forecast(program).problem
