#include "tenon/nn/data/order.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "tenon/base/error.h"
#include "tenon/base/hash.h"
#include "tenon/base/random.h"

namespace tenon::nn {

BatchOrder::BatchOrder(std::int64_t examples, std::int64_t batch_size, std::uint64_t seed)
    : examples_(examples),
      batch_size_(batch_size),
      seed_(seed),
      batches_(batch_size < 1
                   ? 0
                   : static_cast<std::uint64_t>((examples + batch_size - 1) / batch_size)) {
  if (examples < 1 || batch_size < 1)
    throw InvalidArgument(fmt::format("{} examples in batches of {}", examples, batch_size));
}

std::vector<std::int64_t> BatchOrder::examples_of(std::uint64_t number) {
  const std::uint64_t epoch = number / batches_;
  if (permutation_.empty() || epoch != epoch_) {
    epoch_ = epoch;
    permutation_.resize(static_cast<std::size_t>(examples_));
    std::iota(permutation_.begin(), permutation_.end(), 0);
    Random random(mix64(seed_) ^ mix64(epoch + 1));
    for (std::size_t i = permutation_.size(); i > 1; --i)  // Fisher and Yates
      std::swap(permutation_[i - 1], permutation_[random.below(i)]);
  }
  const auto begin = static_cast<std::int64_t>(number % batches_) * batch_size_;
  const std::int64_t end = std::min(begin + batch_size_, examples_);
  return {permutation_.begin() + begin, permutation_.begin() + end};
}

}  // namespace tenon::nn
