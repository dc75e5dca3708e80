#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "tenon/base/error.h"
#include "tenon/base/parallel.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/print.h"
#include "tenon/tensor/random.h"

namespace tenon {
namespace {

// Expectations are what PyTorch prints, with its "torch." left out.
TEST(PrintTest, LooksAsUsersExpect) {
  EXPECT_EQ(to_string(tensor<float>({1, -2.5, 0, 4}, {2, 2})),
            "tensor([[ 1.0000, -2.5000],\n        [ 0.0000,  4.0000]])");
  EXPECT_EQ(to_string(arange(3)), "tensor([0, 1, 2])");
  EXPECT_EQ(to_string(ones({2, 2})), "tensor([[1., 1.],\n        [1., 1.]])");
  EXPECT_EQ(to_string(full({}, 2)), "tensor(2.)");
  EXPECT_EQ(to_string(full({}, 1e10)), "tensor(1.0000e+10)");
  EXPECT_EQ(to_string(tensor<bool>({true, false})), "tensor([ True, False])");
  EXPECT_EQ(to_string(tensor<double>({1, 1e-5})),
            "tensor([1.0000e+00, 1.0000e-05], dtype=float64)");
  EXPECT_EQ(to_string(empty({0})), "tensor([])");
  EXPECT_EQ(to_string(empty({0, 3})), "tensor([], size=[0, 3])");
  EXPECT_EQ(to_string(tensor<float>({INFINITY, 1.5f})), "tensor([   inf, 1.5000])");
  EXPECT_EQ(to_string(tensor<Complex64>({Complex64(1, -2)})), "tensor([1.-2.j], dtype=complex64)");
  EXPECT_EQ(to_string(tensor<std::uint8_t>({200})), "tensor([200], dtype=uint8)");
  EXPECT_EQ(to_string(empty({4, 4}, DType::kF32, Device{DeviceType::kMeta, 0})),
            "tensor(..., size=[4, 4], device=meta:0)");
}

TEST(PrintTest, LongTensorsAreSummarised) {
  EXPECT_EQ(to_string(arange(2000)), "tensor([   0,    1,    2,  ..., 1997, 1998, 1999])");
  const std::string text = to_string(zeros({50, 50}));
  EXPECT_EQ(text.substr(0, 40), "tensor([[0., 0., 0.,  ..., 0., 0., 0.],\n");
  EXPECT_NE(text.find("        ...,\n"), std::string::npos);
  EXPECT_LT(to_string(zeros({1000, 1000, 10})).size(), 3000u);
}

TEST(PrintTest, ThreeDimensionsAreSetApart) {
  EXPECT_EQ(to_string(arange(4).view({2, 1, 2})), "tensor([[[0, 1]],\n\n        [[2, 3]]])");
}

// The known answers of Random123's distribution.
TEST(RandomTest, PhiloxGivesItsKnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const std::uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox4x32({ones, ones, ones, ones}, {ones, ones}),
            (std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(RandomTest, SameSeedSameNumbersOnAnyNumberOfThreads) {
  const int threads = num_threads();
  set_num_threads(1);
  Generator one(7);
  const Tensor first = randn({100003}, DType::kF32, one);
  set_num_threads(4);
  Generator two(7);
  const Tensor second = randn({100003}, DType::kF32, two);
  set_num_threads(threads);
  EXPECT_EQ(0, std::memcmp(first.const_data_ptr(), second.const_data_ptr(), first.nbytes()));
  EXPECT_EQ(one.offset(), two.offset());
  const Tensor next = randn({8}, DType::kF32, one);
  two.set_offset(two.offset());
  EXPECT_EQ(next[3].item<float>(), randn({8}, DType::kF32, two)[3].item<float>());
}

TEST(RandomTest, NumbersAreDistributedAsTheySay) {
  Generator generator(1);
  const Tensor uniform = rand({100000}, DType::kF32, generator);
  const Tensor normal = randn({100000}, DType::kF64, generator);
  double sum = 0, low = 1, high = 0, mean = 0, square = 0;
  for (std::int64_t i = 0; i < 100000; ++i) {
    const double u = uniform.const_data_ptr<float>()[i];
    const double n = normal.const_data_ptr<double>()[i];
    sum += u;
    low = std::min(low, u);
    high = std::max(high, u);
    mean += n;
    square += n * n;
  }
  EXPECT_NEAR(sum / 100000, 0.5, 0.01);
  EXPECT_GE(low, 0);
  EXPECT_LT(high, 1);
  EXPECT_NEAR(mean / 100000, 0, 0.02);
  EXPECT_NEAR(square / 100000, 1, 0.03);
  const Tensor dice = randint(1, 7, {60000}, DType::kI32, generator);
  std::array<int, 8> seen{};
  for (std::int64_t i = 0; i < 60000; ++i)
    ++seen.at(static_cast<std::size_t>(dice.const_data_ptr<std::int32_t>()[i]));
  for (std::size_t side = 1; side <= 6; ++side) EXPECT_NEAR(seen[side], 10000, 500);
  EXPECT_EQ(seen[0] + seen[7], 0);
}

TEST(RandomTest, PermutationsHaveEveryNumberOnce) {
  Generator generator(3);
  const Tensor order = randperm(1000, generator);
  const std::int64_t* data = order.const_data_ptr<std::int64_t>();
  EXPECT_EQ(std::set<std::int64_t>(data, data + 1000).size(), 1000u);
  EXPECT_NE(data[0] * 1000 + data[1], 1);
  EXPECT_THROW(randint(3, 3, {1}), InvalidArgument);
  EXPECT_THROW(bernoulli_(zeros({2}), 1.5), InvalidArgument);
  EXPECT_THROW(uniform_(zeros({2}, DType::kI64)), InvalidArgument);
}

}  // namespace
}  // namespace tenon
