// Free buffers, by size.
#pragma once

#include <cstdint>

#include "tenon/base/pointer_map.h"
#include "tenon/base/slab.h"
#include "tenon/heap/size_index.h"
#include "tenon/memory/unified/buffer.h"

namespace tenon::unified {

// Buffers of one size form a group, a stack; a hash table finds the group of an exact size, and an
// ordered index that of the next larger one. A group that runs empty stays in the index until a
// search meets it.
//
//   table:  4 KiB -> o-o     index (ordered):  4 KiB, 64 KiB (empty), 1 MiB
//           1 MiB -> o
//
// A buffer joins its group when it is made and leaves it when it ends, and the index has room for
// every group: so a free allocates nothing.
//
// add, take, remove: O(1) for a known size, else O(log n) amortised. Not thread-safe.
class BufferCache {
 public:
  // A buffer that was just made, and is in use. Throws std::bad_alloc; then nothing has changed.
  void join(Buffer* buffer) {
    const std::uint64_t size = buffer->size_bytes();
    Group* group = groups_by_size_.find(key_of(size));
    if (group == nullptr) group = add_group(size);
    ++group->buffers;
    buffer->group = group;
  }
  // The buffer ends. Requires: it is not in the cache.
  void leave(Buffer* buffer) {
    Group* group = static_cast<Group*>(buffer->group);
    if (--group->buffers > 0) return;
    if (group->indexed) index_.erase(&group->node);
    groups_by_size_.take(key_of(group->node.size));
    groups_.destroy(group);
    --group_count_;
  }

  // The latest buffer of the smallest size between `size_bytes` and `most_bytes`, or null.
  Buffer* take(std::uint64_t size_bytes, std::uint64_t most_bytes) {
    Group* group = groups_by_size_.find(key_of(size_bytes));
    if (group == nullptr || group->newest == nullptr) group = next_group(size_bytes, most_bytes);
    if (group == nullptr) return nullptr;
    Buffer* buffer = group->newest;
    remove(buffer);
    return buffer;
  }

  void add(Buffer* buffer) {
    Group* group = static_cast<Group*>(buffer->group);
    if (!group->indexed) {
      index_.insert(&group->node);
      group->indexed = true;
    }
    buffer->below = group->newest;
    buffer->above = nullptr;
    if (group->newest != nullptr) group->newest->above = buffer;
    group->newest = buffer;
    bytes_ += buffer->size_bytes();
    ++count_;
  }

  void remove(Buffer* buffer) {
    Group* group = static_cast<Group*>(buffer->group);
    (buffer->above != nullptr ? buffer->above->below : group->newest) = buffer->below;
    if (buffer->below != nullptr) buffer->below->above = buffer->above;
    bytes_ -= buffer->size_bytes();
    --count_;
  }

  // Every buffer, by size, is removed, leaves its group, and ends with `visit`, which destroys it.
  template <typename Visit>
  void drain(Visit&& visit) {
    while (Block* node = index_.find(1)) {
      Group* group = static_cast<Group*>(node->owner);
      index_.erase(node);
      group->indexed = false;
      for (Buffer *buffer = group->newest, *next; buffer != nullptr; buffer = next) {
        next = buffer->below;
        remove(buffer);
        leave(buffer);  // ends the group too where it was the last
        visit(buffer);
      }
    }
  }

  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t count() const { return count_; }
  std::uint64_t largest_bytes() const {
    std::uint64_t largest = 0;
    index_.for_each([&](Block* node) {
      if (static_cast<const Group*>(node->owner)->newest != nullptr) largest = node->size;
    });
    return largest;
  }
  void check_invariants() const { index_.check_invariants(); }

 private:
  struct Group {
    Block node;  // in the index: size, and owner = this
    Buffer* newest = nullptr;
    std::uint64_t buffers = 0;  // of this size, cached or not
    bool indexed = false;
  };

  static const void* key_of(std::uint64_t size_bytes) {
    return reinterpret_cast<const void*>(static_cast<std::uintptr_t>(size_bytes));
  }

  Group* add_group(std::uint64_t size_bytes) {
    index_.reserve_for(group_count_ + 1);
    Group* group = groups_.create();
    group->node.size = size_bytes;
    group->node.owner = group;
    try {
      groups_by_size_.insert(key_of(size_bytes), group);
    } catch (...) {
      groups_.destroy(group);
      throw;
    }
    ++group_count_;
    return group;
  }

  Group* next_group(std::uint64_t size_bytes, std::uint64_t most_bytes) {
    for (Block* node = index_.find(size_bytes); node != nullptr && node->size <= most_bytes;
         node = index_.find(size_bytes)) {
      Group* group = static_cast<Group*>(node->owner);
      if (group->newest != nullptr) return group;
      index_.erase(node);
      group->indexed = false;
    }
    return nullptr;
  }

  SizeIndex index_;
  PointerMap<Group> groups_by_size_;
  Slab<Group, 32> groups_;
  std::size_t group_count_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t count_ = 0;
};

}  // namespace tenon::unified
