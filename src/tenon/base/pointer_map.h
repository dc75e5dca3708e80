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
class PointerTable {
 public:
  // Requires: key is not null and not in the table. Where the table grows, that is while
  // `while_growing()` lives.
  template <typename Guard>
  void insert(const void* key, void* value, Guard&& while_growing) {
    if ((size_ + 1) * 4 > slots_.size() * 3) [[unlikely]] {
      [[maybe_unused]] const auto guard = while_growing();
      grow();
    }
    slots_[slot_of(key)] = {key, value};
    ++size_;
  }

  void* find(const void* key) const {
    const std::size_t i = locate(key);
    return i == kNone ? nullptr : slots_[i].value;
  }

  // Takes the entry out and returns its value; nullptr when there is none.
  void* take(const void* key) {
    std::size_t hole = locate(key);
    if (hole == kNone) return nullptr;
    Slot* const slots = slots_.data();
    void* value = slots[hole].value;
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t i = (hole + 1) & mask; slots[i].key != nullptr; i = (i + 1) & mask) {
      // Slot i may fill the hole unless its home lies cyclically in (hole, i].
      if (((i - hash(slots[i].key)) & mask) < ((i - hole) & mask)) continue;
      slots[hole] = slots[i];
      hole = i;
    }
    slots[hole] = {};
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
    void* value = nullptr;
  };
  static constexpr std::size_t kNone = ~std::size_t{0};

  static std::size_t hash(const void* key) {
    return mix64(reinterpret_cast<std::uintptr_t>(key));
  }

  // The slot of the key, or the free one where it belongs. Requires: the table has slots.
  std::size_t slot_of(const void* key) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t i = hash(key) & mask;
    while (slots_[i].key != nullptr && slots_[i].key != key) i = (i + 1) & mask;
    return i;
  }

  std::size_t locate(const void* key) const {
    if (slots_.empty() || key == nullptr) return kNone;
    const std::size_t i = slot_of(key);
    return slots_[i].key == key ? i : kNone;
  }

  [[gnu::cold]] void grow();

  std::vector<Slot> slots_;  // a power of two of them
  std::size_t size_ = 0;
};

// The same with values of one type.
template <typename Value>
class PointerMap {
 public:
  void insert(const void* key, Value* value) {
    table_.insert(key, value, [] { return 0; });
  }
  template <typename Guard>
  void insert(const void* key, Value* value, Guard&& while_growing) {
    table_.insert(key, value, while_growing);
  }
  Value* find(const void* key) const { return static_cast<Value*>(table_.find(key)); }
  Value* take(const void* key) { return static_cast<Value*>(table_.take(key)); }
  template <typename Visit>
  void for_each(Visit&& visit) const {
    table_.for_each([&](const void* key, void* value) { visit(key, static_cast<Value*>(value)); });
  }
  void clear() { table_.clear(); }
  std::size_t size() const { return table_.size(); }
  std::size_t memory_bytes() const { return table_.memory_bytes(); }

 private:
  PointerTable table_;
};

}  // namespace tenon
