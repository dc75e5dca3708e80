// Tensors on a GPU: bytes, copies, and buffers shared with other libraries.
#include <gmock/gmock.h>

#include "support/cuda_stand_in.h"
#include "tenon/memory/policies.h"
#include "tenon/memory/registry.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/interop/dlpack.h"
#include "tenon/tensor/interop/dlpack_abi.h"

namespace tenon {
namespace {

class CudaTensor : public ::testing::Test {
 protected:
  const testing::StandIn machine_{"lazy=1,seed=2"};
  const std::unique_ptr<CudaBackend> backend_ = machine_.backend();
  const std::unique_ptr<DeviceAllocator> allocator_ = make_policy("stitched", *backend_);
  const Device cuda_ = backend_->device();
  const AllocatorGuard guard_{cuda_, *allocator_};
};

TEST_F(CudaTensor, GoesThereAndBack) {
  const Tensor host = arange(1000, DType::kI64);
  const Tensor there = to(host, cuda_);
  EXPECT_EQ(there.device(), cuda_);
  EXPECT_EQ(allocator_->stats().allocation[0].current, 1);
  const Tensor back = to(there, Device{});
  for (std::int64_t i = 0; i < 1000; ++i)
    ASSERT_EQ(static_cast<const std::int64_t*>(back.const_data_ptr())[i], i);
}

TEST_F(CudaTensor, IsFilledAndCopiedOnTheDevice) {
  const Tensor zero = zeros({64, 64}, DType::kF32, cuda_);
  const Tensor other = empty({64, 64}, DType::kF32, cuda_);
  fill_(other, 2.5);
  EXPECT_EQ(static_cast<const float*>(to(zero, Device{}).const_data_ptr())[4095], 0.0f);
  copy_(zero, other);
  EXPECT_EQ(static_cast<const float*>(to(zero, Device{}).const_data_ptr())[4095], 2.5f);
  const Tensor part = zero.slice(0, 2, 4);
  copy_(part, full({2, 64}, 7.0));
  EXPECT_EQ(static_cast<const float*>(to(zero, Device{}).const_data_ptr())[128], 7.0f);
}

// What PyTorch hands over by DLPack, and gets back: one buffer, no copy.
TEST_F(CudaTensor, SharesItsBufferThroughDlpack) {
  Tensor shared = from_dlpack(to_dlpack_versioned(full({4, 4}, 1.0, DType::kF32, cuda_)));
  EXPECT_EQ(shared.device(), cuda_);
  DLManagedTensor* managed = to_dlpack(shared);
  EXPECT_EQ(managed->dl_tensor.device.device_type, kDLCUDA);
  EXPECT_EQ(managed->dl_tensor.device.device_id, 0);
  EXPECT_EQ(managed->dl_tensor.data, shared.data_ptr());
  // The other library writes its side of the buffer.
  backend_->fill(managed->dl_tensor.data, 0, shared.nbytes(), Stream{cuda_, 0});
  EXPECT_EQ(static_cast<const float*>(to(shared, Device{}).const_data_ptr())[5], 0.0f);
  shared = Tensor();
  EXPECT_EQ(allocator_->stats().allocation[0].current, 1) << "the other library still holds it";
  managed->deleter(managed);
  EXPECT_EQ(allocator_->stats().allocation[0].current, 0);
}

TEST_F(CudaTensor, RefusesWhatNeedsAKernel) {
  const Tensor there = zeros({4, 4}, DType::kF32, cuda_);
  EXPECT_THROW(copy_(there.transpose(0, 1), zeros({4, 4})), InvalidArgument);
  EXPECT_THROW(to(there.transpose(0, 1), DType::kF64), InvalidArgument);
  copy_(there, ones({4, 4}, DType::kI32));  // brought into line on the host
  copy_(there, ones({4}).expand({4, 4}));
  EXPECT_EQ(static_cast<const float*>(to(there, Device{}).const_data_ptr())[15], 1.0f);
}

// Each device with an allocator of its own, and no guard.
TEST(CudaTensors, OnSeveralDevicesComeFromTheirOwn) {
  const testing::StandIn machine("devices=2,lazy=1,seed=3");
  const std::unique_ptr<CudaBackend> backends[] = {machine.backend(0), machine.backend(1)};
  std::unique_ptr<DeviceAllocator> allocators[2];
  for (std::size_t i = 0; i < 2; ++i) {
    allocators[i] = make_policy("stitched", *backends[i]);
    set_device_allocator(backends[i]->device(), allocators[i].get());
  }
  {
    const Tensor host = arange(1000, DType::kI64);
    const Tensor first = to(host, Device{DeviceType::kCuda, 0});
    const Tensor second = to(host, Device{DeviceType::kCuda, 1});
    EXPECT_EQ(second.device(), (Device{DeviceType::kCuda, 1}));
    fill_(first, 7);
    for (const auto& allocator : allocators)
      EXPECT_EQ(allocator->stats().allocation[0].current, 1);
    EXPECT_EQ(static_cast<const std::int64_t*>(to(first, Device{}).const_data_ptr())[999], 7);
    EXPECT_EQ(static_cast<const std::int64_t*>(to(second, Device{}).const_data_ptr())[999], 999);
    DLManagedTensor* managed = to_dlpack(second);
    EXPECT_EQ(managed->dl_tensor.device.device_id, 1);
    managed->deleter(managed);
  }
  for (const auto& backend : backends) unset_device_allocator(backend->device());
  EXPECT_EQ(find_device_allocator(backends[1]->device()), nullptr);
  EXPECT_THROW(set_device_allocator({DeviceType::kCuda, 64}, allocators[0].get()),
               InvalidArgument);
  EXPECT_THROW(set_device_allocator({DeviceType::kCuda, 0}, nullptr), InvalidArgument);
}

TEST_F(CudaTensor, LackOfMemoryLeavesItWhole) {
  EXPECT_THROW(empty({std::int64_t{1} << 33}, DType::kF32, cuda_), OutOfMemory);
  EXPECT_EQ(to(to(arange(10), cuda_), Device{}).numel(), 10);
}

}  // namespace
}  // namespace tenon
