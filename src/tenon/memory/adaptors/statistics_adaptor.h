// Counts what passes.
#pragma once

#include <array>
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

  // A copy of the counts so far; reset_passed_peaks() makes peaks the current values.
  PassedStatistics passed() const;
  void reset_passed_peaks();

 protected:
  using typename AdaptorCore<Base>::Block;
  std::string adaptor_name() const override { return "statistics"; }
  DataPtr serve(std::size_t size_bytes, Stream stream) override;
  void take_back(std::unique_ptr<Block> block) override;

 private:
  mutable SpinLock lock_;
  PassedStatistics passed_;
};

// Over a DeviceAllocator it is one: Note [Adaptors] in adaptor.h.
template <typename A>
StatisticsAdaptor(A&) -> StatisticsAdaptor<AdaptorBase<A>>;

extern template class StatisticsAdaptor<Allocator>;
extern template class StatisticsAdaptor<DeviceAllocator>;

}  // namespace tenon
