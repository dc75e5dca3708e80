// Sparse layouts: conversion both ways, and what they refuse.
#include "tenon/tensor/sparse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "support/refusal.h"
#include "tenon/base/error.h"
#include "tenon/base/random.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/print.h"

namespace tenon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::refusal;

template <Element T>
std::vector<T> values_of(const Tensor& t) {
  const Tensor dense = contiguous(t);
  const T* data = dense.const_data_ptr<T>();
  return std::vector<T>(data, data + dense.numel());
}

// About a third of the elements are not zero.
template <Element T>
Tensor random_sparse(IntList sizes, std::uint64_t seed) {
  Tensor dense = zeros(sizes, dtype_of<T>());
  Random random(seed);
  T* data = dense.data_ptr<T>();
  for (std::int64_t i = 0; i < dense.numel(); ++i)
    if (random.next() % 3 == 0) data[i] = static_cast<T>(static_cast<float>(1 + random.next() % 9));
  return dense;
}

TEST(Sparse, RoundTripsOfAnyShape) {
  std::uint64_t seed = 1;
  for (const std::vector<std::int64_t>& sizes :
       {std::vector<std::int64_t>{4, 5}, {1, 7}, {7, 1}, {0, 3}, {3, 0}, {6}, {2, 3, 4}, {}}) {
    const Tensor dense = random_sparse<float>(sizes, seed++);
    const Tensor coo = to_sparse_coo(dense);
    EXPECT_EQ(coo.layout(), Layout::kSparseCoo);
    EXPECT_TRUE(is_coalesced(coo));
    EXPECT_EQ(values_of<float>(to_dense(coo)), values_of<float>(dense)) << seed;
    if (sizes.size() != 2) continue;
    const Tensor csr = to_sparse_csr(dense);
    EXPECT_EQ(values_of<float>(to_dense(csr)), values_of<float>(dense));
    EXPECT_EQ(values_of<float>(to_dense(to_sparse_csr(coo))), values_of<float>(dense));
    EXPECT_EQ(values_of<float>(to_dense(to_sparse_coo(csr))), values_of<float>(dense));
  }
}

TEST(Sparse, EveryDtypeGoesThere) {
  for (const DType dtype : {DType::kBool, DType::kU8, DType::kI32, DType::kF16, DType::kBF16,
                            DType::kF64, DType::kC64, DType::kC128}) {
    const Tensor dense = to(random_sparse<float>({5, 6}, 3), dtype);
    const Tensor back = to_dense(to_sparse_csr(dense));
    EXPECT_EQ(back.dtype(), dtype);
    EXPECT_EQ(values_of<float>(to(back, DType::kF32)), values_of<float>(to(dense, DType::kF32)));
  }
}

TEST(Sparse, DuplicatesAddUp) {
  const Tensor coo = sparse_coo_tensor(tensor<std::int64_t>({1, 0, 1, 0, 2, 2, 2, 0}, {2, 4}),
                                       tensor<float>({1, 2, 4, 8}), {2, 3});
  EXPECT_FALSE(is_coalesced(coo));
  EXPECT_THAT(values_of<float>(to_dense(coo)), ElementsAre(8, 0, 2, 0, 0, 5));
  const Tensor sorted = coalesce(coo);
  EXPECT_EQ(sparse_nnz(sorted), 3);
  EXPECT_THAT(values_of<std::int64_t>(sparse_indices(sorted)), ElementsAre(0, 0, 1, 0, 2, 2));
  EXPECT_THAT(values_of<float>(sparse_values(sorted)), ElementsAre(8, 2, 5));
  EXPECT_TRUE(coalesce(sorted).is_same(sorted));
}

TEST(Sparse, TrailingDimensionsMayStayDense) {
  const Tensor dense = random_sparse<float>({4, 3, 2}, 9);
  const Tensor hybrid = to_sparse_coo(dense, 1);
  EXPECT_EQ(sparse_indices(hybrid).size(0), 1);
  EXPECT_EQ(sparse_values(hybrid).dim(), 3);
  EXPECT_EQ(values_of<float>(to_dense(hybrid)), values_of<float>(dense));
}

TEST(Sparse, ATransposeIsTheTransposeOfTheDense) {
  const Tensor dense = random_sparse<float>({4, 6}, 5);
  for (const Tensor& sparse : {to_sparse_coo(dense), to_sparse_csr(dense)}) {
    const Tensor transposed = sparse.t();
    EXPECT_EQ(transposed.layout(), sparse.layout());
    EXPECT_EQ(values_of<float>(to_dense(transposed)), values_of<float>(dense.t()));
  }
}

TEST(Sparse, ACloneHasItsOwnValuesAndADetachedOneShares) {
  const Tensor coo = to_sparse_coo(random_sparse<float>({3, 3}, 2));
  const Tensor copy = clone(coo);
  const Tensor same = coo.detach();
  fill_(sparse_values(coo), 7);
  EXPECT_EQ(values_of<float>(sparse_values(same)), values_of<float>(sparse_values(coo)));
  EXPECT_NE(values_of<float>(sparse_values(copy)), values_of<float>(sparse_values(coo)));
}

TEST(Sparse, NothingReadsBytesThatAreNotThere) {
  const Tensor coo = to_sparse_coo(random_sparse<float>({3, 3}, 2));
  const Tensor dense = zeros({3, 3});
  EXPECT_THAT(refusal([&] { static_cast<void>(coo.data_ptr()); }), HasSubstr("to_dense()"));
  EXPECT_THAT(refusal([&] { static_cast<void>(coo[0]); }), HasSubstr("no views"));
  EXPECT_THAT(refusal([&] { copy_(dense, coo); }), HasSubstr("to_dense()"));
  EXPECT_THAT(refusal([&] { copy_(coo, dense); }), HasSubstr("to_dense()"));
  EXPECT_THAT(refusal([&] { dense.set_data(coo); }), HasSubstr("sparse"));
  EXPECT_THAT(refusal([&] { coo.set_requires_grad(true); }), HasSubstr("sparse_values()"));
  EXPECT_THAT(refusal([&] { static_cast<void>(sparse_values(dense)); }), HasSubstr("strided"));
  EXPECT_THAT(refusal([&] { static_cast<void>(sparse_crow_indices(coo)); }),
              HasSubstr("sparse_csr"));
}

TEST(Sparse, NoLayoutHasViews) {
  const Tensor dense = ones({4, 6});
  for (const Tensor& t : {to_sparse_coo(dense), to_sparse_csr(dense), to_sparse_csc(dense),
                          to_sparse_bsr(dense, 2, 3), to_sparse_bsc(dense, 2, 3)}) {
    const std::function<Tensor()> views[] = {
        [&] { return t.view({24}); },         [&] { return t.reshape({2, 12}); },
        [&] { return t.flatten(); },          [&] { return t.unflatten(0, {2, 2}); },
        [&] { return t.unfold(0, 2, 1); },    [&] { return t.view_dtype(DType::kI32); },
        [&] { return t.diagonal(); },         [&] { return t.as_strided({2}, {1}); },
        [&] { return t.split(2).front(); },   [&] { return t.transpose(0, 1).t().expand({4, 6}); },
        [&] { return t.movedim(0, 1).t(); },  [&] { return t.unbind().front(); },
    };
    for (std::size_t i = 0; i < std::size(views); ++i)
      EXPECT_THAT(refusal(views[i]), HasSubstr("no views; to_dense() has"))
          << layout_name(t.layout()) << ", " << i;
  }
}

TEST(Sparse, BadPartsAreNamedWithTheirPlace) {
  const Tensor values = tensor<float>({1, 2});
  const auto coo = [&](std::initializer_list<std::int64_t> indices) {
    return refusal(
        [&] { sparse_coo_tensor(tensor<std::int64_t>(indices, {2, 2}), values, {2, 3}); });
  };
  EXPECT_THAT(coo({0, 2, 0, 0}), HasSubstr("index 2 of element 1 in dimension 0"));
  EXPECT_THAT(coo({0, 1, -1, 0}), HasSubstr("index -1 of element 0 in dimension 1"));
  const auto csr = [&](std::initializer_list<std::int64_t> crow,
                       std::initializer_list<std::int64_t> columns) {
    return refusal([&] {
      sparse_csr_tensor(tensor<std::int64_t>(crow), tensor<std::int64_t>(columns), values, {2, 3});
    });
  };
  EXPECT_THAT(csr({0, 1, 2}, {0, 1}), "no InvalidArgument");
  EXPECT_THAT(csr({0, 3, 2}, {0, 1}), HasSubstr("fall from 3 to 2 after row 1"));
  EXPECT_THAT(csr({0, 1, 3}, {0, 1}), HasSubstr("from 0 to 2"));
  EXPECT_THAT(csr({0, 2, 2}, {1, 1}), HasSubstr("column 1 at 1 (row 0"));
  EXPECT_THAT(csr({0, 1, 2}, {0, 3}), HasSubstr("column 3 at 1"));
  EXPECT_THAT(csr({0, 2}, {0, 1}), HasSubstr("[rows + 1]"));
}

// Each layout, from each other one and from dense.
std::vector<Tensor> all_layouts(const Tensor& matrix) {
  return {to_sparse_coo(matrix),       to_sparse_csr(matrix),       to_sparse_csc(matrix),
          to_sparse_bsr(matrix, 2, 3), to_sparse_bsc(matrix, 2, 3), to_sparse_bsr(matrix, 1, 2)};
}

TEST(Sparse, EveryLayoutBecomesEveryOther) {
  for (const std::vector<std::int64_t>& sizes :
       {std::vector<std::int64_t>{4, 6}, {2, 12}, {0, 6}, {8, 0}, {10, 6}}) {
    const Tensor dense = random_sparse<float>(sizes, 11);
    const std::vector<float> wanted = values_of<float>(dense);
    for (const Tensor& from : all_layouts(dense)) {
      EXPECT_EQ(values_of<float>(to_dense(from)), wanted) << layout_name(from.layout());
      for (const Tensor& to : all_layouts(from)) {
        EXPECT_EQ(values_of<float>(to_dense(to)), wanted)
            << layout_name(from.layout()) << " to " << layout_name(to.layout());
        EXPECT_EQ(values_of<float>(to_dense(to.t())), values_of<float>(dense.t()));
        EXPECT_EQ(to.t().layout(), to.layout());
      }
    }
  }
}

// PyTorch's documentation has this matrix in each layout.
TEST(Sparse, PartsAreThoseOfPyTorch) {
  const Tensor dense = tensor<float>({0, 1, 2, 0, 0, 3, 4, 0, 0, 0, 0, 0, 5, 0, 6, 0}, {4, 4});
  const Tensor csc = to_sparse_csc(dense);
  EXPECT_THAT(values_of<std::int64_t>(sparse_ccol_indices(csc)), ElementsAre(0, 1, 3, 6, 6));
  EXPECT_THAT(values_of<std::int64_t>(sparse_row_indices(csc)), ElementsAre(3, 0, 1, 0, 1, 3));
  EXPECT_THAT(values_of<float>(sparse_values(csc)), ElementsAre(5, 1, 3, 2, 4, 6));
  const Tensor bsr = to_sparse_bsr(dense, 2, 2);
  EXPECT_EQ(sparse_nnz(bsr), 4);
  EXPECT_THAT(values_of<std::int64_t>(sparse_crow_indices(bsr)), ElementsAre(0, 2, 4));
  EXPECT_THAT(values_of<std::int64_t>(sparse_col_indices(bsr)), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(values_of<float>(sparse_values(bsr)),
              ElementsAre(0, 1, 0, 3, 2, 0, 4, 0, 0, 0, 5, 0, 0, 0, 6, 0));
  const Tensor bsc = to_sparse_bsc(dense, 4, 1);
  EXPECT_THAT(values_of<std::int64_t>(sparse_ccol_indices(bsc)), ElementsAre(0, 1, 2, 3, 3));
  EXPECT_THAT(values_of<float>(sparse_values(bsc)),
              ElementsAre(0, 0, 0, 5, 1, 3, 0, 0, 2, 4, 0, 6));
  const Tensor again = sparse_bsc_tensor(sparse_ccol_indices(bsc), sparse_row_indices(bsc),
                                         sparse_values(bsc), {4, 4});
  EXPECT_EQ(values_of<float>(to_dense(again)), values_of<float>(dense));
  EXPECT_THAT(to_string(csc), HasSubstr("ccol_indices=tensor([0, 1, 3, 6, 6]),"));
  EXPECT_THAT(to_string(csc), HasSubstr("row_indices="));
  EXPECT_THAT(to_string(bsr), HasSubstr("nnz=4, layout=sparse_bsr"));
}

TEST(Sparse, BadPartsOfOtherLayoutsAreNamed) {
  const auto i64 = [](std::initializer_list<std::int64_t> v) { return tensor<std::int64_t>(v); };
  const Tensor two = tensor<float>({1, 2});
  const Tensor blocks = ones({2, 2, 2});
  EXPECT_THAT(refusal([&] { sparse_csc_tensor(i64({0, 1, 2}), i64({0, 3}), two, {3, 2}); }),
              HasSubstr("sparse_csc_tensor: row 3 at 1 (column 1"));
  EXPECT_THAT(refusal([&] { sparse_csc_tensor(i64({0, 1}), i64({0, 1}), two, {3, 2}); }),
              HasSubstr("[columns + 1]"));
  EXPECT_THAT(refusal([&] { sparse_bsr_tensor(i64({0, 2}), i64({1, 1}), blocks, {2, 4}); }),
              HasSubstr("sparse_bsr_tensor: column 1 at 1 (row 0"));
  EXPECT_THAT(refusal([&] { sparse_bsr_tensor(i64({0, 2}), i64({0, 1}), blocks, {3, 4}); }),
              HasSubstr("which the blocks divide"));
  EXPECT_THAT(refusal([&] { sparse_bsc_tensor(i64({0, 2, 1}), i64({0, 1}), blocks, {4, 4}); }),
              HasSubstr("from 0 to 1; with 2 values"));
  EXPECT_THAT(refusal([&] { to_sparse_bsr(ones({4, 4}), 3, 2); }),
              HasSubstr("blocks of [3, 2] do not divide shape [4, 4]"));
  EXPECT_THAT(refusal([&] { sparse_row_indices(to_sparse_csr(ones({2, 2}))); }),
              HasSubstr("of sparse_csc or sparse_bsc, this tensor of shape [2, 2] is sparse_csr"));
}

TEST(Sparse, PrintsItsParts) {
  const std::string text = to_string(to_sparse_csr(tensor<float>({0, 2, 3, 0}, {2, 2})));
  EXPECT_THAT(text, HasSubstr("crow_indices=tensor([0, 1, 2]),"));
  EXPECT_THAT(text, HasSubstr("size=[2, 2], nnz=2, layout=sparse_csr"));
}

}  // namespace
}  // namespace tenon
