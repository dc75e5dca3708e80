// From any address inside a page to what was said about the page.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace tenon {

// A table of two levels over the addresses below 2^48, one entry to each 64 KiB.
//
// Memory budget: 8 bytes for each 64 KiB that has ever had an entry, in pieces that cover 32 MiB
// (the system gives the table's own memory page by page as it is written), and at most 512 KiB for
// the top level. get is two loads. There is no lock, so a forked child can use the table.
//
// Thread-safe. Who reads an entry while it is being changed gets the old or the new one.
template <typename Value>
class PageMap {
 public:
  static constexpr int kPageBits = 16;
  static constexpr std::uint64_t kPageBytes = 1u << kPageBits;

  ~PageMap() {
    Top* const top = top_.load(std::memory_order_relaxed);
    for (std::uint64_t i = 0; top != nullptr && i < kEntries; ++i)
      std::free(top[i].load(std::memory_order_relaxed));
    std::free(top);
  }
  PageMap() = default;
  PageMap(const PageMap&) = delete;
  PageMap& operator=(const PageMap&) = delete;

  // Null where nothing was said.
  Value* get(const void* address) const {
    const auto bits = reinterpret_cast<std::uintptr_t>(address);
    Leaf* const leaf = leaf_of(bits);
    if (leaf == nullptr) [[unlikely]] return nullptr;
    return leaf->entries[(bits >> kPageBits) & (kEntries - 1)].load(std::memory_order_relaxed);
  }

  // Throws std::bad_alloc when the table cannot grow; an entry that was set before can always be
  // set again. Requires: the address is below 2^48.
  void set(const void* address, Value* value) {
    const auto bits = reinterpret_cast<std::uintptr_t>(address);
    Leaf* leaf = leaf_of(bits);
    if (leaf == nullptr) leaf = add_leaf(bits);
    leaf->entries[(bits >> kPageBits) & (kEntries - 1)].store(value, std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint64_t kEntries = 1u << 16;
  struct Leaf {
    std::atomic<Value*> entries[kEntries];
  };
  using Top = std::atomic<Leaf*>;

  Leaf* leaf_of(std::uintptr_t bits) const {
    const std::uintptr_t i = bits >> (kPageBits + 16);
    const Top* const top = top_.load(std::memory_order_acquire);
    if (top == nullptr || i >= kEntries) [[unlikely]] return nullptr;
    return top[i].load(std::memory_order_acquire);
  }

  // What `slot` points to; made here, zeroed, if it is null. Of two threads that make it, the first
  // wins. calloc, not new: memory that is never written is never backed.
  template <typename T>
  static T* find_or_make(std::atomic<T*>& slot, std::uint64_t count) {
    T* found = slot.load(std::memory_order_acquire);
    if (found != nullptr) return found;
    T* const made = static_cast<T*>(std::calloc(count, sizeof(T)));
    if (made == nullptr) throw std::bad_alloc();
    if (slot.compare_exchange_strong(found, made, std::memory_order_acq_rel)) return made;
    std::free(made);
    return found;
  }

  Leaf* add_leaf(std::uintptr_t bits) {
    Top* const top = find_or_make(top_, kEntries);
    return find_or_make(top[bits >> (kPageBits + 16)], 1);
  }

  std::atomic<Top*> top_{nullptr};
};

}  // namespace tenon
