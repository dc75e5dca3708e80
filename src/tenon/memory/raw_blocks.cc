#include "tenon/memory/raw_blocks.h"

#include <algorithm>
#include <mutex>

#include "tenon/base/error.h"

namespace tenon {
namespace {

struct Directory {
  std::mutex mutex;  // held during calls of holders, so that none is destroyed
  std::vector<RawHolder*> holders;
};

Directory& directory() {
  static auto* const the_directory = new Directory;  // blocks may be freed while the program ends
  return *the_directory;
}

}  // namespace

void raw_holders_before_fork() { directory().mutex.lock(); }
void raw_holders_after_fork() { directory().mutex.unlock(); }

[[gnu::cold]] void RawHolder::enrol() {
  if (is_enrolled_.load(std::memory_order_relaxed)) return;
  Directory& all = directory();
  const std::lock_guard lock(all.mutex);
  if (is_enrolled_.load(std::memory_order_relaxed)) return;
  all.holders.push_back(this);
  is_enrolled_.store(true, std::memory_order_relaxed);
}

[[gnu::cold]] void RawHolder::leave() {
  if (!is_enrolled_.load(std::memory_order_relaxed)) return;
  Directory& all = directory();
  const std::lock_guard lock(all.mutex);
  std::erase(all.holders, this);
  is_enrolled_.store(false, std::memory_order_relaxed);
}

void free_raw(void* data) {
  if (data == nullptr) return;
  RawHolder* holder = nullptr;
  RawHolder::Hold most = RawHolder::Hold::kNone;
  int holders = 0;  // as much as the one
  {
    Directory& all = directory();
    const std::lock_guard lock(all.mutex);
    for (RawHolder* one : all.holders) {
      const RawHolder::Hold hold = one->hold_of(data);
      if (hold == RawHolder::Hold::kNone || hold < most) continue;
      holders = hold > most ? 1 : holders + 1;
      holder = one;
      most = hold;
    }
  }
  if (holders == 0)
    raise<InvalidPointer>(
        "free({}): no allocator holds a raw block there; it was freed already, or comes from "
        "allocate()", data);
  if (holders > 1)
    raise<InvalidPointer>(
        "free({}): {} allocators hold a raw block at this address, as simulated devices may; call "
        "raw_deallocate of the block's allocator", data, holders);
  holder->free(data);
}

void* RawTable::hold(DataPtr& data) {
  void* const raw = data.get();
  if (raw == nullptr) return nullptr;
  const std::lock_guard lock(lock_);
  auto kind = std::find_if(kinds_.begin(), kinds_.end(),
                           [&](const Kind& k) { return k.deleter == data.get_deleter(); });
  if (kind == kinds_.end()) {
    kinds_.push_back({data.get_deleter(), {}});
    kind = kinds_.end() - 1;
  }
  for (const Kind& other : kinds_)
    if (other.contexts.find(raw) != nullptr)
      raise<InvalidArgument>(
          "raw_allocate: a raw block at {} is held already, by another device with the same "
          "addresses; use allocate", raw);
  void* const context = data.get_context();
  kind->contexts.insert(raw, context != nullptr ? context : raw,
                        [&] { return LongLock::Stay(lock_); });
  static_cast<void>(data.release_context());
  return raw;
}

bool RawTable::release(void* data) {
  void* context = nullptr;
  DeleterFn deleter = nullptr;
  {
    const std::lock_guard lock(lock_);
    for (Kind& kind : kinds_) {
      context = kind.contexts.take(data);
      deleter = kind.deleter;
      if (context != nullptr) break;
    }
  }
  if (context == nullptr) return false;
  if (deleter != nullptr) deleter(context);
  return true;
}

void RawTable::forget(const void* data) {
  const std::lock_guard lock(lock_);
  for (Kind& kind : kinds_) static_cast<void>(kind.contexts.take(data));
}

[[gnu::cold]] RawHolder::Hold RawTable::hold_of(const void* data) const {
  const std::lock_guard lock(lock_);
  const bool holds = std::any_of(kinds_.begin(), kinds_.end(), [&](const Kind& kind) {
    return kind.contexts.find(data) != nullptr;
  });
  return holds ? Hold::kHeld : Hold::kNone;
}

RawTable& shared_raw_table() {
  static auto* const table = [] {
    auto* made = new RawTable;
    made->enrol();
    return made;
  }();
  return *table;
}

}  // namespace tenon
