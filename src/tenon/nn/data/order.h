// Which examples stand in which batch.
#pragma once

#include <cstdint>
#include <vector>

namespace tenon::nn {

// Every example once an epoch, in an order drawn from the seed and the epoch's number alone. So a
// resumed run finds its place again without the draws of earlier epochs. The last batch of an epoch
// may be smaller.
class BatchOrder {
 public:
  // Throws InvalidArgument for no examples or batches of none.
  BatchOrder(std::int64_t examples, std::int64_t batch_size, std::uint64_t seed);

  // The number of examples divided by the batch size, rounded up.
  std::uint64_t batches_per_epoch() const { return batches_; }
  // Of batch `number`, counted over all epochs from 0. O(examples) at an epoch's first, else
  // O(batch). Not thread-safe.
  std::vector<std::int64_t> examples_of(std::uint64_t number);

 private:
  const std::int64_t examples_;
  const std::int64_t batch_size_;
  const std::uint64_t seed_;
  const std::uint64_t batches_;
  std::uint64_t epoch_ = 0;          // that permutation_ is of
  std::vector<std::int64_t> permutation_;
};

}  // namespace tenon::nn
