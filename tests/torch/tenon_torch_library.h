// libtenon_torch.so, loaded, over the stand-in driver.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/types.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "support/cuda_stand_in.h"
#include "tenon/device/cuda/cuda_scope.h"

namespace tenon::testing {

using PoolId = std::pair<unsigned long long, unsigned long long>;

// The process's one library, over the stand-in driver. Both keep their state from test to test, as
// in a program, so each test cleans up after itself.
class TenonTorchLibrary : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (library_ != nullptr) return;
    ::setenv("TENON_CUDA_DRIVER", TENON_CUDA_STAND_IN_LIBRARY, 1);
    ::setenv("TENON_CUDA_STAND_IN", "lazy=1,capacity=1073741824,devices=2", 1);
#ifdef TENON_LIBC10
    ASSERT_NE(::dlopen(TENON_LIBC10, RTLD_NOW | RTLD_LOCAL), nullptr);  // as Python loads it
#endif
    fake_ = ::dlopen(TENON_FAKE_C10_CUDA, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(fake_, nullptr) << ::dlerror();
    library_ = ::dlopen(TENON_TORCH_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << ::dlerror();
    driver_ = CudaDriver::open(TENON_CUDA_STAND_IN_LIBRARY);
    driver_->call(driver_->primary_ctx_retain, &context_, 0);
    driver_->call(driver_->primary_ctx_retain, &context_1_, 1);
    ASSERT_EQ(find<int(const char*, const char*, const char*, const char*, int)>(
                  "tenon_torch_configure")("stitched", "", "", TENON_TORCH_LIBRARY, 0),
              0);
  }

  void TearDown() override {
    find<void()>("tenon_reset")();
    for (cu::Context context : {context_, context_1_}) {  // what is queued still finds its memory
      const CudaScope scope(*driver_, context);
      EXPECT_EQ(driver_->ctx_synchronize(), cu::kSuccess);
    }
    EXPECT_EQ(stand_in<const char*()>("stand_in_faults")(), std::string());
    EXPECT_EQ(used(), 0u);
    set_current(nullptr, false);
  }
  static std::uint64_t used(int device = 0) {
    return stand_in<std::uint64_t(int)>("stand_in_used")(device);
  }
  static std::uint64_t calls(const char* function) {
    return stand_in<std::uint64_t(const char*)>("stand_in_calls")(function);
  }

  template <typename F>
  static F* find(const char* name) {
    auto* function = reinterpret_cast<F*>(::dlsym(library_, name));
    EXPECT_NE(function, nullptr) << name;
    return function;
  }
  template <typename F>
  static F* stand_in(const char* name) {
    void* library = ::dlopen(TENON_CUDA_STAND_IN_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    return reinterpret_cast<F*>(::dlsym(library, name));
  }

  static void* allocate(ssize_t size, cu::Stream stream = nullptr, int device = 0) {
    return find<void*(ssize_t, int, cu::Stream)>("tenon_malloc")(size, device, stream);
  }
  static void free(void* data, cu::Stream stream = nullptr, int device = 0) {
    find<void(void*, ssize_t, int, cu::Stream)>("tenon_free")(data, 0, device, stream);
  }
  static void record_stream(void* data, cu::Stream stream) {
    find<void(void*, cu::Stream)>("tenon_record_stream")(data, stream);
  }

  // PyTorch's current stream: of its own pool, which is never destroyed, or an external one.
  static void set_current(cu::Stream stream, bool own) {
    reinterpret_cast<void (*)(cu::Stream, bool)>(::dlsym(fake_, "fake_set_current_stream"))(stream,
                                                                                           own);
  }

  cu::Stream make_stream(int device = 0) {
    const CudaScope scope(*driver_, device == 0 ? context_ : context_1_);
    cu::Stream stream = nullptr;
    driver_->call(driver_->stream_create, &stream, cu::kStreamNonBlocking);
    return stream;
  }
  void destroy_stream(cu::Stream stream) {
    const CudaScope scope(*driver_, context_);
    driver_->call(driver_->stream_destroy, stream);
  }
  void fill(void* data, int value, std::size_t size, cu::Stream stream, int device = 0) {
    const CudaScope scope(*driver_, device == 0 ? context_ : context_1_);
    driver_->call(driver_->memset_d8_async,
                  static_cast<cu::Address>(reinterpret_cast<std::uintptr_t>(data)),
                  static_cast<unsigned char>(value), size, stream);
  }
  char first_byte(void* data) {
    const CudaScope scope(*driver_, context_);
    char byte = 0;
    driver_->call(driver_->ctx_synchronize);
    {
      const CudaScope other(*driver_, context_1_);
      driver_->call(driver_->ctx_synchronize);
    }
    driver_->call(driver_->memcpy_async,
                  static_cast<cu::Address>(reinterpret_cast<std::uintptr_t>(&byte)),
                  static_cast<cu::Address>(reinterpret_cast<std::uintptr_t>(data)),
                  std::size_t{1}, cu::Stream{nullptr});
    return byte;
  }

  inline static void* library_ = nullptr;
  inline static std::shared_ptr<const CudaDriver> driver_;
  inline static void* fake_ = nullptr;  // libc10_cuda
  inline static cu::Context context_ = nullptr;
  inline static cu::Context context_1_ = nullptr;
};

class Capture {
 public:
  Capture(const CudaDriver& driver, cu::Context context, cu::Stream stream)
      : driver_(driver), scope_(driver, context), stream_(stream) {}
  void begin() {  // in PyTorch's order: outside of our scope's relaxed mode
    int mode = cu::kCaptureModeGlobal;
    driver_.thread_exchange_capture_mode(&mode);
    driver_.call(driver_.stream_begin_capture, stream_, cu::kCaptureModeGlobal);
  }
  cu::GraphExec end() {
    cu::Graph graph = nullptr;
    driver_.call(driver_.stream_end_capture, stream_, &graph);
    cu::GraphExec executable = nullptr;
    driver_.call(driver_.graph_instantiate, &executable, graph, 0ull);
    driver_.call(driver_.graph_destroy, graph);
    return executable;
  }

 private:
  const CudaDriver& driver_;
  CudaScope scope_;
  cu::Stream stream_;
};

}  // namespace tenon::testing
