// Operators that only move elements, on random views: each element is where plain addresses say.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "tenon/base/parallel.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/indexing.h"
#include "tenon/tensor/random.h"

namespace tenon {
namespace {

using Place = std::vector<std::int64_t>;

const char* address_of(const Tensor& t, const Place& at) {
  std::int64_t offset = 0;
  for (std::size_t d = 0; d < at.size(); ++d) offset += at[d] * t.strides()[d];
  return static_cast<const char*>(t.const_data_ptr()) +
         offset * static_cast<std::int64_t>(t.item_size());
}

// Element `at` of `out` is that of `source` at from(at); zero where from gives no place.
void expect_moved(const char* what, const Tensor& out, const Tensor& source,
                  const std::function<Place(Place)>& from) {
  const std::vector<char> zero(out.item_size());
  Place at(static_cast<std::size_t>(out.dim()), 0);
  for (std::int64_t n = 0; n < out.numel(); ++n) {
    const Place place = from(at);
    const char* const wanted = place.empty() ? zero.data() : address_of(source, place);
    ASSERT_EQ(std::memcmp(address_of(out, at), wanted, out.item_size()), 0)
        << what << " of " << to_string(source.sizes()) << " with strides "
        << to_string(source.strides()) << " at " << to_string(at);
    for (std::size_t d = at.size(); d-- > 0 && ++at[d] == out.sizes()[d];) at[d] = 0;
  }
}

class Views {
 public:
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(bits_);
  }
  // Of two to four dimensions: permuted, every n-th row, narrow, or repeated.
  Tensor next() {
    constexpr DType kTypes[] = {DType::kU8, DType::kBF16, DType::kF32, DType::kI64};
    Place sizes(static_cast<std::size_t>(between(2, 4)), 1);
    for (std::int64_t& size : sizes) size = between(1, 12);
    sizes[static_cast<std::size_t>(between(0, 1))] = between(1, 90);
    Tensor v = randint(1, 100, sizes, kTypes[between(0, 3)]);
    for (int i = 0; i < 3; ++i) {
      const std::int64_t dim = between(0, v.dim() - 1), size = v.size(dim);
      const std::int64_t begin = between(0, size - 1);
      switch (between(0, 4)) {
        case 0:
          v = v.transpose(dim, between(0, v.dim() - 1));
          break;
        case 1:
          v = v.slice(dim, begin, size, between(1, 5));
          break;
        case 2:
          v = v.narrow(dim, begin, between(1, size - begin));
          break;
        case 3:
          if (size > 1 || v.numel() > 20'000) break;
          Place repeated(v.sizes().begin(), v.sizes().end());
          repeated[static_cast<std::size_t>(dim)] = between(1, 6);
          v = v.expand(repeated);
      }
    }
    return v;
  }

 private:
  std::mt19937_64 bits_{7};
};

TEST(RandomViewsTest, ElementsAreWherePlainAddressesSay) {
  Views views;
  const int threads = num_threads();
  for (int i = 0; i < 150 && !HasFatalFailure(); ++i) {
    set_num_threads(static_cast<int>(views.between(1, 3)));
    const Tensor v = views.next();
    const auto dims = static_cast<std::size_t>(v.dim());
    const auto dim = static_cast<std::size_t>(views.between(0, v.dim() - 1));
    const auto d = static_cast<std::int64_t>(dim);
    const std::int64_t size = v.size(d), shift = views.between(0, size);
    const std::int64_t diagonal = views.between(-6, 6);
    expect_moved("contiguous", contiguous(v), v, [](Place at) { return at; });
    expect_moved("flip", ops::flip(v, {d}), v, [&](Place at) {
      at[dim] = size - 1 - at[dim];
      return at;
    });
    expect_moved("roll", ops::roll(v, {shift}, {d}), v, [&](Place at) {
      at[dim] = (at[dim] - shift + size) % size;
      return at;
    });
    expect_moved("cat", ops::cat({v, v}, d), v, [&](Place at) {
      at[dim] %= size;
      return at;
    });
    expect_moved("tril", ops::tril(v, diagonal), v, [&](Place at) {
      return at[dims - 1] - at[dims - 2] <= diagonal ? at : Place();
    });
    expect_moved("triu", ops::triu(v, diagonal), v, [&](Place at) {
      return at[dims - 1] - at[dims - 2] >= diagonal ? at : Place();
    });
    const Tensor index = randint(0, size, {views.between(1, 30)});
    expect_moved("index_select", ops::index_select(v, d, index), v, [&](Place at) {
      at[dim] = index.const_data_ptr<std::int64_t>()[at[dim]];
      return at;
    });
  }
  set_num_threads(threads);
}

}  // namespace
}  // namespace tenon
