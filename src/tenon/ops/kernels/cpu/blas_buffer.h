// Address space for OpenBLAS.
#pragma once

#include <atomic>

namespace tenon::ops::cpu {

// Stands around each call of OpenBLAS, which maps one buffer for every call that runs at a time and
// keeps it. Where the system refuses the mapping, OpenBLAS tries again without end. So the first
// calls, up to as many at a time as there are threads, test that the mapping succeeds. OpenBLAS
// computes small products without a buffer on some processors, so the first large ones test again.
class BlasCall {
 public:
  // For `products` multiplications. Throws OutOfMemory where a buffer cannot be mapped.
  explicit BlasCall(double products) : calls_(of_[products > kSmallProducts ? 1 : 0]) {
    if (!calls_.all_tested.load(std::memory_order_relaxed)) {
      calls_.enter();
      entered_ = true;
    }
  }
  ~BlasCall() {
    if (entered_) calls_.running.fetch_sub(1);
  }
  BlasCall(const BlasCall&) = delete;
  BlasCall& operator=(const BlasCall&) = delete;

 private:
  static constexpr double kSmallProducts = 28.0 * 512 * 512;  // sgemm_direct, the larger limit

  struct Calls {
    void enter();

    std::atomic<bool> all_tested{false};
    std::atomic<int> running{0};
    int tested = 0;  // calls at a time; under enter()'s lock
  };

  static Calls of_[2];  // small, large
  Calls& calls_;
  bool entered_ = false;
};

}  // namespace tenon::ops::cpu
