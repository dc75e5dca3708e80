// From a bare pointer to the block behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tenon/base/hash.h"

namespace tenon {

// An open-addressing hash table from pointer to pointer, for frees that bring nothing but the
// address. Blocks freed through their DataPtr never enter it.
//
// Memory budget: at most 64 bytes for each pointer held at the peak (16-byte slots, between 1/4
// and 3/4 full). O(1) expected. Not thread-safe. Linear probing with backward-shift deletion
// (Knuth, TAOCP 3, 6.4 R), so no tombstones accumulate.
template <typename Value>
class PointerMap {
 public:
  // Requires: key is not null and not in the map.
  void insert(const void* key, Value* value) {
    if ((size_ + 1) * 4 > slots_.size() * 3) grow();
    std::size_t i = home(key);
    while (slots_[i].key != nullptr) i = (i + 1) & (slots_.size() - 1);
    slots_[i] = {key, value};
    ++size_;
  }

  Value* find(const void* key) const {
    const std::size_t i = locate(key);
    return i == kNone ? nullptr : slots_[i].value;
  }

  // Takes the entry out and returns its value; nullptr when there is none.
  Value* take(const void* key) {
    std::size_t hole = locate(key);
    if (hole == kNone) return nullptr;
    Value* value = slots_[hole].value;
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t i = (hole + 1) & mask; slots_[i].key != nullptr; i = (i + 1) & mask) {
      // Slot i may fill the hole unless its home lies cyclically in (hole, i].
      if (((i - home(slots_[i].key)) & mask) < ((i - hole) & mask)) continue;
      slots_[hole] = slots_[i];
      hole = i;
    }
    slots_[hole] = {};
    --size_;
    return value;
  }

  template <typename Visit>
  void for_each(Visit&& visit) const {
    for (const Slot& slot : slots_)
      if (slot.key != nullptr) visit(slot.key, slot.value);
  }

  void clear() {
    slots_.clear();
    size_ = 0;
  }

  std::size_t size() const { return size_; }
  std::size_t memory_bytes() const { return slots_.capacity() * sizeof(Slot); }

 private:
  struct Slot {
    const void* key = nullptr;
    Value* value = nullptr;
  };
  static constexpr std::size_t kNone = ~std::size_t{0};

  std::size_t home(const void* key) const {
    return mix64(reinterpret_cast<std::uintptr_t>(key)) & (slots_.size() - 1);
  }

  std::size_t locate(const void* key) const {
    if (slots_.empty() || key == nullptr) return kNone;
    for (std::size_t i = home(key);; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i].key == key) return i;
      if (slots_[i].key == nullptr) return kNone;
    }
  }

  void grow() {
    std::vector<Slot> old(slots_.empty() ? 16 : slots_.size() * 2);
    old.swap(slots_);
    size_ = 0;
    for (const Slot& slot : old)
      if (slot.key != nullptr) insert(slot.key, slot.value);
  }

  std::vector<Slot> slots_;  // a power of two of them
  std::size_t size_ = 0;
};

}  // namespace tenon
