// Without glslc, or Vulkan's headers, no device has kernels.
#if !TENON_HAS_VULKAN_KERNELS

#include "tenon/ops/kernels/vulkan/device_kernels.h"

namespace tenon::vulkan {

bool matmul(const Tensor&, std::int64_t, std::int64_t, std::int64_t, const Tensor&,
            const MatrixStrides&, const Tensor&, const MatrixStrides&, double) {
  return false;
}
std::optional<DType> gather_dtype(DType, Device) { return std::nullopt; }
bool gather(ops::Gather, const Tensor&, const Tensor&, std::uint64_t, const Tensor&) {
  return false;
}
bool arg_extreme(bool, const Tensor&, const Tensor&, std::uint64_t) { return false; }
bool rows(Rows, const Tensor&, std::int64_t, std::int64_t, const Tensor&, const Tensor&,
          const Tensor&, double, const Tensor&) {
  return false;
}
bool groups_backward(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                     std::int64_t, double) {
  return false;
}
bool channels_backward(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                       const Tensor&, const Tensor&, const Tensor&, double) {
  return false;
}
bool sort(const Tensor&, const Tensor&, const Tensor&, std::int64_t, bool) { return false; }
bool take(const char*, const Tensor&, const Tensor&, std::int64_t, const Tensor&) { return false; }
bool add_at(const char*, const Tensor&, std::int64_t, const Tensor&, const Tensor&) {
  return false;
}

bool windows(WindowWork, const Tensor&, const Tensor&, const Windows&, std::int64_t, std::int64_t,
             std::int64_t, std::int64_t, const Tensor&) {
  return false;
}

bool correlate(const Tensor&, const Tensor&, const Tensor&, const Windows&) { return false; }

bool convolve(const Tensor&, const Tensor&, const Tensor&, const Windows&) { return false; }
bool reads_windows(Device) { return false; }
bool convolve_by_shifts(const Tensor&, const Tensor&, const Tensor&, const Windows&,
                        std::int64_t) {
  return false;
}
bool convolve_back_by_shifts(const Tensor&, const Tensor&, const Tensor&, const Windows&,
                             std::int64_t) {
  return false;
}
bool correlate_by_shifts(const Tensor&, const Tensor&, const Tensor&, Windows, std::int64_t) {
  return false;
}

bool update(UpdateKind, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
            const UpdateNumbers&, const std::function<UpdateNumbers()>&) {
  return false;
}

}  // namespace tenon::vulkan

#endif
