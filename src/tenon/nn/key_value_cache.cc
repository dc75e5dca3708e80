#include "tenon/nn/key_value_cache.h"

#include <fmt/format.h>

#include <algorithm>

#include "tenon/base/error.h"
#include "tenon/device/host/host_backend.h"
#include "tenon/tensor/factories.h"

namespace tenon::nn {

namespace {

void check_sizes(std::int64_t layers, std::int64_t most_places, std::int64_t width) {
  if (layers < 1 || most_places < 1 || width < 1)
    throw InvalidArgument(fmt::format("KeyValueCache: {} layers, {} places, width {}; each is 1 or "
                                      "more",
                                      layers, most_places, width));
}

}  // namespace

KeyValueCache::KeyValueCache(std::int64_t layers, std::int64_t most_places, std::int64_t width,
                             Device device, DType dtype) {
  check_sizes(layers, most_places, width);
  for (std::int64_t i = 0; i < layers; ++i)
    layers_.push_back(
        std::make_unique<GrowableTensor>(empty({most_places, 2 * width}, dtype, device)));
}

KeyValueCache::KeyValueCache(std::int64_t layers, std::int64_t most_places, std::int64_t width,
                             DType dtype, std::shared_ptr<PagePool> pool) {
  check_sizes(layers, most_places, width);
  if (pool == nullptr) pool = PagePool::make(host_backend());
  for (std::int64_t i = 0; i < layers; ++i)
    layers_.push_back(
        std::make_unique<GrowableTensor>(pool, most_places, IntList{2 * width}, dtype));
}

void KeyValueCache::truncate(std::int64_t length) {
  for (const auto& layer : layers_) layer->truncate(std::min(length, layer->length()));
}

}  // namespace tenon::nn
