// The kernels of device/cuda/stamp_kernels.h, as the stand-in runs them.
#include "cuda_stand_in/world.h"

namespace tenon::stand_in {
namespace {

// The same sequence as in the PTX: word i of a block with this stamp.
std::uint64_t word(std::uint64_t stamp, std::uint64_t i) {
  return stamp + i * 0x9e3779b97f4a7c15ull;
}

template <typename T>
T parameter(void** params, int i) {
  return *static_cast<const T*>(params[i]);
}

}  // namespace

bool enqueue_kernel(const std::string& name, StreamState* stream, void** params) {
  World& w = world();
  const bool stamps = name == "tenon_stamp";
  if (!stamps && name != "tenon_check") return false;
  const auto address = parameter<std::uint64_t>(params, 0);
  const auto words = parameter<std::uint64_t>(params, 1);
  const auto stride = parameter<std::uint64_t>(params, 2);
  const auto stamp = parameter<std::uint64_t>(params, 3);
  const std::uint64_t errors = stamps ? 0 : parameter<std::uint64_t>(params, 4);
  const int device = stream->device;
  w.enqueue(stream, [=, &w] {
    w.touch(device, address, words * 8, stamps ? "tenon_stamp" : "tenon_check", [&] {
      auto* data = reinterpret_cast<std::uint64_t*>(address);
      std::uint64_t wrong = 0;
      for (std::uint64_t i = 0; i < words; i += stride) {
        if (stamps)
          data[i] = word(stamp, i);
        else
          wrong += data[i] != word(stamp, i) ? 1 : 0;
      }
      if (wrong != 0)
        w.touch(device, errors, 8, "tenon_check's count",
                [&] { *reinterpret_cast<std::uint64_t*>(errors) += wrong; });
    });
  });
  return true;
}

}  // namespace tenon::stand_in
