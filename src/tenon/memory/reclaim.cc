#include "tenon/memory/reclaim.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <new>

#include "tenon/base/spin_lock.h"
#include "tenon/device/shortage.h"
#include "tenon/memory/device_allocator.h"

namespace tenon {

// Outlives its enrolment, so that a thread that reclaims needs no lock on the list meanwhile.
struct ReclaimEnrolment::Slot {
  IdleOrigin origin;
  const Allocator* owner = nullptr;
  std::recursive_mutex busy;       // held while the reclaimer is asked
  Reclaimer* reclaimer = nullptr;  // null: it has ended
};

namespace {

using Slot = ReclaimEnrolment::Slot;

// A thread may hold an allocator's lock that a reclaim of another thread waits for (a
// ThreadSafeAdaptor); then this thread's request must not wait for that reclaim for ever.
constexpr auto kPatience = std::chrono::milliseconds(200);

// Holds `mutex`, or nothing when kPatience has passed. ThreadSanitizer does not know what a timed
// mutex calls.
std::unique_lock<std::recursive_mutex> try_for_long(std::recursive_mutex& mutex) {
  std::unique_lock lock(mutex, std::defer_lock);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  Backoff backoff;
  while (!lock.try_lock() && std::chrono::steady_clock::now() < deadline) backoff.wait();
  return lock;
}

struct Registry {
  std::mutex mutex;
  std::vector<std::shared_ptr<Slot>> slots;  // in order of enrolment
  std::map<std::string, std::shared_ptr<FreeMemoryCallback>, std::less<>> callbacks;
};

// A driver that is short asks as an allocator does.
class DriversAsk final : public ShortageHandler {
 public:
  bool relieve(const Backend& driver) override { return reclaim_idle(shortage_of(driver)); }
  std::vector<IdleHolder> holders(const Backend& driver) override {
    return idle_holders(shortage_of(driver));
  }

 private:
  static Shortage shortage_of(const Backend& driver) {
    return {{driver.device(), &driver}, nullptr, true};
  }
};

Registry& registry() {
  static auto* const the_registry = [] {
    set_shortage_handler(new DriversAsk);
    return new Registry;
  }();
  return *the_registry;  // pools may end after every static object
}

constinit thread_local int pauses = 0;

ReclaimPlace at_source(ReclaimPlace place) {
  if (place.backend != nullptr) place.backend = &place.backend->source();
  return place;
}

// Whether memory at one place helps the other. Both are at_source.
bool meets(const ReclaimPlace& a, const ReclaimPlace& b) {
  return a.device == b.device &&
         (a.backend == nullptr || b.backend == nullptr || a.backend == b.backend);
}

bool is_of_driver(const IdleOrigin& origin) {
  return origin.is_known && origin.allocators.empty();
}

bool helps(const Slot& slot, const Shortage& shortage) {
  const IdleOrigin& origin = slot.origin;
  if (!meets(origin.place, shortage.place)) return false;
  if (slot.owner != nullptr && slot.owner == shortage.asker) return false;
  if (shortage.self != nullptr && slot.reclaimer == shortage.self) return false;
  if (shortage.of_driver || !origin.is_known) return true;
  return std::any_of(
      origin.allocators.begin(), origin.allocators.end(),
      [&](const Allocator* each) { return shortage.asker == nullptr || each == shortage.asker; });
}

template <typename Wanted>
std::vector<std::shared_ptr<Slot>> slots_that(Wanted&& wanted) {
  std::vector<std::shared_ptr<Slot>> slots;
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (const auto& slot : all.slots)
    if (wanted(*slot)) slots.push_back(slot);
  return slots;
}

std::vector<std::shared_ptr<Slot>> slots_that_help(Shortage shortage) {
  shortage.place = at_source(shortage.place);
  return slots_that([&](const Slot& slot) { return helps(slot, shortage); });
}

// Calls visit(reclaimer) unless it has ended, or another thread keeps asking it.
template <typename Visit>
void visit_slot(Slot& slot, Visit&& visit) {
  const auto lock = try_for_long(slot.busy);
  if (lock.owns_lock() && slot.reclaimer != nullptr) visit(*slot.reclaimer);
}

void end_slot(const std::shared_ptr<Slot>& slot) {
  {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    std::erase(all.slots, slot);
  }
  const std::lock_guard lock(slot->busy);
  slot->reclaimer = nullptr;
}

bool ask(Reclaimer& reclaimer) {
  try {
    const std::uint64_t before = reclaimer.idle_bytes();
    if (before == 0) return false;
    reclaimer.reclaim();
    return reclaimer.idle_bytes() < before;
  } catch (...) {
    return false;  // a driver that refuses, for one: the request fails by its own message
  }
}

bool run_callbacks() {
  Registry& all = registry();
  std::unique_lock lock(all.mutex);
  const auto callbacks = all.callbacks;
  lock.unlock();
  bool any = false;
  for (const auto& [name, callback] : callbacks) {
    try {
      any |= callback->execute();
    } catch (...) {
    }
  }
  return any;
}

}  // namespace

void reclaimers_before_fork() { registry().mutex.lock(); }
void reclaimers_after_fork(bool in_child) {
  for (const auto& slot : registry().slots)
    if (in_child && !std::unique_lock(slot->busy, std::try_to_lock).owns_lock())
      new (&slot->busy) std::recursive_mutex;  // its owner is a thread of the parent alone
  registry().mutex.unlock();
}

ReclaimPlace reclaim_place_of(Allocator& allocator) {
  if (const auto* on_device = dynamic_cast<DeviceAllocator*>(&allocator))
    return {on_device->device(), &on_device->backend()};
  return {allocator.allocate(0).device(), nullptr};
}

IdleOrigin IdleOrigin::driver(Backend& backend) {
  return {{backend.device(), &backend}, {}, true};
}

IdleOrigin IdleOrigin::allocator(Allocator& upstream) {
  IdleOrigin origin{reclaim_place_of(upstream), {&upstream}, false};
  if (const auto* on_device = dynamic_cast<const DeviceAllocator*>(&upstream)) {
    origin.allocators.clear();
    on_device->add_sources(origin.allocators);
    origin.is_known = true;
  }
  return origin;
}

ReclaimEnrolment::ReclaimEnrolment(IdleOrigin origin, Reclaimer& reclaimer,
                                   const Allocator* owner)
    : slot_(std::make_shared<Slot>()) {
  slot_->origin = std::move(origin);
  slot_->origin.place = at_source(slot_->origin.place);
  slot_->owner = owner;
  slot_->reclaimer = &reclaimer;
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.slots.push_back(slot_);
}

void ReclaimEnrolment::end() { end_slot(slot_); }

IdleCache::IdleCache(DeviceAllocator& allocator)
    : allocator_(allocator),
      enrolment_(IdleOrigin::driver(allocator.backend()), *this, &allocator) {}

void end_idle_cache_of(const Allocator& allocator) {
  for (const auto& slot : slots_that([&](const Slot& each) { return each.owner == &allocator; }))
    end_slot(slot);
}

std::string IdleCache::reclaim_name() const { return allocator_.name(); }

std::uint64_t IdleCache::idle_bytes() const {
  const AllocatorStats stats = allocator_.stats();
  const std::int64_t idle = stats.reserved_bytes[0].current - stats.allocated_bytes[0].current;
  return static_cast<std::uint64_t>(std::max<std::int64_t>(idle, 0));
}

void IdleCache::reclaim() { allocator_.empty_cache(); }

void add_free_memory_callback(std::string_view name,
                              std::unique_ptr<FreeMemoryCallback> callback) {
  if (callback == nullptr)
    raise<InvalidArgument>("free-memory callback \"{}\" is null", name);
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (!all.callbacks.try_emplace(std::string(name), std::move(callback)).second)
    raise<InvalidArgument>(
        "a free-memory callback \"{}\" is registered already; remove it or choose another name",
        name);
}

void remove_free_memory_callback(std::string_view name) {
  Registry& all = registry();
  std::unique_lock lock(all.mutex);
  const auto found = all.callbacks.find(name);
  if (found == all.callbacks.end()) return;
  const auto removed = all.callbacks.extract(found);
  lock.unlock();  // the callback ends without it
}

bool reclaim_idle(const Shortage& shortage) {
  if (pauses > 0) return false;
  const ReclaimPause no_reclaim_inside;
  bool any = false;
  const auto slots = slots_that_help(shortage);
  const auto ask_those = [&](bool of_driver) {
    for (auto slot = slots.rbegin(); slot != slots.rend(); ++slot)
      if (is_of_driver((*slot)->origin) == of_driver)
        visit_slot(**slot, [&](Reclaimer& reclaimer) { any |= ask(reclaimer); });
  };
  ask_those(false);
  any |= run_callbacks();
  ask_those(true);
  return any;
}

std::vector<IdleHolder> idle_holders(const Shortage& shortage) {
  std::vector<IdleHolder> holders;
  for (const auto& slot : slots_that_help(shortage))
    visit_slot(*slot, [&](Reclaimer& reclaimer) {
      const std::uint64_t bytes = reclaimer.idle_bytes();
      if (bytes > 0) holders.push_back({reclaimer.reclaim_name(), bytes});
    });
  return holders;
}

ReclaimPause::ReclaimPause() { ++pauses; }
ReclaimPause::~ReclaimPause() { --pauses; }

}  // namespace tenon
