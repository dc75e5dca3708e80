// The keys and values of places that a model has seen, so that each is computed once. Not
// thread-safe. A layer grows, and fails, as GrowableTensor says (growable_tensor.h). O(layers).
#pragma once

#include <memory>
#include <vector>

#include "tenon/tensor/growable_tensor.h"

namespace tenon::nn {

// For one sequence: a tensor [length, 2 * width] for each layer (keys of all heads, then values),
// which grows in place. Over pages a long sequence costs memory for the places that it has, not for
// the most that it may have.
class KeyValueCache {
 public:
  // Up to `most_places` places. On the host unless the pool is another device's. Throws
  // InvalidArgument for sizes below 1.
  KeyValueCache(std::int64_t layers, std::int64_t most_places, std::int64_t width,
                DType dtype = DType::kF32, std::shared_ptr<PagePool> pool = nullptr);
  // On a device without pages: with memory for all places, from the current allocator.
  KeyValueCache(std::int64_t layers, std::int64_t most_places, std::int64_t width, Device device,
                DType dtype = DType::kF32);

  // Places that all layers have, and that there may be; a layer (std::out_of_range beyond them).
  std::int64_t length() const { return layers_.back()->length(); }
  std::int64_t most_places() const { return layers_.back()->most_rows(); }
  GrowableTensor& layer(std::size_t i) { return *layers_.at(i); }
  std::size_t layers() const { return layers_.size(); }
  // Forgets all but the first places. Throws InvalidArgument for more than there are.
  void truncate(std::int64_t length);

 private:
  std::vector<std::unique_ptr<GrowableTensor>> layers_;
};

}  // namespace tenon::nn
