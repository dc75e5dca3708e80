// split, unbind and chunk: one node with a differentiable output for each piece.
#include <gtest/gtest.h>

#include "autograd/leaves.h"
#include "tenon/autograd/autograd.h"
#include "tenon/autograd/forward_mode.h"
#include "tenon/autograd/gradcheck.h"
#include "tenon/base/error.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/random.h"

namespace tenon::autograd {
namespace {

using testing::leaf;

void expect_equal(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.sizes(), b.sizes());
  EXPECT_EQ(ops::amax(ops::abs(ops::sub(a.detach(), b.detach()))).item<double>(), 0);
}

std::vector<std::vector<Tensor>> all_cuts(const Tensor& t) {
  return {t.split(2, 1),       t.split_with_sizes({1, 0, 4}, 1), t.chunk(2, -1),
          t.tensor_split(3, 1), t.tensor_split(IntList{1, -1}, 1), t.unbind(0),
          t.unbind(-1)};
}

TEST(SplitTest, PiecesAreNumberedOutputsOfOneNode) {
  const Tensor x = leaf({3, 5}, 1);
  for (const std::vector<Tensor>& pieces : all_cuts(x))
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      EXPECT_EQ(grad_fn(pieces[i]).get(), grad_fn(pieces[0]).get());
      EXPECT_EQ(output_nr(pieces[i]), i);
      EXPECT_TRUE(pieces[i].is_alias_of(x));
    }
  EXPECT_STREQ(node_name(grad_fn(x.split(2)[0])), "split");
  EXPECT_STREQ(node_name(grad_fn(x.unbind()[0])), "unbind");
}

TEST(SplitTest, TensorSplitCutsAsPyTorchDoes) {
  const Tensor t = arange(0, 7, 1, DType::kI64);
  const auto lengths = [](const std::vector<Tensor>& pieces) {
    std::vector<std::int64_t> all;
    for (const Tensor& piece : pieces) all.push_back(piece.size(0));
    return all;
  };
  using Lengths = std::vector<std::int64_t>;
  EXPECT_EQ(lengths(t.tensor_split(3)), (Lengths{3, 2, 2}));
  EXPECT_EQ(lengths(t.tensor_split(9)), (Lengths{1, 1, 1, 1, 1, 1, 1, 0, 0}));
  EXPECT_EQ(lengths(t.tensor_split(IntList{2, 9})), (Lengths{2, 5, 0}));
  EXPECT_EQ(lengths(t.tensor_split(IntList{5, 2, -1})), (Lengths{5, 0, 4, 1}));
  EXPECT_EQ(t.tensor_split(IntList{5, 2, -1})[2][0].item<std::int64_t>(), 2);
  EXPECT_THROW(t.tensor_split(0), InvalidArgument);
  EXPECT_THROW(scalar_tensor(1, DType::kF32).unbind(), InvalidArgument);
}

TEST(SplitTest, TheNodeRunsOnceAndUnusedPiecesArriveUndefined) {
  const Tensor x = leaf({6}, 2);
  const std::vector<Tensor> pieces = ops::mul(x, 1.0).split(2);
  int calls = 0;
  std::vector<bool> arrived;
  register_pre_hook(grad_fn(pieces[0]), [&](std::span<Tensor> grads) {
    ++calls;
    for (const Tensor& g : grads) arrived.push_back(g.defined());
  });
  const Tensor y = ops::add(ops::mul(pieces[2], 3), ops::mul(pieces[0], 2));
  backward(ops::sum(y));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(arrived, (std::vector<bool>{true, false, true}));
  expect_equal(x.grad(), tensor<double>({2, 2, 0, 0, 3, 3}));
}

TEST(SplitTest, DerivativesAreRightTwiceAndForward) {
  const auto f = [](std::span<const Tensor> in) {
    Tensor total = zeros({}, DType::kF64);
    for (const std::vector<Tensor>& pieces : all_cuts(ops::square(in[0])))
      for (std::size_t i = 0; i + 1 < pieces.size(); ++i)
        total = ops::add(total, ops::sum(ops::mul(pieces[i], static_cast<double>(i + 2))));
    return std::vector<Tensor>{total};
  };
  const std::vector<Tensor> inputs = {leaf({3, 5}, 3)};
  EXPECT_EQ(gradcheck(f, inputs), "");
  EXPECT_EQ(gradgradcheck(f, inputs), "");
}

// A piece that is saved, and whose base may still change, keeps its number.
TEST(SplitTest, SavedPiecesKeepTheirPlace) {
  const auto f = [](std::span<const Tensor> in) {
    const std::vector<Tensor> rows = ops::mul(in[0], 1.0).unbind(0);
    return std::vector<Tensor>{ops::mul(ops::square(rows[1]), rows[2])};
  };
  const std::vector<Tensor> inputs = {leaf({3, 2}, 5)};
  EXPECT_EQ(gradcheck(f, inputs), "");
  EXPECT_EQ(gradgradcheck(f, inputs), "");
}

TEST(SplitTest, APieceOfAPieceIsFollowed) {
  const auto f = [](std::span<const Tensor> in) {
    const Tensor middle = in[0].chunk(3)[1].unbind(1)[2];
    return std::vector<Tensor>{ops::exp(middle)};
  };
  const std::vector<Tensor> inputs = {leaf({6, 4}, 4)};
  EXPECT_EQ(gradcheck(f, inputs), "");
  EXPECT_EQ(gradgradcheck(f, inputs), "");
}

// Writing through a piece, through its sibling and through the base; the other pieces follow.
TEST(SplitTest, InPlaceChangesOfPiecesAreHistory) {
  const auto f = [](std::span<const Tensor> in) {
    const Tensor base = ops::mul(in[0], 1.0);
    const std::vector<Tensor> pieces = base.split(2);
    ops::add_(pieces[1], pieces[0]);
    ops::mul_(pieces[0].unbind()[1], 3.0);
    ops::add_(base, in[1]);
    return std::vector<Tensor>{ops::add(ops::mul(pieces[0], pieces[1]), pieces[2]), base};
  };
  const std::vector<Tensor> inputs = {leaf({6}, 5), leaf({6}, 6)};
  EXPECT_EQ(gradcheck(f, inputs), "");
  EXPECT_EQ(gradgradcheck(f, inputs), "");
}

TEST(SplitTest, PiecesOfALeafCannotBeWritten) {
  const Tensor x = leaf({4}, 7);
  EXPECT_THROW(ops::mul_(x.split(2)[1], 2), InvalidArgument);
  const NoGradGuard unrecorded;
  ops::mul_(x.split(2)[1], 2);
}

TEST(SplitTest, PiecesShareTheVersion) {
  const Tensor base = ops::mul(leaf({4}, 8), 1.0);
  const std::vector<Tensor> pieces = base.unbind();
  const Tensor y = ops::mul(pieces[0], pieces[0]);  // saves it
  const std::uint32_t before = base.version();
  ops::add_(pieces[3], 1.0);
  EXPECT_EQ(base.version(), before + 1);
  EXPECT_EQ(pieces[1].version(), before + 1);
  EXPECT_THROW(backward(y), InvalidArgument);
}

TEST(SplitTest, TangentsOfDualViewsReachThePieces) {
  const ForwardLevel level;
  const Tensor base = arange(0, 6, 1, DType::kF64);
  const Tensor tangent = arange(10, 16, 1, DType::kF64);
  const Tensor dual = make_dual(base.alias(), tangent, level);
  expect_equal(fw_grad(dual.split(2)[2], level), tensor<double>({14, 15}));
  expect_equal(fw_grad(dual.unbind()[3], level), scalar_tensor(13, DType::kF64));
}

TEST(SplitTest, AsManyPiecesAsThereAreRows) {
  constexpr std::int64_t kRows = 70'000;  // more than 16 bits count
  const Tensor x = zeros({kRows, 1}, DType::kF32).set_requires_grad(true);
  const std::vector<Tensor> rows = x.unbind();
  EXPECT_EQ(output_nr(rows.back()), kRows - 1);
  backward(ops::sum(rows.back()));
  EXPECT_EQ(ops::sum(x.grad()).item<float>(), 1);
  EXPECT_EQ(x.grad().select(0, kRows - 1).item<float>(), 1);
}

TEST(SplitTest, NamesAndHooksGoByPiece) {
  const Tensor x = leaf({2, 3}, 9);
  x.impl()->set_names({"rows", "columns"});
  EXPECT_EQ(x.unbind()[1].names(), (std::vector<std::string>{"columns"}));
  EXPECT_EQ(x.split(1, 1)[2].names(), (std::vector<std::string>{"rows", "columns"}));
  const std::vector<Tensor> rows = x.unbind();
  register_hook(rows[1], [](const Tensor& g) { return ops::mul(g, 5); });
  backward(ops::add(ops::sum(rows[0]), ops::sum(rows[1])));
  expect_equal(x.grad(), tensor<double>({1, 1, 1, 5, 5, 5}, {2, 3}));
}

}  // namespace
}  // namespace tenon::autograd
