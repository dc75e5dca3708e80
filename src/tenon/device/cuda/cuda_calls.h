// How CudaBackend counts and times its calls. For its own sources.
#pragma once

#include <chrono>

#include "tenon/device/cuda/cuda_backend.h"
#include "tenon/device/cuda/cuda_scope.h"

namespace tenon {

inline std::uint64_t elapsed_ns_since(std::chrono::steady_clock::time_point start) {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now() - start)
                                        .count());
}

// Holds the backend's lock with its context current; counts a driver call and charges the time.
class CudaBackend::TimedCall {
 public:
  TimedCall(CudaBackend& backend, DriverCall call)
      : scope_(*backend.driver_, backend.context_),
        guard_(backend.mutex_),
        backend_(backend),
        start_(std::chrono::steady_clock::now()) {
    ++backend_.ledger_.calls[static_cast<std::size_t>(call)];
  }
  ~TimedCall() {
    const std::uint64_t elapsed_ns = elapsed_ns_since(start_);
    backend_.ledger_.stall_ns += elapsed_ns;
    if (backend_.purpose_ == DriverPurpose::kMoving) backend_.ledger_.moving_stall_ns += elapsed_ns;
  }
  TimedCall(const TimedCall&) = delete;
  TimedCall& operator=(const TimedCall&) = delete;

 private:
  const CudaScope scope_;
  const std::lock_guard<std::mutex> guard_;
  CudaBackend& backend_;
  const std::chrono::steady_clock::time_point start_;
};

// A wait of the host: the lock is taken only to count it.
class CudaBackend::WaitingCall {
 public:
  explicit WaitingCall(CudaBackend& backend)
      : scope_(*backend.driver_, backend.context_),
        backend_(backend),
        start_(std::chrono::steady_clock::now()) {}
  ~WaitingCall() {
    const std::uint64_t elapsed_ns = elapsed_ns_since(start_);
    const std::lock_guard guard(backend_.mutex_);
    ++backend_.ledger_.calls[static_cast<std::size_t>(DriverCall::kHostWait)];
    backend_.ledger_.stall_ns += elapsed_ns;
    if (backend_.purpose_ == DriverPurpose::kMoving) backend_.ledger_.moving_stall_ns += elapsed_ns;
  }
  WaitingCall(const WaitingCall&) = delete;
  WaitingCall& operator=(const WaitingCall&) = delete;

 private:
  const CudaScope scope_;
  CudaBackend& backend_;
  const std::chrono::steady_clock::time_point start_;
};

}  // namespace tenon
