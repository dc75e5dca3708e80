// The stand-in driver, loaded, with its controls.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "cuda_stand_in/stand_in.h"
#include "tenon/device/cuda/cuda_backend.h"

namespace tenon::testing {

// One machine with the stand-in driver: set up anew, and checked at its end for misuse and leaks.
// Backends made by it must go before it does.
class StandIn {
 public:
  explicit StandIn(const std::string& setup = "") {
    library_ = ::dlopen(TENON_CUDA_STAND_IN_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library_, nullptr) << ::dlerror();
    find(reset_, "stand_in_reset");
    find(fail_, "stand_in_fail");
    find(fail_any_, "stand_in_fail_any");
    find(all_calls_, "stand_in_all_calls");
    find(end_, "stand_in_end");
    find(lose_device_, "stand_in_lose_device");
    find(take_, "stand_in_take");
    find(used_, "stand_in_used");
    find(rdma_bytes_, "stand_in_rdma_bytes");
    find(calls_, "stand_in_calls");
    find(pinned_, "stand_in_pinned");
    find(pending_, "stand_in_pending");
    find(faults_, "stand_in_faults");
    find(leaks_, "stand_in_leaks");
    reset_(setup.c_str());
  }
  ~StandIn() {
    if (checks_faults_) {
      EXPECT_EQ(faults(), "");
    }
    if (checks_leaks_) {
      EXPECT_EQ(leaks(), "");
    }
  }
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;

  // For tests that provoke them.
  void expect_faults() { checks_faults_ = false; }
  void expect_leaks() { checks_leaks_ = false; }

  std::shared_ptr<const CudaDriver> driver() const {
    return CudaDriver::open(TENON_CUDA_STAND_IN_LIBRARY);
  }
  std::unique_ptr<CudaBackend> backend(int index = 0) const {
    return std::make_unique<CudaBackend>(driver(), index);
  }

  void fail(const char* function, std::uint64_t nth, int result) { fail_(function, nth, result); }
  void fail_any(std::uint64_t nth, int result) { fail_any_(nth, result); }
  std::uint64_t all_calls() const { return all_calls_(); }
  void end() { end_(); }
  void lose_device(std::uint64_t calls) { lose_device_(calls); }
  void take(int device, std::uint64_t bytes) { take_(device, bytes); }
  std::uint64_t used(int device = 0) const { return used_(device); }
  std::uint64_t rdma_bytes() const { return rdma_bytes_(); }
  std::uint64_t calls(const char* function) const { return calls_(function); }
  std::uint64_t pinned() const { return pinned_(); }
  std::uint64_t pending() const { return pending_(); }
  std::string faults() const { return faults_(); }
  std::string leaks() const { return leaks_(); }

 private:
  template <typename F>
  void find(F& function, const char* name) {
    function = reinterpret_cast<F>(::dlsym(library_, name));
    EXPECT_NE(function, nullptr) << name;
  }

  void* library_ = nullptr;
  bool checks_faults_ = true;
  bool checks_leaks_ = true;
  decltype(&stand_in_reset) reset_ = nullptr;
  decltype(&stand_in_fail) fail_ = nullptr;
  decltype(&stand_in_fail_any) fail_any_ = nullptr;
  decltype(&stand_in_all_calls) all_calls_ = nullptr;
  decltype(&stand_in_end) end_ = nullptr;
  decltype(&stand_in_lose_device) lose_device_ = nullptr;
  decltype(&stand_in_take) take_ = nullptr;
  decltype(&stand_in_used) used_ = nullptr;
  decltype(&stand_in_rdma_bytes) rdma_bytes_ = nullptr;
  decltype(&stand_in_calls) calls_ = nullptr;
  decltype(&stand_in_pinned) pinned_ = nullptr;
  decltype(&stand_in_pending) pending_ = nullptr;
  decltype(&stand_in_faults) faults_ = nullptr;
  decltype(&stand_in_leaks) leaks_ = nullptr;
};

}  // namespace tenon::testing
