#include "tenon/tensor/indexing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "tenon/base/error.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/random.h"

namespace tenon {
namespace {

std::vector<std::int64_t> values(const Tensor& t) {
  const Tensor dense = contiguous(to(t, DType::kI64));
  const std::int64_t* data = dense.const_data_ptr<std::int64_t>();
  return std::vector<std::int64_t>(data, data + dense.numel());
}
using Values = std::vector<std::int64_t>;

Tensor i64(std::initializer_list<std::int64_t> list) { return tensor<std::int64_t>(list); }

TEST(IndexingTest, NumbersAndSlicesGiveViews) {
  const Tensor t = arange(40).view({8, 5});
  EXPECT_EQ(values(t[{Slice(1, 7, 3), 0}]), (Values{5, 20}));
  EXPECT_TRUE((t[{Slice(1, 7, 3), 0}]).is_alias_of(t));
  EXPECT_TRUE((t[{Slice()}]).is_alias_of(t));
  EXPECT_FALSE((t[{Slice()}]).is_same(t));
  EXPECT_EQ((t[{Ellipsis(), 1}]).sizes(), (IntList{8}));
  EXPECT_EQ((t[{NewAxis(), Slice(), NewAxis(), -1}]).sizes(), (IntList{1, 8, 1}));
  EXPECT_EQ(values(t[-1]), (Values{35, 36, 37, 38, 39}));
  EXPECT_EQ(values(t[{-1, Slice(std::nullopt, 2)}]), (Values{35, 36}));
  EXPECT_THROW((t[{0, 0, 0}]), InvalidArgument);
  EXPECT_THROW((t[{Ellipsis(), Ellipsis()}]), InvalidArgument);
  EXPECT_THROW(t[8], InvalidArgument);
}

TEST(IndexingTest, IndexTensorsChooseElements) {
  const Tensor t = arange(12).view({3, 4});
  EXPECT_EQ(values(t[{i64({2, 0, -1})}]), (Values{8, 9, 10, 11, 0, 1, 2, 3, 8, 9, 10, 11}));
  EXPECT_EQ(values(t[{Slice(), i64({1, 1})}]), (Values{1, 1, 5, 5, 9, 9}));
  EXPECT_EQ(values(t[{i64({0, 2}), i64({1, 3})}]), (Values{1, 11}));
  EXPECT_EQ(values(t.t()[{i64({0, 3}), 1}]), (Values{4, 7}));
  EXPECT_THROW((t[{i64({3})}]), InvalidArgument);
  EXPECT_THROW((t[{i64({0, 1}), i64({0, 1, 2})}]), InvalidArgument);
  EXPECT_THROW((t[{zeros({2})}]), InvalidArgument);
}

// As NumPy: index dimensions stay where they are when neighbours, else come first.
TEST(IndexingTest, IndexDimensionsGoWhereNumPyPutsThem) {
  const Tensor t = arange(120).view({2, 3, 4, 5});
  const Tensor rows = i64({0, 1, 0}).view({3, 1});
  const Tensor columns = i64({1, 2});
  EXPECT_EQ((t[{Slice(), rows, columns}]).sizes(), (IntList{2, 3, 2, 5}));
  EXPECT_EQ((t[{rows, Slice(), columns}]).sizes(), (IntList{3, 2, 3, 5}));
  const Tensor chosen = t[{rows, Slice(), columns}];
  for (std::int64_t i = 0; i < 3; ++i)
    for (std::int64_t j = 0; j < 2; ++j)
      for (std::int64_t k = 0; k < 3; ++k)
        for (std::int64_t l = 0; l < 5; ++l)
          EXPECT_EQ((chosen[{i, j, k, l}]).item<std::int64_t>(),
                    (i % 2) * 60 + k * 20 + (j + 1) * 5 + l);
}

TEST(IndexingTest, MasksChooseInOrderForEveryShape) {
  for (const DimVector& sizes : {DimVector{5000}, DimVector{3, 2050}, DimVector{4, 5, 6, 7},
                                 DimVector{0}, DimVector{3, 0}, DimVector{2, 1}}) {
    const Tensor numbers = randint(0, 1000, sizes), mask = to(randint(0, 2, sizes), DType::kBool);
    const Values all = values(numbers), set = values(mask);
    Values chosen;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (set[i] != 0) chosen.push_back(all[i]);
    EXPECT_EQ(values(numbers[{mask}]), chosen) << to_string(IntList(sizes));
    const std::vector<Tensor> positions = nonzero_positions(mask);
    ASSERT_EQ(positions.size(), sizes.size());
    Tensor copied = zeros(sizes, DType::kI64);
    if (!chosen.empty())
      for (std::size_t i = 0; i < chosen.size(); ++i) {
        Tensor place = copied;
        for (const Tensor& along : positions)
          place = place.select(0, along.const_data_ptr<std::int64_t>()[i]);
        fill_(place, chosen[i]);
      }
    const Values found = values(copied);
    for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(found[i], set[i] != 0 ? all[i] : 0);
  }
}

TEST(IndexingTest, MasksChooseWhereTrue) {
  const Tensor t = arange(6).view({2, 3});
  const Tensor mask = tensor<bool>({true, false, true, false, false, true}, {2, 3});
  EXPECT_EQ(values(t[{mask}]), (Values{0, 2, 5}));
  EXPECT_EQ(values(t[{Slice(), tensor<bool>({true, false, true})}]), (Values{0, 2, 3, 5}));
  EXPECT_EQ((t[{zeros({2, 3}, DType::kBool)}]).sizes(), (IntList{0}));
  EXPECT_THROW((t[{tensor<bool>({true, false, true})}]), InvalidArgument);
}

TEST(IndexingTest, ChosenElementsCanBeWritten) {
  const Tensor t = zeros({3, 4}, DType::kI64);
  t.index_put_({i64({0, 2}), i64({1, 3})}, i64({5, 6}));
  t.index_put_({1}, i64({1, 2, 3, 4}));
  EXPECT_EQ(values(t), (Values{0, 5, 0, 0, 1, 2, 3, 4, 0, 0, 0, 6}));
  EXPECT_GE(t.version(), 2u);
  t.index_put_({i64({0, 0, 0}), Slice(0, 1)}, full({}, 7, DType::kI64), true);
  EXPECT_EQ((t[{0, 0}]).item<std::int64_t>(), 21);
  t.index_put_({tensor<bool>({false, false, true})}, full({}, -1, DType::kF32));
  EXPECT_EQ(values(t[2]), (Values{-1, -1, -1, -1}));
  EXPECT_THROW(t.index_put_({i64({0, 1})}, i64({1, 2, 3})), InvalidArgument);
  // Values may have more dimensions, of one element each.
  t.index_put_({0, 0}, i64({8}));
  t.index_put_({i64({1})}, i64({4, 3, 2, 1}).view({1, 1, 1, 4}));
  EXPECT_EQ(values(t.slice(0, 0, 2)), (Values{8, 5, 0, 0, 4, 3, 2, 1}));
  EXPECT_THROW(t.index_put_({0, 0}, i64({1, 2})), InvalidArgument);
}

TEST(IndexingTest, WritingThroughIndicesLeavesLazyClonesAlone) {
  const Tensor t = zeros({4}, DType::kI64);
  const Tensor copy = lazy_clone(t);
  t.index_put_({i64({1})}, full({}, 9, DType::kI64));
  EXPECT_EQ(values(copy), (Values{0, 0, 0, 0}));
  EXPECT_EQ(values(t), (Values{0, 9, 0, 0}));
}

TEST(CopyTest, BroadcastsConvertsAndRefuses) {
  const Tensor t = empty({2, 3}, DType::kF16);
  copy_(t, arange(3));
  EXPECT_EQ(values(t), (Values{0, 1, 2, 0, 1, 2}));
  EXPECT_THROW(copy_(t, arange(4)), InvalidArgument);
  EXPECT_THROW(copy_(t.select(0, 0), t), InvalidArgument);
  EXPECT_THROW(copy_(arange(3).view({3, 1}).expand({3, 2}), t.t()), InvalidArgument);
}

TEST(CopyTest, OverlappingOperandsAreCopiedAsThroughABuffer) {
  const Tensor t = arange(6);
  copy_(t.slice(0, 1), t.slice(0, 0, 5));
  EXPECT_EQ(values(t), (Values{0, 0, 1, 2, 3, 4}));
  const Tensor square = arange(9).view({3, 3});
  copy_(square, square.t());
  EXPECT_EQ(values(square), (Values{0, 3, 6, 1, 4, 7, 2, 5, 8}));
  float numbers[9] = {0, 1, 2, 3, 4, 5, 6, 7, 8};  // under several storages
  const auto over = [&](float* data, IntList sizes) {
    return from_blob(data, sizes, DType::kF32);
  };
  const Tensor whole = over(numbers, {3, 3});
  copy_(whole, over(numbers, {3, 3}).t());
  EXPECT_EQ(values(whole), (Values{0, 3, 6, 1, 4, 7, 2, 5, 8}));
  copy_(over(numbers + 1, {8}), over(numbers, {8}));
  EXPECT_EQ(values(whole), (Values{0, 0, 3, 6, 1, 4, 7, 2, 5}));
}

TEST(CopyTest, LargeTransposesAgreeWithPlainLoops) {
  for (const std::int64_t rows : {17, 64, 301})
    for (const std::int64_t columns : {33, 200}) {
      const Tensor t = arange(rows * columns).view({rows, columns});
      const Tensor copy = contiguous(t.t());
      const std::int64_t* data = copy.const_data_ptr<std::int64_t>();
      for (std::int64_t i = 0; i < rows * columns; ++i)
        ASSERT_EQ(data[i], i % rows * columns + i / rows);
    }
}

// Whether the elements of `copy`, a contiguous one, are those of a tensor of four dimensions.
void expect_elements(const Tensor& copy, const Tensor& t) {
  const std::size_t item = t.item_size();
  const auto* at = static_cast<const char*>(copy.const_data_ptr());
  const auto* from = static_cast<const char*>(t.const_data_ptr());
  for (std::int64_t i = 0; i < t.numel(); ++i, at += item) {
    std::int64_t offset = 0, rest = i;
    for (std::int64_t d = t.dim(); d-- > 0; rest /= t.size(d))
      offset += rest % t.size(d) * t.stride(d);
    ASSERT_EQ(std::memcmp(at, from + offset * static_cast<std::int64_t>(item), item), 0)
        << "element " << i << " of " << to_string(t.sizes()) << " of " << dtype_name(t.dtype());
  }
}

TEST(CopyTest, EveryPermutationOfEveryItemAgreesWithPlainLoops) {
  for (const DType dtype : {DType::kU8, DType::kI16, DType::kF32, DType::kF64, DType::kC128})
    for (const DimVector& sizes : {DimVector{3, 40, 33, 5}, DimVector{2, 17, 9, 8},
                                   DimVector{1, 64, 70, 4}, DimVector{5, 7, 2, 35},
                                   DimVector{2, 3, 50, 1}, DimVector{4, 16, 3, 32}}) {
      std::int64_t count = 1;
      for (const std::int64_t size : sizes) count *= size;
      const Tensor t = to(arange(count), dtype).view(sizes);
      const std::int64_t length = t.size(3);
      const Tensor shifted = t.narrow(3, length > 1, std::max<std::int64_t>(1, length / 2));
      std::array<std::int64_t, 4> order = {0, 1, 2, 3};
      do {
        for (const Tensor& x : {t, shifted}) {
          const Tensor permuted = x.permute({order.data(), order.size()});
          expect_elements(contiguous(permuted), permuted);
          const Tensor part = permuted.narrow(0, permuted.size(0) / 2, 1);
          expect_elements(contiguous(part), part);
        }
      } while (std::next_permutation(order.begin(), order.end()));
    }
}

TEST(CopyTest, ClonesKeepTheOrderOfDenseTensors) {
  const Tensor t = arange(24).view({2, 3, 4}).permute({2, 0, 1});
  EXPECT_EQ(clone(t).strides(), t.strides());
  EXPECT_TRUE(clone(t, MemoryFormat::kContiguous).is_contiguous());
  EXPECT_EQ(to(t, DType::kF32).strides(), t.strides());
  EXPECT_TRUE(to(t, DType::kI64).is_same(t));
  const Tensor image = zeros({2, 3, 4, 5});
  EXPECT_TRUE(
      contiguous(image, MemoryFormat::kChannelsLast).is_contiguous(MemoryFormat::kChannelsLast));
}

TEST(CopyTest, MetaTensorsMoveNothing) {
  const Device meta{DeviceType::kMeta, 0};
  const Tensor shape = to(zeros({2, 3}), meta);
  EXPECT_TRUE(shape.is_meta());
  EXPECT_EQ(clone(shape.t()).sizes(), (IntList{3, 2}));
  fill_(shape, 1);
  EXPECT_EQ(shape.version(), 1u);
  copy_(shape, ones({2, 3}));
  EXPECT_THROW(copy_(zeros({2, 3}), shape), InvalidArgument);
  EXPECT_THROW(to(shape, Device{}), InvalidArgument);
}

TEST(FactoriesTest, FillAsAsked) {
  EXPECT_EQ(values(arange(2, 11, 3)), (Values{2, 5, 8}));
  EXPECT_EQ(values(arange(3, 0, -1)), (Values{3, 2, 1}));
  EXPECT_EQ(arange(0, 1, 0.25, DType::kF32).numel(), 4);
  EXPECT_THROW(arange(0, 3, -1), InvalidArgument);
  EXPECT_THROW(arange(0, 3, 0), InvalidArgument);
  const Tensor line = linspace(0, 1, 5);
  EXPECT_EQ(line[4].item<float>(), 1.0f);
  EXPECT_EQ(line[1].item<float>(), 0.25f);
  EXPECT_EQ(values(eye(2, 3)), (Values{1, 0, 0, 0, 1, 0}));
  EXPECT_EQ(values(full({2}, 7, DType::kU8)), (Values{7, 7}));
  EXPECT_EQ(zeros_like(zeros({2, 3}).t()).strides(), (IntList{1, 3}));
  EXPECT_EQ(values(ones_like(zeros({2, 2}).t())), (Values{1, 1, 1, 1}));
  EXPECT_THROW(tensor<float>({1, 2, 3}, {2}), InvalidArgument);
  EXPECT_TRUE(wrapped_number(2.5).is_wrapped_number());
  EXPECT_EQ(full({3}, true, DType::kBool)[2].item<bool>(), true);
}

TEST(FactoriesTest, ForeignMemoryGoesWithItsDeleter) {
  static int freed;
  freed = 0;
  auto* memory = new float[6]{0, 1, 2, 3, 4, 5};
  {
    const Tensor t = from_blob(
        DataPtr(
            memory, memory, [](void* p) { ++freed, delete[] static_cast<float*>(p); }, Device{}),
        24, {2, 3}, {3, 1}, DType::kF32);
    const Tensor view = t[1];
    EXPECT_EQ(view[2].item<float>(), 5);
    EXPECT_EQ(freed, 0);
  }
  EXPECT_EQ(freed, 1);
  float borrowed[4] = {1, 2, 3, 4};
  fill_(from_blob(borrowed, {4}, DType::kF32), 9);
  EXPECT_EQ(borrowed[3], 9);
  EXPECT_THROW(from_blob(DataPtr(borrowed, Device{}), 16, {5}, {1}, DType::kF32), InvalidArgument);
}

}  // namespace
}  // namespace tenon
