// Idle memory above the policies: what holds it, and how it is reclaimed when memory is short.
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

// Where memory is short, or is held: a device and, where it is known, the driver in front of it.
// Two backends of one device are two places; a place without a backend meets every backend.
struct ReclaimPlace {
  Device device;
  const Backend* backend = nullptr;

  // Whether memory at one helps the other.
  bool meets(const ReclaimPlace& other) const {
    return device == other.device &&
           (backend == nullptr || other.backend == nullptr || backend == other.backend);
  }
};
// Where an allocator's memory is.
ReclaimPlace reclaim_place_of(Allocator& allocator);

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

// Around fork(2): no reclaimer begins or ends meanwhile. One that another thread was asking is
// passed over in the child.
void reclaimers_before_fork();
void reclaimers_after_fork();

// Enrols a reclaimer for as long as the object lives. A class declares it as its last member, so
// that the reclaimer is whole whenever it is asked. The destructor waits for a reclaim of another
// thread. `owner`: an allocator that does not ask this reclaimer; may be null.
class ReclaimEnrolment {
 public:
  ReclaimEnrolment(ReclaimPlace place, Reclaimer& reclaimer, const Allocator* owner = nullptr);
  ~ReclaimEnrolment();
  ReclaimEnrolment(const ReclaimEnrolment&) = delete;
  ReclaimEnrolment& operator=(const ReclaimEnrolment&) = delete;

  struct Slot;

 private:
  const std::shared_ptr<Slot> slot_;
};

// Enrols the cache of an allocator: empty_cache is its reclaim. Pinned memory, private pools and
// arenas have one; a program may give one to any other.
class IdleCache final : private Reclaimer {
 public:
  explicit IdleCache(DeviceAllocator& allocator);

 private:
  std::string reclaim_name() const override;
  std::uint64_t idle_bytes() const override;
  void reclaim() override;

  DeviceAllocator& allocator_;
  const ReclaimEnrolment enrolment_;  // last
};

// A program's own memory to give back, by a class that is registered under a name: PyTorch's
// FreeMemoryCallback. Asked for every device, after all reclaimers.
class FreeMemoryCallback {
 public:
  virtual ~FreeMemoryCallback() = default;
  // Lets memory go; returns whether it did. Asked once for each request that finds no memory: the
  // request is then tried once more, so give all that can be done without, whatever its size. Also
  // asked when the machine runs short (MachinePressure). Called with no lock of an allocator held:
  // it may free, and what it allocates asks nobody. An exception is swallowed.
  virtual bool execute() = 0;
};

// Throws InvalidArgument for null or a name that is taken.
void add_free_memory_callback(std::string_view name, std::unique_ptr<FreeMemoryCallback> callback);
void remove_free_memory_callback(std::string_view name);  // nothing happens when it is not there

// What an allocator does before it says out of memory, with no lock of its own held: asks all who
// hold idle memory at the place, in the order they enrolled, except `asker`'s own. True: something
// may have come back, so the request is worth another try. A reclaim that starts inside a reclaim
// of the same thread, or while a ReclaimPause lives, does nothing.
bool reclaim_idle(const ReclaimPlace& place, const Allocator* asker);

// What is still held idle there, `asker`'s own excepted: for the message of OutOfMemory.
std::vector<IdleHolder> idle_holders(const ReclaimPlace& place, const Allocator* asker);

// The calling thread's requests reclaim nothing while it lives: for a request that has a cheaper
// way out than other caches.
class ReclaimPause {
 public:
  ReclaimPause();
  ~ReclaimPause();
  ReclaimPause(const ReclaimPause&) = delete;
  ReclaimPause& operator=(const ReclaimPause&) = delete;
};

namespace detail {

struct FreeMemoryCallbackRegistration {
  FreeMemoryCallbackRegistration(std::string_view name,
                                 std::unique_ptr<FreeMemoryCallback> callback) {
    add_free_memory_callback(name, std::move(callback));
  }
};

}  // namespace detail
}  // namespace tenon

// At namespace scope of a source file: registers a class derived from FreeMemoryCallback, with a
// default constructor, under `name` (an identifier) before main.
#define TENON_REGISTER_FREE_MEMORY_CALLBACK(name, callback_class)                             \
  static const ::tenon::detail::FreeMemoryCallbackRegistration tenon_free_memory_callback_##name( \
      #name, std::make_unique<callback_class>())
