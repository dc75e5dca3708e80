// Memory by bare pointer: its holder is found by the address alone.
#pragma once

#include <atomic>
#include <vector>

#include "tenon/base/long_lock.h"
#include "tenon/base/pointer_map.h"
#include "tenon/memory/data_ptr.h"

namespace tenon {

// The deleter of every block that raw_allocate gave, where its allocator has none of its own: asks
// all enrolled holders for the pointer. A block that went through a wrapper goes back through it.
// Null is ignored. Throws InvalidPointer where none holds it, and where two do, as on simulated
// devices with the same addresses. O(enrolled holders).
void free_raw(void* data);

// Around fork(2): no holder is asked, begins or ends meanwhile.
void raw_holders_before_fork();
void raw_holders_after_fork();

// Something that holds blocks by bare pointer. A derived class calls leave() before it ends.
class RawHolder {
 public:
  RawHolder() = default;
  RawHolder(const RawHolder&) = delete;
  RawHolder& operator=(const RawHolder&) = delete;

  // kFound: the block lies in its memory. kHeld: its own raw_allocate returned the pointer.
  enum class Hold : std::uint8_t { kNone, kFound, kHeld };
  virtual Hold hold_of(const void* data) const = 0;
  virtual void free(void* data) = 0;

  // From now on free_raw asks this holder. Thread-safe; one relaxed load after the first time.
  void enrol();

 protected:
  ~RawHolder() = default;
  void leave();

 private:
  std::atomic<bool> is_enrolled_{false};
};

// The holder of a class that finds its blocks itself, by holds_raw and raw_deallocate. The class
// declares it last, so that it ends first.
template <typename Owner>
class OwnRawHolder final : public RawHolder {
 public:
  explicit OwnRawHolder(Owner& owner) : owner_(owner) {}
  ~OwnRawHolder() { leave(); }
  Hold hold_of(const void* data) const override {
    return owner_.holds_raw(data) ? Hold::kFound : Hold::kNone;
  }
  void free(void* data) override { owner_.raw_deallocate(data); }

 private:
  Owner& owner_;
};

// Blocks by bare pointer, with what their deleters must be given. PointerMap states its memory
// budget. Thread-safe: one spin lock, on which threads sleep while the table grows. It is not held
// while a deleter runs.
class RawTable final : public RawHolder {
 public:
  ~RawTable() { leave(); }

  // Takes the block over and returns its pointer; null for null. Throws InvalidArgument where a
  // block is held at this address already; `data` keeps its block then.
  void* hold(DataPtr& data);
  // Frees the block that is held there. False: there is none.
  bool release(void* data);

  // The block was freed by other means. Nothing happens when it is not held.
  void forget(const void* data);

  Hold hold_of(const void* data) const override;
  void free(void* data) override { static_cast<void>(release(data)); }

  // Around fork(2): the lock is held while it happens.
  void before_fork() { lock_.before_fork(); }
  void after_fork() { lock_.after_fork(); }

 private:
  // The blocks of one deleter; an allocator with a fallback has two.
  struct Kind {
    DeleterFn deleter = nullptr;
    PointerMap<void> contexts;
  };
  mutable LongLock lock_;
  std::vector<Kind> kinds_;
};

// Holds the blocks of allocators that pass another's raw_deleter on without a table of their own.
// Never destroyed.
RawTable& shared_raw_table();

}  // namespace tenon
