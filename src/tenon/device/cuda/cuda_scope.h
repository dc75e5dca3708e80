// What surrounds every call into the driver.
#pragma once

#include "tenon/device/cuda/cuda_driver.h"

namespace tenon {

// Makes a context current for the calling thread, unless it is already, and puts things back.
// On a lost device it does nothing: the call within says what happened.
// Calls within it never spoil a graph capture of this thread: cuMemAlloc and cuEventQuery would end
// one in the global and thread-local modes, so the thread's mode is relaxed meanwhile.
// Throws DeviceError in a forked child.
class CudaScope {
 public:
  CudaScope(const CudaDriver& driver, cu::Context context) : driver_(driver) {
    driver_.require_same_process();
    cu::Context current = nullptr;
    cu::Result result = driver_.ctx_get_current(&current);
    if (result == cu::kSuccess && current != context) {
      result = driver_.ctx_push_current(context);
      pushed_ = result == cu::kSuccess;
    }
    if (result != cu::kSuccess && !CudaError::is_device_lost(result))
      driver_.fail(result, CudaDriver::describe(driver_.ctx_push_current, context));
    driver_.thread_exchange_capture_mode(&capture_mode_);
  }
  ~CudaScope() {
    driver_.thread_exchange_capture_mode(&capture_mode_);
    cu::Context popped = nullptr;
    if (pushed_) driver_.ctx_pop_current(&popped);
  }
  CudaScope(const CudaScope&) = delete;
  CudaScope& operator=(const CudaScope&) = delete;

 private:
  const CudaDriver& driver_;
  bool pushed_ = false;
  int capture_mode_ = cu::kCaptureModeRelaxed;  // while this lives: what it was before
};

}  // namespace tenon
