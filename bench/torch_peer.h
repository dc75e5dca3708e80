// What the files have in common that call PyTorch; only they include this.
#pragma once

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <malloc.h>
#include <torch/torch.h>
#include <torch/version.h>

#include <algorithm>
#include <functional>
#include <string>

#include "tenon/tensor/tensor.h"
#include "torch_name.h"

extern "C" void omp_set_num_threads(int threads);

namespace tenon::bench {

std::string torch_name() { return "PyTorch " TORCH_VERSION; }

// PyTorch's own loops and its matrix products. Debian's takes these from OpenBLAS, whose number of
// threads Tenon sets to one when it multiplies: so this is called before each measured call.
inline void set_torch_threads(int threads) {
  if (at::get_num_threads() != threads) at::set_num_threads(threads);
  omp_set_num_threads(threads);
#if TORCH_VERSION_MAJOR < 2
  static const auto set_blas =
      reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "openblas_set_num_threads"));
  static const auto blas_threads =
      reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "openblas_get_num_threads"));
  if (set_blas != nullptr && blas_threads != nullptr && blas_threads() != threads)
    set_blas(threads);
#endif
}

// Counts the bytes of tensors, as the C library has rounded them.
class CountingAllocator final : public c10::Allocator {
 public:
#if TORCH_VERSION_MAJOR < 2
  c10::DataPtr allocate(std::size_t bytes) const override {
#else
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  c10::DataPtr allocate(std::size_t bytes) override {
#endif
    void* const data = inner_->raw_allocate(bytes);
    live_ += malloc_usable_size(data);
    peak_ = std::max(peak_, live_);
    return {data, data, &drop, c10::Device(c10::kCPU)};  // convolutions want it so
  }
  c10::DeleterFnPtr raw_deleter() const override { return &drop; }
  void start() const { peak_ = first_ = live_; }
  std::uint64_t peak() const { return peak_ - first_; }

 private:
  static void drop(void* data) {
    live_ -= malloc_usable_size(data);
    inner_->raw_deallocate(data);
  }
  static inline c10::Allocator* const inner_ = c10::GetAllocator(c10::kCPU);
  static inline std::uint64_t live_ = 0;
  static inline std::uint64_t peak_ = 0;
  static inline std::uint64_t first_ = 0;
};

// Most bytes of PyTorch's tensors at once in `body`.
inline std::uint64_t peak_of_torch(const std::function<void()>& body) {
  static auto& counting = *new CountingAllocator;
  c10::SetAllocator(c10::kCPU, &counting, 255);
  counting.start();
  body();
  return counting.peak();
}

inline torch::ScalarType dtype_of(const Tensor& t) {
  switch (t.dtype()) {
    case DType::kF32:
      return torch::kFloat32;
    case DType::kF64:
      return torch::kFloat64;
    case DType::kBF16:
      return torch::kBFloat16;
    case DType::kI64:
      return torch::kInt64;
    case DType::kF16:
      return torch::kFloat16;
    case DType::kI32:
      return torch::kInt32;
    case DType::kI16:
      return torch::kInt16;
    case DType::kI8:
      return torch::kInt8;
    case DType::kU8:
      return torch::kUInt8;
    case DType::kBool:
      return torch::kBool;
    default:
      throw std::invalid_argument("peer: another dtype");
  }
}

// PyTorch's tensor on the memory of one of ours.
inline torch::Tensor borrowed(const Tensor& t) {
  const std::vector<std::int64_t> sizes(t.sizes().begin(), t.sizes().end());
  const std::vector<std::int64_t> strides(t.strides().begin(), t.strides().end());
  return torch::from_blob(const_cast<void*>(t.const_data_ptr()), sizes, strides, dtype_of(t));
}

}  // namespace tenon::bench
