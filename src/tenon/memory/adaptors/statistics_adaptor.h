// Counts what passes.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "tenon/base/spin_lock.h"
#include "tenon/memory/adaptors/adaptor.h"

namespace tenon {

// What went through a StatisticsAdaptor, in bytes as asked for.
struct PassedStatistics {
  Stat blocks;
  Stat bytes;
  std::uint64_t zero_requests = 0;
  std::uint64_t failures = 0;                    // requests that the upstream threw at
  std::uint64_t largest_bytes = 0;               // of the blocks so far
  std::array<std::uint64_t, 49> by_octave = {};  // [n]: blocks of 2^n ... 2^(n+1) - 1 bytes
};

// Counts the requests that pass through it, and no others of the same upstream.
// Thread-safe (one short spin lock). Failure: the upstream's. O(1) beside the upstream.
template <typename Base>
class StatisticsAdaptor final : public Adaptor<Base> {
 public:
  explicit StatisticsAdaptor(std::type_identity_t<Base>& upstream) : Adaptor<Base>(upstream) {}

  // A copy of the counts so far.
  PassedStatistics passed() const {
    const std::lock_guard guard(lock_);
    return passed_;
  }
  // Peaks become the current values.
  void reset_passed_peaks() {
    const std::lock_guard guard(lock_);
    passed_.blocks.peak = passed_.blocks.current;
    passed_.bytes.peak = passed_.bytes.current;
  }

 protected:
  std::string adaptor_name() const override { return "statistics"; }
  DataPtr serve(std::size_t size_bytes, Stream stream) override {
    DataPtr inner;
    try {
      inner = this->from_upstream(size_bytes, stream);
    } catch (...) {
      const std::lock_guard guard(lock_);
      ++passed_.failures;
      throw;
    }
    DataPtr data = this->wrap(std::move(inner), size_bytes, stream);
    const std::lock_guard guard(lock_);
    if (size_bytes == 0) ++passed_.zero_requests;
    if (data == nullptr) return data;
    passed_.blocks.increase(1);
    passed_.bytes.increase(static_cast<std::int64_t>(size_bytes));
    passed_.largest_bytes = std::max<std::uint64_t>(passed_.largest_bytes, size_bytes);
    const auto octave = static_cast<std::size_t>(std::bit_width(size_bytes) - 1);
    ++passed_.by_octave[std::min(octave, passed_.by_octave.size() - 1)];
    return data;
  }
  void take_back(std::unique_ptr<AdaptorBlock> block) override {
    {
      const std::lock_guard guard(lock_);
      passed_.blocks.decrease(1);
      passed_.bytes.decrease(static_cast<std::int64_t>(block->size_bytes));
    }
    Adaptor<Base>::take_back(std::move(block));
  }

 private:
  mutable SpinLock lock_;
  PassedStatistics passed_;
};

// Over a DeviceAllocator it is one: Note [Adaptors] in adaptor.h.
template <typename A>
StatisticsAdaptor(A&) -> StatisticsAdaptor<AdaptorBase<A>>;

}  // namespace tenon
