// From any address inside a page to what was said about the page.
#pragma once

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

namespace tenon {

// A table of two levels over the addresses below 2^48, one entry to each 64 KiB.
//
// Memory budget: 8 bytes for each 64 KiB that has ever had an entry, in pieces that cover 32 MiB
// (the system gives the table's own memory page by page as it is written), and 32 KiB for the top
// level. get is two loads. There is no lock, so a forked child can use the table.
//
// Thread-safe. Who reads an entry while it is being changed gets the old or the new one.
template <typename Value>
class PageMap {
 public:
  static constexpr int kPageBits = 16;
  static constexpr std::uint64_t kPageBytes = 1u << kPageBits;

  ~PageMap() {
    for (const std::atomic<Leaf*>& leaf : leaves_)
      if (Leaf* const made = leaf.load(std::memory_order_relaxed)) ::munmap(made, sizeof(Leaf));
  }
  PageMap() = default;
  PageMap(const PageMap&) = delete;
  PageMap& operator=(const PageMap&) = delete;

  // Null where nothing was said.
  Value* get(const void* address) const {
    const auto bits = reinterpret_cast<std::uintptr_t>(address);
    Leaf* const leaf = leaf_of(bits);
    if (leaf == nullptr) [[unlikely]] return nullptr;
    return leaf->entries[(bits >> kPageBits) % kLeafEntries].load(std::memory_order_relaxed);
  }

  // Throws std::bad_alloc when the table cannot grow; an entry that was set before can always be
  // set again. Requires: the address is below 2^48.
  void set(const void* address, Value* value) {
    const auto bits = reinterpret_cast<std::uintptr_t>(address);
    Leaf* leaf = leaf_of(bits);
    if (leaf == nullptr) leaf = add_leaf(bits);
    leaf->entries[(bits >> kPageBits) % kLeafEntries].store(value, std::memory_order_relaxed);
  }

 private:
  static constexpr int kLeafBits = 20;  // a leaf covers 64 GiB
  static constexpr std::uint64_t kLeafEntries = 1u << kLeafBits;
  struct Leaf {
    std::atomic<Value*> entries[kLeafEntries];
  };

  Leaf* leaf_of(std::uintptr_t bits) const {
    const std::uintptr_t i = bits >> (kPageBits + kLeafBits);
    if (i >= leaves_.size()) [[unlikely]] return nullptr;
    return leaves_[i].load(std::memory_order_acquire);
  }

  // From the system, zeroed: memory that is never written is never backed, where some allocators'
  // calloc writes the zeroes. Of two threads that make one, the first wins.
  Leaf* add_leaf(std::uintptr_t bits) {
    std::atomic<Leaf*>& leaf = leaves_[bits >> (kPageBits + kLeafBits)];
    void* const mapped = ::mmap(nullptr, sizeof(Leaf), PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    Leaf* const made = static_cast<Leaf*>(mapped);
    Leaf* found = nullptr;
    if (leaf.compare_exchange_strong(found, made, std::memory_order_acq_rel)) return made;
    ::munmap(mapped, sizeof(Leaf));
    return found;
  }

  std::array<std::atomic<Leaf*>, std::size_t{1} << (48 - kPageBits - kLeafBits)> leaves_ = {};
};

}  // namespace tenon
