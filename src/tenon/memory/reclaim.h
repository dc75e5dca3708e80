// Idle memory, of policies and above them: who holds it, and how it is reclaimed when memory is
// short. Thread-safe. A shortage takes O(holders of idle memory).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/base/error.h"
#include "tenon/device/backend.h"

namespace tenon {

class Allocator;
class DeviceAllocator;
class Reclaimer;

// Where memory is held: a device and, where it is known, the driver in front of it. A driver before
// another one is at that one's place (Backend::source). Without a driver: at all of the device's.
struct ReclaimPlace {
  Device device;
  const Backend* backend = nullptr;
};
// Where an allocator's memory is.
ReclaimPlace reclaim_place_of(Allocator& allocator);

// A request that finds no memory: where, whose, and what refused it.
struct Shortage {
  ReclaimPlace place;
  const Allocator* asker = nullptr;  // its own cache is not asked; null: no allocator
  // The driver refused, so whatever goes back to it helps. False: a limit of the asker's own, which
  // only memory that was allocated from the asker brings down.
  bool of_driver = true;
  const Reclaimer* self = nullptr;  // the asker, where it is no allocator but a reclaimer
};

// Where idle memory came from, and so whom it helps.
struct IdleOrigin {
  // Straight from the driver: a policy's cache, a pool of pages.
  static IdleOrigin driver(Backend& backend);
  // Blocks of `upstream`.
  static IdleOrigin allocator(Allocator& upstream);

  ReclaimPlace place;
  // The allocators that the memory was allocated from, the nearest first; compared, never called.
  std::vector<const Allocator*> allocators;
  bool is_known = false;  // false: it may come from any allocator of the place besides
};

// Something that keeps memory for later: a pool, a cache.
class Reclaimer {
 public:
  virtual std::string reclaim_name() const = 0;      // "scope pool over caching"
  virtual std::uint64_t idle_bytes() const = 0;      // held, and not in use
  // Gives back what it can. Called with no lock of an allocator held; it may free, and what it
  // allocates asks no reclaimer in turn. An exception is swallowed.
  virtual void reclaim() = 0;

 protected:
  virtual ~Reclaimer() = default;
};

// Around fork(2): no reclaimer begins or ends meanwhile. In the child, a reclaimer that another
// thread was asking can be asked again and can end.
void reclaimers_before_fork();
void reclaimers_after_fork(bool in_child);

// Enrols a reclaimer until end(). A class declares it as its last member, so that the reclaimer is
// complete whenever it is asked. A destructor that does more than its members' calls end() first.
class ReclaimEnrolment {
 public:
  // `owner`: an allocator that does not ask this reclaimer; may be null.
  ReclaimEnrolment(IdleOrigin origin, Reclaimer& reclaimer, const Allocator* owner = nullptr);
  ~ReclaimEnrolment() { end(); }
  ReclaimEnrolment(const ReclaimEnrolment&) = delete;
  ReclaimEnrolment& operator=(const ReclaimEnrolment&) = delete;

  // From here on it is not asked. Waits for another thread that is asking it.
  void end();

  struct Slot;

 private:
  const std::shared_ptr<Slot> slot_;
};

// Enrols the cache of an allocator that stands on a driver: empty_cache is its reclaim. Every
// policy that caches has one, as its last member.
class IdleCache final : private Reclaimer {
 public:
  explicit IdleCache(DeviceAllocator& allocator);
  // As ReclaimEnrolment: the first thing in the destructor of a policy that has one.
  void end() { enrolment_.end(); }

 private:
  std::string reclaim_name() const override;
  std::uint64_t idle_bytes() const override;
  void reclaim() override;

  DeviceAllocator& allocator_;
  ReclaimEnrolment enrolment_;  // last
};
// Ends the enrolment of an allocator's cache: another allocator, in front of it, empties it.
void end_idle_cache_of(const Allocator& allocator);

// A program's own memory to give back: PyTorch's FreeMemoryCallback. Asked for every device, after
// the reclaimers above policies, and when the machine runs short (MachinePressure).
class FreeMemoryCallback {
 public:
  virtual ~FreeMemoryCallback() = default;
  // Lets memory go; returns whether it did. Asked once for each request that finds no memory. The
  // request is then tried once more, so give all that can be done without, whatever its size.
  // Called as Reclaimer::reclaim.
  virtual bool execute() = 0;
};

// Throws InvalidArgument for null or a name that is taken.
void add_free_memory_callback(std::string_view name, std::unique_ptr<FreeMemoryCallback> callback);
// Nothing happens when it is not there. A call on another thread may still run when this returns;
// the callback is destroyed after it.
void remove_free_memory_callback(std::string_view name);

// Allocators call this before they throw OutOfMemory, without locks of their own. Asks each holder
// of idle memory that helps, once. First the holders of memory from allocators, the latest enrolled
// first, so that a pool gives back before the pool it stands on. Then the callbacks, and if the
// driver is short, the caches of policies. True: the request is worth another try. Does nothing
// inside a reclaim of the same thread, or while a ReclaimPause lives.
bool reclaim_idle(const Shortage& shortage);

// Who still holds idle memory that would help: for the message of OutOfMemory.
std::vector<IdleHolder> idle_holders(const Shortage& shortage);

// The calling thread's requests reclaim nothing while it lives: for a request that has a cheaper
// way out than other caches.
class ReclaimPause {
 public:
  ReclaimPause();
  ~ReclaimPause();
  ReclaimPause(const ReclaimPause&) = delete;
  ReclaimPause& operator=(const ReclaimPause&) = delete;
};

}  // namespace tenon
