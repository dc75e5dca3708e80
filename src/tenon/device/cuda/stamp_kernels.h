// Kernels that write a block's stamp into it and look whether it is still there.
#pragma once

#include <cstdint>

#include "tenon/device/cuda/cuda_backend.h"

namespace tenon {

// For tests of memory: reuse of a block too early spoils a stamp. Both kernels touch every
// `stride`-th word of 8 bytes, and what they find wrong is counted on the device.
// Thread-safe. Throws CudaError. Requires: the backend outlives it.
class StampKernels {
 public:
  explicit StampKernels(CudaBackend& backend);
  // Waits for the device.
  ~StampKernels();
  StampKernels(const StampKernels&) = delete;
  StampKernels& operator=(const StampKernels&) = delete;

  // Queued on the stream. Blocks of less than 8 bytes are left alone.
  void stamp(Stream stream, void* block, std::uint64_t size_bytes, std::uint64_t stamp,
             std::uint64_t stride = 1);
  void check(Stream stream, const void* block, std::uint64_t size_bytes, std::uint64_t stamp,
             std::uint64_t stride = 1);
  // Words that were wrong so far. Waits for the device.
  std::uint64_t wrong_words();

  // The kernels' source, PTX: compiled by the driver for the device at hand.
  static const char* source();

 private:
  void launch(cu::Function kernel, Stream stream, std::uint64_t words, std::uint64_t stride,
              void** parameters);

  CudaBackend& backend_;
  cu::Module module_ = nullptr;
  cu::Function stamp_ = nullptr;
  cu::Function check_ = nullptr;
  Segment wrong_;  // one word: the count
};

}  // namespace tenon
