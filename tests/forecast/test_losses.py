"""Losses and reductions, which take and keep more than their results show."""

import pytest
import torch
from test_forecast import MIB, live
from torch.nn import functional as F

import tenon

LOSSES = {  # bytes for each element, on the way to the reduced loss: temporaries, and what stays
    F.mse_loss: 8,
    F.smooth_l1_loss: 8,
    F.huber_loss: 4,
    F.soft_margin_loss: 4,
    F.binary_cross_entropy: 4,
    F.binary_cross_entropy_with_logits: 8,
}
SLACK = 64 << 10  # scratch of reductions


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
@pytest.mark.parametrize("reduction", ("mean", "none"))
def test_a_loss_keeps_what_it_keeps_on_the_host(loss, reduction):
    kept = loss(torch.rand(64, 64), torch.rand(64, 64), reduction=reduction)
    each = kept.untyped_storage().nbytes() // (64 * 64)  # bytes for each element

    def keep():
        x, y = torch.rand(MIB, device="cuda"), torch.rand(MIB, device="cuda")
        losses = [loss(x, y, reduction=reduction) for _ in range(4)]
        torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
        return losses

    assert 0 <= live(tenon.forecast(keep, real="never")) - (8 + 4 * each + 64) * MIB <= SLACK


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_a_loss_has_temporaries(loss):
    def once():
        loss(torch.rand(MIB, device="cuda"), torch.rand(MIB, device="cuda"))

    assert 0 <= live(tenon.forecast(once, real="never")) - (8 + LOSSES[loss]) * MIB <= SLACK


def test_the_formula_of_logits_writes_into_its_own_results():
    def train():
        x = torch.rand(1024, 1024, device="cuda", requires_grad=True)
        y, weight = torch.rand(1024, 1024, device="cuda"), torch.rand(1024, device="cuda")
        F.binary_cross_entropy_with_logits(x, y, pos_weight=weight).backward()

    # x, y, y * weight, the same and 1, which becomes the gradient, and the sigmoid
    assert 0 <= live(tenon.forecast(train, real="never")) - 5 * 4 * MIB <= SLACK


@pytest.mark.parametrize("kind", ["list", "host", "card"])
def test_lengths_of_ctc_are_lists_or_tensors_of_either_device(kind):
    def train():
        layer = torch.nn.Linear(8, 6).cuda()
        scores = layer(torch.randn(20, 4, 8, device="cuda")).log_softmax(2)
        lengths = [[20] * 4, [5] * 4]
        if kind != "list":
            device = "cuda" if kind == "card" else "cpu"
            lengths = [torch.tensor(each, device=device) for each in lengths]
        targets = torch.randint(1, 6, (4, 5), device="cuda")
        torch.nn.functional.ctc_loss(scores, targets, *lengths).backward()
        shapes.append(layer.weight.grad.shape)

    shapes = []
    assert tenon.forecast(train).problem is None and shapes[-1] == (6, 8)


def test_losses_of_nothing():
    def train():
        x = torch.rand(0, 4, device="cuda", requires_grad=True)
        for loss in LOSSES:
            loss(x.sigmoid(), torch.rand(0, 4, device="cuda"), reduction="sum").backward()
        torch.zeros(0, dtype=torch.bool, device="cuda").sum(), x.logsumexp(1)
        return torch.empty(MIB, device="cuda")

    assert 0 <= live(tenon.forecast(train, real="never")) - 4 * MIB <= SLACK


def test_an_index_has_one_gradient():
    def train():
        table = torch.rand(MIB, 4, device="cuda", requires_grad=True)
        table[torch.arange(3, device="cuda")].sum().backward()

    assert 0 <= live(tenon.forecast(train, real="never")) - 2 * 16 * MIB <= SLACK


def test_a_gradient_of_an_index_sorts_the_places():
    def train():
        table = torch.rand(8, 4, device="cuda", requires_grad=True)
        places = torch.zeros(MIB, dtype=torch.long, device="cuda")
        table[places].sum().backward()

    # the places; four times as many sorted; the rows are one number, expanded
    assert 0 <= live(tenon.forecast(train, real="never")) - 5 * 8 * MIB <= SLACK


def test_a_sum_of_booleans_is_one_of_integers():
    def count():
        torch.zeros(MIB, dtype=torch.bool, device="cuda").sum()

    def half():
        torch.zeros(MIB, dtype=torch.bfloat16, device="cuda").sum(dtype=torch.float32)

    assert 0 <= live(tenon.forecast(count)) - 9 * MIB <= SLACK
    assert 0 <= live(tenon.forecast(half)) - 2 * MIB <= SLACK


def test_the_logarithm_of_a_sum_has_its_exponentials():
    def once():
        torch.rand(1024, 1024, device="cuda").logsumexp(1)

    assert 0 <= live(tenon.forecast(once)) - 8 * MIB <= SLACK
