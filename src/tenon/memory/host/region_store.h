// The memory of one stream: regions from the driver, cut by best fit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "tenon/base/long_lock.h"
#include "tenon/device/backend.h"
#include "tenon/heap/best_fit_heap.h"
#include "tenon/memory/host/accounts.h"
#include "tenon/memory/observer.h"

namespace tenon {
class HostAllocator;
}

namespace tenon::host {

inline constexpr std::uint64_t kRegionUnit = 2 << 20;  // regions are multiples: huge pages
inline constexpr std::uint64_t kGrain = 64;              // large blocks are multiples
inline constexpr std::uint64_t kSpanAlignment = 64 << 10;  // spans are multiples, and begin at one

// The usual region on a device with so much memory. Few and large: a host's region costs addresses,
// not memory, until it is touched, and blocks do not fit across the border of two.
constexpr std::uint64_t region_bytes(std::uint64_t total_bytes) {
  return std::clamp<std::uint64_t>(total_bytes / 16 / kRegionUnit * kRegionUnit, kRegionUnit,
                                   512 << 20);
}

// One piece of driver memory.
struct Region {
  Segment segment;
  Stream stream;
  std::uint64_t offset = 0;
  std::uintptr_t origin = 0;  // the address at offset 0
  Block* whole = nullptr;     // its one block while it is wholly free
  // Each huge page: handed out since it was purged last. Where the store fits closely.
  std::vector<bool> resident;
  std::unique_ptr<Region> next;  // among those that went back
};

// Regions that went back to the driver: reported to the observers at its end, without a lock, also
// when the driver has refused something in between. Their own records are the list,
// so that a free can add to it.
class Released {
 public:
  explicit Released(ObserverList* observers) : observers_(observers) {}  // null: no report
  ~Released() {
    for (; first_ != nullptr; first_ = std::move(first_->next))
      if (observers_ != nullptr)
        observers_->report(MemoryEvent::kReleased, first_->segment.base,
                           first_->segment.size_bytes, first_->stream);
  }
  Released(const Released&) = delete;
  Released& operator=(const Released&) = delete;

  void add(std::unique_ptr<Region> region) {
    *end_ = std::move(region);
    end_ = &(*end_)->next;
  }

 private:
  ObserverList* const observers_;
  std::unique_ptr<Region> first_;
  std::unique_ptr<Region>* end_ = &first_;
};

// Hands out pieces of regions: spans to the threads' heaps, and large blocks.
//
// A piece's offset counts from the store's beginning; every region ever added comes after all
// earlier ones, so offsets do not depend on where the driver puts a region.
//
//   offsets:   | region 0        | region 1  | (gone)    | region 3 ...
//   addresses:   wherever the driver put each of them
//
// Decay: a region that has been wholly free for kDecayOperations takes and releases of its store
// goes back to the driver. Operations are counted, not time, so that a replay is the same each run.
// Where a backend has a clock for idle memory (limits().idle_ns), decay() goes by it as well.
//
// Note [close fit]: on such a backend the store also keeps what is resident near what is in use,
// since best fit alone touches more than was ever in use. When a block is the first in some huge
// page, and there are now more pages that may be resident than the highest use and kSlack, free
// ones go back to the system, the last first: best fit reaches these least. A page that goes back
// is touched again at the price of a fault, so what goes back is at most kGiveBack of the bytes
// taken since.
//
// Thread-safe. The lock is not held while the driver makes a region; while it takes memory back,
// threads that want the lock sleep. O(log n) besides the driver.
//
// Failure: std::bad_alloc for the store's own records, with nothing changed. release never throws.
class RegionStore {
 public:
  static constexpr std::uint64_t kDecayOperations = 4096;
  static constexpr std::uint64_t kSlack = 8;               // an eighth; Note [close fit]
  static constexpr std::uint64_t kLeastSlack = 16 << 20;   // bytes
  static constexpr std::uint64_t kGiveBack = 8;            // an eighth
  static constexpr std::uint64_t kGiveBackAtOnce = 64 << 20;

  // `limit_bytes` is for what all stores that share `accounts` reserve; 0: none.
  [[gnu::cold]] RegionStore(HostAllocator& allocator, Backend& backend, Accounts& accounts,
                            std::uint64_t limit_bytes, Stream stream)
      : allocator_(allocator),
        backend_(backend),
        accounts_(accounts),
        limit_bytes_(limit_bytes),
        stream_(stream),
        fits_closely_(backend.limits().idle_ns != 0) {}
  [[gnu::cold]] ~RegionStore();  // gives every region back, used or not
  RegionStore(const RegionStore&) = delete;
  RegionStore& operator=(const RegionStore&) = delete;

  // A piece from the regions there are, or null. Requires: size_bytes
  // is a multiple of kGrain. A multiple of kSpanAlignment begins at one.
  Block* take(std::uint64_t size_bytes);
  // The same after adding a region, of at least `region_bytes`; null when the driver has no
  // memory, or the limit forbids it.
  [[gnu::cold]] Block* grow_and_take(std::uint64_t size_bytes, std::uint64_t region_bytes);
  // Regions that have decayed go back to the driver, and into `released`. Allocates nothing.
  void release(Block* block, Released& released) noexcept;
  // All wholly free regions go back to the driver, one after the other into `released`. Throws
  // DeviceError when the driver refuses one; those not yet given back stay.
  [[gnu::cold]] void release_free_regions(Released& released);

  // To be called once every limits().idle_ns: what has been free since the last call but one goes
  // back to the driver, whole regions altogether, of others the whole huge pages inside.
  [[gnu::cold]] void decay(Released& released);
  // The same with all that is free, at once; and what was in use before is forgotten.
  [[gnu::cold]] void purge();

  static void* address_of(const Block* block) {
    const auto* region = static_cast<const Region*>(block->owner);
    return reinterpret_cast<void*>(region->origin + block->offset);
  }
  HostAllocator& allocator() const { return allocator_; }
  Stream stream() const { return stream_; }
  [[gnu::cold]] std::uint64_t largest_free_bytes() const;
  [[gnu::cold]] void check_invariants() const;

  // Around fork(2).
  void before_fork() {
    growth_.lock();
    lock_.before_fork();
  }
  void after_fork() {
    lock_.after_fork();
    growth_.unlock();
  }

 private:
  // The huge pages of a region that a block overlaps, or that lie inside it.
  struct Pages {
    std::uint64_t first = 0;
    std::uint64_t end = 0;
  };
  static Pages pages_around(const Block* block);
  static Pages pages_inside(const Block* block);

  Block* take_locked(std::uint64_t size_bytes);
  [[gnu::cold]] void add_region(std::unique_ptr<Region> region);
  void use(const Block* block);
  void fit_closely();
  [[gnu::cold]] std::vector<const Block*> free_blocks_from_the_end() const;
  void set_resident(Region& region, std::uint64_t page, bool now);
  [[gnu::cold]] void give_back(std::size_t index, Released& released);
  void give_back_old_regions(std::uint64_t until, Released& released);
  [[gnu::cold]] void purge_freed(std::uint64_t after, std::uint64_t until);

  HostAllocator& allocator_;
  Backend& backend_;
  Accounts& accounts_;
  const std::uint64_t limit_bytes_;
  const Stream stream_;
  const bool fits_closely_;
  std::mutex growth_;  // one thread at a time asks the driver for a region; before lock_
  mutable LongLock lock_;
  BestFitHeap heap_;
  std::vector<std::unique_ptr<Region>> regions_;  // by offset
  std::uint64_t end_offset_ = 0;
  std::uint64_t operations_ = 0;
  std::uint64_t next_look_ = 0;      // for decayed regions, at this operation
  // What was freed at or before these operations: has been purged; was seen by the last decay.
  std::uint64_t purged_until_ = 0;
  std::uint64_t seen_until_ = 0;
  std::uint64_t whole_regions_ = 0;  // wholly free
  // Note [close fit]
  std::uint64_t used_bytes_ = 0;
  std::uint64_t peak_used_bytes_ = 0;
  std::uint64_t resident_bytes_ = 0;               // in huge pages, at most
  std::uint64_t may_give_back_ = kGiveBackAtOnce;  // bytes
};

}  // namespace tenon::host
