// Copies whose rows are dense in both tensors and lie apart.
#include <gtest/gtest.h>

#include <algorithm>

#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/random.h"

namespace tenon {
namespace {

template <typename T>
void expect_rows_copied(std::int64_t length, DType dtype) {
  const Tensor all = to(randint(0, 100, {3, 5, 4, length + 1}), dtype);
  const Tensor from = all.narrow(3, 1, length).permute({0, 2, 1, 3});
  const Tensor room = full({3, 4, 5, length + 2}, 111, dtype);
  copy_(room.narrow(3, 1, length), from);
  const T* made = room.const_data_ptr<T>();
  for (std::int64_t i = 0; i < 3; ++i)
    for (std::int64_t j = 0; j < 4; ++j)
      for (std::int64_t k = 0; k < 5; ++k, made += length + 2) {
        const T* row = all.const_data_ptr<T>() + ((i * 5 + k) * 4 + j) * (length + 1) + 1;
        for (std::int64_t x = 0; x < length; ++x) ASSERT_EQ(made[x + 1], row[x]) << length;
        ASSERT_TRUE(made[0] == 111 && made[length + 1] == 111) << length;
      }
}

TEST(CopyRowsTest, RowsOfEveryLengthKeepTheirBytesAndThoseBesideThem) {
  for (std::int64_t length = 1; length < 300; ++length) {
    expect_rows_copied<std::uint8_t>(length, DType::kU8);
    if (length < 80) expect_rows_copied<std::int32_t>(length, DType::kI32);
  }
}

// Two to four planes, of several images, become pixels.
// As if in pages of their own, the target some bytes behind the source.
TEST(CopyRowsTest, LongRowsAFewBytesApartKeepTheirBytes) {
  constexpr std::int64_t kPage = 4096;
  const Tensor memory = randint(0, 256, {9 * kPage}, DType::kU8);
  const auto base = reinterpret_cast<std::uintptr_t>(memory.const_data_ptr());
  const std::int64_t start = static_cast<std::int64_t>(kPage - base % kPage);
  for (const std::int64_t apart : {0, 1, 2, 8, 15, 16, 40})
    for (const std::int64_t length : {2047, 2048, 2049, 4097, 9000}) {
      const Tensor from = clone(memory).slice(0, start, start + length);
      const Tensor room = full({4 * kPage}, 111, DType::kU8);
      const auto at = reinterpret_cast<std::uintptr_t>(room.const_data_ptr());
      const auto wanted = reinterpret_cast<std::uintptr_t>(from.const_data_ptr()) + apart;
      const auto first = static_cast<std::int64_t>((wanted - at) % kPage);
      copy_(room.narrow(0, first, length), from);
      const auto* made = room.const_data_ptr<std::uint8_t>();
      const auto* bytes = from.const_data_ptr<std::uint8_t>();
      ASSERT_TRUE(std::equal(bytes, bytes + length, made + first)) << apart << " " << length;
      ASSERT_TRUE((first == 0 || made[first - 1] == 111) && made[first + length] == 111);
    }
}

TEST(CopyRowsTest, PlanesOfABatchBecomePixels) {
  for (const std::int64_t channels : {2, 3, 4, 5})
    for (const std::int64_t pixels : {1, 7, 33, 1000}) {
      const Tensor planes = randint(0, 1 << 20, {3, channels, pixels + 2}, DType::kI32);
      const Tensor made = contiguous(planes.narrow(2, 1, pixels).transpose(1, 2));
      const auto* got = made.const_data_ptr<std::int32_t>();
      const auto* all = planes.const_data_ptr<std::int32_t>();
      for (std::int64_t n = 0; n < 3; ++n)
        for (std::int64_t x = 0; x < pixels; ++x)
          for (std::int64_t c = 0; c < channels; ++c, ++got)
            ASSERT_EQ(*got, all[(n * channels + c) * (pixels + 2) + x + 1]) << channels << pixels;
    }
}

}  // namespace
}  // namespace tenon
