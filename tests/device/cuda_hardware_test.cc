// The backend on a real GPU; skipped where there is none.
//
// The whole suite of the contract runs there, too, when TENON_TEST_CUDA_HARDWARE is set, as in
// make check-cuda; not by itself, since a list of tests must not need a driver.
#include <gtest/gtest.h>

#include <cstdlib>

#include "device/backend_conformance.h"
#include "tenon/base/byte_size.h"
#include "tenon/device/cuda/cuda_backend.h"
#include "tenon/device/cuda/cuda_scope.h"
#include "tenon/device/cuda/stamp_kernels.h"

namespace tenon {
namespace {

// The driver that everything else would use here (CudaDriver::standard, which opens it but once).
std::shared_ptr<const CudaDriver> open_driver() {
  const char* chosen = std::getenv("TENON_CUDA_DRIVER");
  return CudaDriver::open(chosen != nullptr && *chosen != '\0' ? chosen : "libcuda.so.1");
}

class CudaHardware : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      backend_ = std::make_unique<CudaBackend>(open_driver(), 0);
    } catch (const DeviceError& error) {
      GTEST_SKIP() << error.what();
    }
    page_ = backend_->limits().page_granularity;
  }
  static void* at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }
  char byte_at(std::uintptr_t address) {
    char seen = 0;
    const Stream stream{backend_->device(), 0};
    backend_->copy(&seen, at(address), 1, stream);
    backend_->synchronize();
    return seen;
  }

  std::unique_ptr<CudaBackend> backend_;
  std::uint64_t page_ = 0;
};

TEST_F(CudaHardware, SaysWhatItIs) {
  EXPECT_FALSE(backend_->description().empty());
  const BackendMemory memory = backend_->memory();
  EXPECT_GT(memory.total_bytes, kGiB);
  EXPECT_LE(memory.free_bytes, memory.total_bytes);
}

TEST_F(CudaHardware, SegmentsOfEveryKindAreReached) {
  const Stream stream = backend_->create_stream();
  for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kPinned, MemoryKind::kManaged}) {
    const auto segment = backend_->allocate_segment(kMiB, kind);
    ASSERT_TRUE(segment);
    backend_->fill(segment->base, 'k', kMiB, stream);
    backend_->synchronize(stream);
    EXPECT_EQ(byte_at(reinterpret_cast<std::uintptr_t>(segment->base) + kMiB - 1), 'k');
    backend_->free_segment(*segment);
  }
}

TEST_F(CudaHardware, PagesAreMappedUsedAndUnmapped) {
  if (page_ == 0) GTEST_SKIP() << "no virtual memory";
  const Stream stream = backend_->create_stream();
  const auto range = backend_->reserve_address(4 * page_);
  const auto pages = backend_->create_pages(page_);
  ASSERT_TRUE(range && pages);
  ASSERT_TRUE(backend_->map(range->base, *pages));
  ASSERT_TRUE(backend_->set_access(range->base, page_));
  backend_->fill(at(range->base), 'h', page_, stream);
  backend_->synchronize(stream);
  EXPECT_EQ(byte_at(range->base + page_ - 1), 'h');
  backend_->unmap(range->base, *pages);
  backend_->release_pages(*pages);
  backend_->release_address(*range);
  EXPECT_EQ(backend_->held_bytes(), 0u);
}

// What stitched memory stands on: the next work on the stream sees what the last wrote elsewhere.
TEST_F(CudaHardware, OnePageAtTwoAddressesIsOneMemoryInStreamOrder) {
  if (page_ == 0) GTEST_SKIP() << "no virtual memory";
  const Stream stream = backend_->create_stream();
  StampKernels kernels(*backend_);
  const auto range = backend_->reserve_address(2 * page_);
  const auto pages = backend_->create_pages(page_);
  ASSERT_TRUE(range && pages);
  for (const std::uintptr_t address : {range->base, range->base + page_}) {
    ASSERT_TRUE(backend_->map(address, *pages));
    ASSERT_TRUE(backend_->set_access(address, page_));
  }
  for (std::uint64_t i = 1; i <= 200; ++i) {
    const bool swap = i % 2 == 0;
    kernels.stamp(stream, at(range->base + (swap ? page_ : 0)), page_, i);
    kernels.check(stream, at(range->base + (swap ? 0 : page_)), page_, i);
  }
  EXPECT_EQ(kernels.wrong_words(), 0u);
  kernels.check(stream, at(range->base), page_, 12345);
  EXPECT_GT(kernels.wrong_words(), 0u) << "the check sees what is wrong";
  backend_->unmap(range->base, *pages);
  kernels.stamp(stream, at(range->base + page_), page_, 7);
  backend_->synchronize(stream);
  backend_->unmap(range->base + page_, *pages);
  backend_->release_pages(*pages);
}

TEST_F(CudaHardware, EventsOrderStreams) {
  const Stream first = backend_->create_stream();
  const Stream second = backend_->create_stream();
  StampKernels kernels(*backend_);
  const auto segment = backend_->allocate_segment(64 * kMiB);
  ASSERT_TRUE(segment);
  for (std::uint64_t i = 1; i <= 20; ++i) {
    kernels.stamp(first, segment->base, 64 * kMiB, i);
    const Event written = backend_->record(first);
    backend_->stream_wait(second, written);
    kernels.check(second, segment->base, 64 * kMiB, i);
    const Event checked = backend_->record(second);
    backend_->stream_wait(first, checked);
    backend_->wait(written);
    EXPECT_TRUE(backend_->query(written));
    backend_->destroy_event(written);
    backend_->destroy_event(checked);
  }
  EXPECT_EQ(kernels.wrong_words(), 0u);
  backend_->free_segment(*segment);
}

// Note [Events of a capturing stream]: growth, events and refusals leave the capture whole.
TEST_F(CudaHardware, ACaptureSurvivesTheBackendsCalls) {
  const Stream stream = backend_->create_stream();
  const Stream other = backend_->create_stream();
  const CudaDriver& driver = backend_->driver();
  const auto target = backend_->allocate_segment(kMiB);
  ASSERT_TRUE(target);
  const CudaScope scope(driver, backend_->context());
  int mode = cu::kCaptureModeGlobal;  // as PyTorch's thread: the scope's is relaxed
  driver.thread_exchange_capture_mode(&mode);
  driver.call(driver.stream_begin_capture, backend_->stream_handle(stream),
              cu::kCaptureModeGlobal);
  EXPECT_TRUE(backend_->is_capturing(stream));
  const Event inside = backend_->record(stream);
  EXPECT_FALSE(backend_->query(inside));
  const Event outside = backend_->record(other);
  backend_->wait(outside);
  EXPECT_TRUE(backend_->query(outside));
  EXPECT_THROW(backend_->stream_wait(stream, outside), DeviceError);
  EXPECT_THROW(backend_->synchronize(), DeviceError);
  const auto grown = backend_->allocate_segment(kMiB);
  EXPECT_TRUE(grown);
  if (page_ != 0) {
    const auto range = backend_->reserve_address(page_);
    const auto pages = backend_->create_pages(page_);
    ASSERT_TRUE(range && pages);
    EXPECT_TRUE(backend_->map(range->base, *pages));
    EXPECT_TRUE(backend_->set_access(range->base, page_));
    backend_->unmap(range->base, *pages);
    backend_->release_pages(*pages);
    backend_->release_address(*range);
  }
  backend_->fill(target->base, 'g', kMiB, stream);
  cu::Graph graph = nullptr;
  driver.call(driver.stream_end_capture, backend_->stream_handle(stream), &graph);
  driver.thread_exchange_capture_mode(&mode);
  ASSERT_NE(graph, nullptr);
  cu::GraphExec executable = nullptr;
  driver.call(driver.graph_instantiate, &executable, graph, 0ull);
  driver.call(driver.graph_launch, executable, backend_->stream_handle(stream));
  backend_->wait(inside);
  EXPECT_EQ(byte_at(reinterpret_cast<std::uintptr_t>(target->base) + kMiB - 1), 'g');
  driver.call(driver.graph_exec_destroy, executable);
  driver.call(driver.graph_destroy, graph);
  backend_->free_segment(*grown);
  backend_->free_segment(*target);
}

// --- The contract's suite.

std::vector<BackendCase> hardware() {
  if (std::getenv("TENON_TEST_CUDA_HARDWARE") == nullptr) return {};
  return {{.name = "first_device", .make = []() -> std::shared_ptr<Backend> {
             return std::make_shared<CudaBackend>(open_driver(), 0);
           }}};
}

INSTANTIATE_TEST_SUITE_P(CudaHardware, BackendConformance, ::testing::ValuesIn(hardware()),
                         case_name);
INSTANTIATE_TEST_SUITE_P(CudaHardware, VirtualMemoryConformance, ::testing::ValuesIn(hardware()),
                         case_name);

}  // namespace
}  // namespace tenon
