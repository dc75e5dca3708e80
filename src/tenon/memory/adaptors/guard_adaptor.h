// Finds writes outside blocks, and into freed ones.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "tenon/memory/adaptors/adaptor.h"
#include "tenon/memory/adaptors/guard_report.h"

namespace tenon {

// What is kept around and after each block.
struct GuardOptions {
  std::size_t zone_bytes = 256;  // before and after each block; keeps alignment up to it
  std::uint64_t quarantine_bytes = 64 << 20;  // freed blocks held back; the oldest go first
  int stack_depth = 12;
  // Called with each report, on the thread that found it, with no lock held. Empty: to stderr. What
  // it throws ends the program when a free found the damage, since DataPtr's destructor is running.
  std::function<void(const GuardReport&)> on_damage;
  bool abort_on_damage = false;  // end the program (SIGABRT) after the first report
};

// Every block stands between two red zones; a freed block is filled with poison and held back for a
// while. Zones and poison are looked at when a block is freed, when it leaves the quarantine, and
// by check().
//
//   upstream's block:  | zone fb fb fb | data as asked for | zone fd fd fd |   freed: dd dd dd
//
// Finds writes, not reads, and only within the zones. A block freed twice is found while it is in
// quarantine and for kDeparted blocks thereafter; through the raw API it throws InvalidPointer
// besides. Each report says where the block was made and freed, and by whom (Tag). When the
// upstream runs out of memory the quarantine is emptied first. For memory that the host can reach:
// the constructor throws InvalidArgument on a device where it cannot. Thread-safe (one mutex).
// O(size) at each free.
template <typename Base>
class GuardAdaptor final : public Adaptor<Base> {
 public:
  static constexpr std::size_t kDeparted = 4096;

  explicit GuardAdaptor(std::type_identity_t<Base>& upstream, GuardOptions options = {});
  // Empties the quarantine, and reports what it finds there.
  ~GuardAdaptor() override;

  std::size_t alignment() const override {
    const std::size_t upstreams = Adaptor<Base>::alignment();
    const std::size_t zone_step = options_.zone_bytes & -options_.zone_bytes;  // its lowest bit
    return zone_step == 0 ? upstreams : std::min(upstreams, zone_step);
  }

  // Looks at every block, live and freed, now. Returns, and reports, the damage that was not
  // reported before.
  std::vector<GuardReport> check();
  void empty_quarantine();
  std::uint64_t reports() const;  // so far
  std::uint64_t quarantined_bytes() const;

  void raw_deallocate(void* data) override;

 protected:
  using typename AdaptorCore<Base>::Block;
  std::string adaptor_name() const override { return "guard"; }
  DataPtr serve(std::size_t size_bytes, Stream stream) override;
  void take_back(std::unique_ptr<Block> block) override;
  void release_kept() override { empty_quarantine(); }

 private:
  struct Guarded : Block {
    Tag made_by;
    Tag freed_by;
    CallStack made_at;
    CallStack freed_at;
    bool freed = false;
    bool zones_reported = false;
    bool poison_reported = false;
  };
  using Reports = std::vector<GuardReport>;

  GuardReport report_on(GuardReport::Kind kind, const Guarded& block) const;
  void inspect(Guarded& block, Reports& reports) const;
  void report(const Reports& reports);
  // Takes the oldest blocks out until at most `keep_bytes` remain; they are freed by the caller.
  std::vector<std::unique_ptr<Block>> evict(std::uint64_t keep_bytes, Reports& reports);
  void evict_and_free(std::uint64_t keep_bytes);

  const GuardOptions options_;
  mutable std::mutex mutex_;
  std::unordered_set<Guarded*> live_;
  std::deque<std::unique_ptr<Block>> quarantine_;  // freed first, first out
  std::deque<std::unique_ptr<Block>> departed_;    // records alone: their memory is given back
  std::uint64_t quarantined_bytes_ = 0;
  std::uint64_t reports_ = 0;
};

// Over a DeviceAllocator it is one: Note [Adaptors] in adaptor.h.
template <typename A, typename... Options>
GuardAdaptor(A&, Options&&...) -> GuardAdaptor<AdaptorBase<A>>;

extern template class GuardAdaptor<Allocator>;
extern template class GuardAdaptor<DeviceAllocator>;

}  // namespace tenon
