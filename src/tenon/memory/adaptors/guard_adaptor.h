// Finds writes outside blocks, and into freed ones.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
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

// What the guard knows of blocks, over whatever allocator. Thread-safe (one mutex).
class GuardedBlocks {
 public:
  static constexpr std::size_t kDeparted = 4096;

  // Looks at every block, live and freed, now. Returns, and reports, the damage that was not
  // reported before.
  std::vector<GuardReport> check();
  void empty_quarantine() { evict(0); }
  std::uint64_t reports() const { return reports_; }  // so far
  std::uint64_t quarantined_bytes() const { return quarantined_bytes_; }

 protected:
  using Blocks = std::list<std::unique_ptr<AdaptorBlock>>;  // records, in the order of frees
  // The record of one block.
  struct Guarded : AdaptorBlock {
    GuardReport known;
    Blocks place = Blocks(1);  // in the quarantine, so that a free allocates nothing
    bool freed = false;
    bool zones_reported = false;
    bool poison_reported = false;
  };

  explicit GuardedBlocks(GuardOptions options);
  // Empties the quarantine, and reports what it finds there.
  ~GuardedBlocks();
  // Throws InvalidArgument where the host cannot write zones.
  static void require_reachable(const Backend& backend);

  // Writes the zones. The record has what to hand out in `data`.
  std::unique_ptr<Guarded> enclose(void* padded, std::size_t size_bytes);
  // check() looks at the block from now on. Its record is complete.
  void watch(Guarded& block);
  // A block is freed: it goes to the quarantine.
  void hold_back(std::unique_ptr<AdaptorBlock> block);
  // The raw API refuses the pointer. If it is a block that was here, a report says what became of
  // it.
  void explain_refusal(const void* data);

  const GuardOptions options_;

 private:
  using Reports = std::vector<GuardReport>;

  void inspect(Guarded& block, Reports& reports) const;
  void report(const Reports& reports);
  // The oldest blocks go back upstream until at most `keep_bytes` remain.
  void evict(std::uint64_t keep_bytes);

  mutable std::mutex mutex_;
  std::unordered_set<Guarded*> live_;
  Blocks quarantine_;  // freed first, first out
  Blocks departed_;    // records alone: their memory is back
  std::atomic<std::uint64_t> quarantined_bytes_{0};
  std::atomic<std::uint64_t> reports_{0};
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
class GuardAdaptor final : public Adaptor<Base>, public GuardedBlocks {
 public:
  explicit GuardAdaptor(std::type_identity_t<Base>& upstream, GuardOptions options = {})
      : Adaptor<Base>(upstream), GuardedBlocks(std::move(options)) {
    if constexpr (AdaptorCore<Base>::kOnDevice) require_reachable(upstream.backend());
  }

  std::size_t alignment() const override {
    const std::size_t upstreams = Adaptor<Base>::alignment();
    const std::size_t zone_step = options_.zone_bytes & -options_.zone_bytes;  // its lowest bit
    return zone_step == 0 ? upstreams : std::min(upstreams, zone_step);
  }
  void raw_deallocate(void* data) override {
    try {
      Adaptor<Base>::raw_deallocate(data);
    } catch (const InvalidPointer&) {
      explain_refusal(data);
      throw;
    }
  }

 protected:
  std::string adaptor_name() const override { return "guard"; }
  DataPtr serve(std::size_t size_bytes, Stream stream) override {
    const std::size_t zones = 2 * options_.zone_bytes;
    DataPtr inner;
    try {
      inner = this->padded_from_upstream(zones, size_bytes, stream);
    } catch (const OutOfMemory&) {
      if (quarantined_bytes() == 0) throw;
      empty_quarantine();
      inner = this->padded_from_upstream(zones, size_bytes, stream);
    }
    if (inner == nullptr) return inner;
    auto block = enclose(inner.get(), size_bytes);
    Guarded& record = *block;
    DataPtr guarded =
        this->wrap(std::move(inner), size_bytes, stream, std::move(block), record.data);
    watch(record);
    return guarded;
  }
  void take_back(std::unique_ptr<AdaptorBlock> block) override { hold_back(std::move(block)); }
  void release_kept() override { empty_quarantine(); }
};

// Over a DeviceAllocator it is one: Note [Adaptors] in adaptor.h.
template <typename A, typename... Options>
GuardAdaptor(A&, Options&&...) -> GuardAdaptor<AdaptorBase<A>>;

}  // namespace tenon
