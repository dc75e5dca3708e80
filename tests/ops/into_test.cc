// Results in tensors that exist.
#include "tenon/ops/into.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenon/autograd/forward_mode.h"
#include "tenon/memory/adaptors/statistics_adaptor.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/random.h"

namespace tenon {
namespace {

void expect_same_values(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.sizes(), b.sizes());
  EXPECT_TRUE(ops::all(ops::eq(a, b)).item<bool>());
}

TEST(Into, GivesWhatTheOperatorGives) {
  const Tensor a = randn({6, 8}), b = randn({8, 5});
  const Tensor product = empty({6, 5});
  EXPECT_TRUE(ops::into(product, ops::op::matmul, a, b).is_same(product));
  expect_same_values(product, ops::matmul(a, b));
  const Tensor sums = empty({8});
  expect_same_values(ops::into(sums, ops::op::sum, a, IntList{0}, false), ops::sum(a, 0));
  const Tensor softmax = empty({6, 8});
  expect_same_values(ops::into(softmax, ops::op::softmax, a, -1), ops::softmax(a, -1));
}

TEST(Into, WritesStraightIntoTheMemoryOfAContiguousOutput) {
  const Tensor a = randn({64, 64}), b = randn({64, 64});
  const Tensor out = empty({64, 64});
  const std::uint32_t version = out.version();
  StatisticsAdaptor counted(*current_allocator(Device{}));
  const AllocatorGuard guard(Device{}, counted);
  ops::into(out, ops::op::matmul, a, b);
  EXPECT_EQ(counted.passed().blocks.allocated, 0u);
  EXPECT_EQ(out.version(), version + 1);
  expect_same_values(out, ops::matmul(a, b));
  const NoGradGuard no_grad;
  const Tensor weight = clone(b).set_requires_grad(true);
  const auto before = counted.passed().blocks.allocated;
  ops::into(out, ops::op::matmul, a, weight);
  EXPECT_EQ(counted.passed().blocks.allocated, before) << "a parameter has no tangent";
}

TEST(Into, StridedAndSharedOutputsGetACopy) {
  const Tensor a = randn({4, 4}), b = randn({4, 4});
  const Tensor expected = ops::matmul(a, b);
  const Tensor strided = empty({4, 8}).slice(1, 0, 8, 2);
  expect_same_values(ops::into(strided, ops::op::matmul, a, b), expected);
  expect_same_values(ops::into(a, ops::op::matmul, a, b), expected);
  const Tensor list[] = {b, b};
  const Tensor joined = empty({8, 4});
  expect_same_values(ops::into(joined, ops::op::cat, list, 0), ops::cat(list, 0));
}

TEST(Into, AResultOfAnotherOrderIsTurned) {
  const Tensor turned = rand({4, 6}).t();
  const Tensor out = empty({6, 4});
  expect_same_values(ops::into(out, ops::op::add, turned, turned), ops::add(turned, turned));
  expect_same_values(ops::into(out, ops::op::exp, turned), ops::exp(turned));
  expect_same_values(ops::into(out, ops::op::softmax, turned, 0), ops::softmax(turned, 0));
  expect_same_values(ops::into(out, ops::op::cumsum, turned, 1), ops::cumsum(turned, 1));
  const Tensor images = contiguous(randn({2, 3, 4, 5}), MemoryFormat::kChannelsLast);
  const Tensor planes = empty({2, 3, 4, 5});
  expect_same_values(ops::into(planes, ops::op::relu, images), ops::relu(images));
  const Tensor rows = empty({12, 5}).narrow(0, 4, 6).narrow(1, 0, 4);
  expect_same_values(ops::into(rows, ops::op::exp, turned), ops::exp(turned));
}

TEST(Into, TangentsAreThoseOfTheOperator) {
  const Tensor x = rand({12, 8}, DType::kF64).slice(0, 0, 12, 2).slice(1, 0, 8, 2);
  const Tensor direction = rand({6, 4}, DType::kF64);
  const autograd::ForwardLevel level;
  const Tensor dual = autograd::make_dual(x, direction, level);
  const Tensor out = empty({6, 4}, DType::kF64);
  ops::into(out, ops::op::cumsum, dual, 0);
  expect_same_values(autograd::fw_grad(out, level), ops::cumsum(direction, 0));
  expect_same_values(out, ops::cumsum(x, 0));
}

TEST(Into, AnUndefinedOutputIsRefused) {
  EXPECT_THROW(ops::into(Tensor(), ops::op::exp, ones({2})), InvalidArgument);
}

TEST(Into, AnOutputThatDoesNotFitIsRefused) {
  const Tensor a = randn({4, 4});
  const auto message = [&](const Tensor& out) -> std::string {
    try {
      ops::into(out, ops::op::matmul, a, a);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message(empty({16})), ::testing::HasSubstr("[16]"));
  EXPECT_THAT(message(empty({4, 4}, DType::kI32)), ::testing::HasSubstr("int32"));
}

}  // namespace
}  // namespace tenon
