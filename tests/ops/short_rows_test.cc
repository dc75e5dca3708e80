#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ops/reference.h"
#include "tenon/base/error.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"

namespace tenon {
namespace {

using testing::values;

constexpr DType kDtypes[] = {DType::kU8,  DType::kI16,  DType::kI32, DType::kI64,
                             DType::kF16, DType::kBF16, DType::kF32, DType::kF64};

Tensor numbers(DimVector sizes, DType d) { return to(ops::mul(rand(sizes), 90), d); }

// Operands of shape [9, 70, length]: dense, columns, rows, one number, every third element, planes
// in another order.
std::vector<Tensor> operands(std::int64_t length, DType d) {
  return {numbers({9, 70, length}, d),
          numbers({9, 70, 1}, d),
          numbers({70, 1}, d),
          numbers({length}, d),
          numbers({9, 1, length}, d),
          numbers({1}, d),
          numbers({9, 70, 3 * length}, d).slice(2, 0, 3 * length, 3),
          numbers({9, 70, length + 1}, d).narrow(2, 1, length),
          numbers({70, 9, length}, d).transpose(0, 1)};
}

TEST(ShortRowsTest, GiveWhatDenseOperandsGive) {
  for (const std::int64_t length : {2, 3, 5, 8, 31, 48, 49, 150, 300})
    for (const DType d : kDtypes) {
      const std::vector<Tensor> all = operands(length, d);
      for (std::size_t i = 0; i < all.size(); ++i)
        for (std::size_t j = 0; j < all.size(); ++j) {
          SCOPED_TRACE(fmt::format("{} {} {} {}", length, dtype_name(d), i, j));
          const auto whole = [&](const Tensor& t) {
            return contiguous(t.expand({9, 70, length}));
          };
          const Tensor a = whole(all[i]), b = whole(all[j]);
          const auto same = [](const Tensor& x, const Tensor& y) {
            EXPECT_TRUE(ops::all(ops::eq(x, y)).item<bool>());
          };
          const Tensor out = ops::add(all[i], all[j]);
          same(out.expand({9, 70, length}), ops::add(a, b));
          same(ops::lt(all[i], all[j]).expand({9, 70, length}), ops::lt(a, b));
          same(ops::sub(all[i], all[j]).expand({9, 70, length}), ops::sub(a, b));
          const Tensor target = zeros({9, 70, 2 * length}, d).slice(2, 0, 2 * length, 2);
          same(ops::add_(copy_(target, a), all[j]), ops::add(a, b));
        }
    }
}

TEST(ShortRowsTest, ResultsKeepTheOrderOfDimensionsOfAWholeOperand) {
  const Tensor image = rand({2, 9, 7, 5}), last = contiguous(image.permute({0, 2, 3, 1}));
  const Tensor channels_last = last.permute({0, 3, 1, 2}), shift = rand({9, 1, 1});
  for (const Tensor& out : {ops::add(channels_last, shift), ops::add(shift, channels_last)}) {
    EXPECT_EQ(out.strides(), channels_last.strides());
    EXPECT_EQ(values(out), values(ops::add(image, shift)));
  }
  EXPECT_TRUE(ops::add(image, channels_last).is_contiguous());
}

TEST(ShortRowsTest, FewPlanesBecomeRows) {
  for (const DType d : kDtypes)
    for (const std::int64_t planes : {2, 3, 4, 5}) {
      const Tensor a = numbers({planes, 13, 11}, d), rows = contiguous(a.permute({1, 2, 0}));
      for (std::int64_t p = 0; p < planes; ++p)
        EXPECT_EQ(values(rows.select(2, p)), values(a.select(0, p))) << dtype_name(d);
      EXPECT_EQ(values(contiguous(rows.permute({2, 0, 1}))), values(a)) << dtype_name(d);
    }
}

// Single elements are converted by themselves.
TEST(ShortRowsTest, RowsAreConvertedAsElementsAre) {
  std::vector<DType> all(std::begin(kDtypes), std::end(kDtypes));
  all.insert(all.end(), {DType::kBool, DType::kI8});
  const Tensor special = tensor<double>({0.0, -0.0, 0.3, -0.7, 255.5, -129, 7e4, 3e9, -3e9, 1e19,
                                         -1e19, 1e300, 6e-8, NAN, INFINITY, -INFINITY});
  const Tensor wide = ops::cat({special, ops::mul(randn({60}), 300)});
  for (const DType from : all)
    for (const DType to_dtype : all) {
      const Tensor row = to(wide, from), converted = to(row, to_dtype);
      const Tensor apart = to(ops::stack({row, row}, 1).select(1, 1), to_dtype);
      for (std::int64_t i = 0; i < row.numel(); ++i) {
        const double wanted = values(to(row.narrow(0, i, 1), to_dtype))[0];
        for (const Tensor& t : {converted, apart}) {
          const double got = values(t.narrow(0, i, 1))[0];
          EXPECT_TRUE(got == wanted || (std::isnan(got) && std::isnan(wanted)))
              << dtype_name(from) << " to " << dtype_name(to_dtype) << ' ' << i << ": " << got
              << " for " << wanted;
        }
      }
    }
}

TEST(ShortRowsTest, LabelsAreGatheredFromRows) {
  const Tensor a = rand({300, 7}), labels = randint(0, 7, {300, 1});
  const Tensor found = ops::gather(a, 1, labels);
  for (std::int64_t r = 0; r < 300; ++r)
    EXPECT_EQ(found.select(0, r).item<float>(),
              a.select(0, r).select(0, labels.select(0, r).item<std::int64_t>()).item<float>());
  EXPECT_THROW(ops::gather(a, 1, ops::add(labels, 1)), InvalidArgument);
}

}  // namespace
}  // namespace tenon
