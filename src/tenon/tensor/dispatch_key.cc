#include "tenon/tensor/dispatch_key.h"

namespace tenon {

std::string_view dispatch_key_name(DispatchKey key) {
  constexpr std::string_view kNames[kDispatchKeyCount] = {
      "cpu",  "cuda",        "vulkan", "metal",    "xla",    "sim",
      "meta", "third_party", "labels", "autograd", "sparse", "tracer"};
  return kNames[static_cast<std::size_t>(key)];
}

}  // namespace tenon
