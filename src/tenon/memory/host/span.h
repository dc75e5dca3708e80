// A run of equal small blocks, and the records of its blocks.
#pragma once

#include <cstdint>
#include <memory>

#include "tenon/heap/block.h"
#include "tenon/memory/host/accounts.h"

namespace tenon::host {

class LocalHeap;
struct Span;

// The record of one small block: the context of its DataPtr. Out of line, so that the memory may
// be a device's, or not there at all. All zero until it is first linked.
struct Slot {
  // Used: see held.h. Free: the address of the next block in the span's list, or the next Slot
  // among the frees by other threads.
  std::uintptr_t header;
  Span* span;
  void* data;
};

// Owned by one LocalHeap. Its slots come behind it. They are linked in small batches as they are
// first needed, so a span that is barely used touches little of its records.
struct Span {
  struct Delete {
    void operator()(Span* span) const;
  };
  using Pointer = std::unique_ptr<Span, Delete>;
  // Without memory yet. Throws std::bad_alloc.
  static Pointer make(int size_class);

  // Never changes while blocks are out: other threads read it when they free one.
  LocalHeap* heap = nullptr;
  char* data = nullptr;          // address of the block
  std::uint64_t reciprocal = 0;  // 2^64 / block_bytes(), rounded up
  Block* block = nullptr;        // its memory
  Counts counts = {};            // what a block of its counts (accounts.h)

  // The owner's, who writes it all the time: on a line of its own.
  alignas(64) void* free = nullptr;  // the block freed last; its slot leads to the next one
  Span* prev = nullptr;              // in its bin's list of spans with room
  Span* next = nullptr;
  void* allocated = nullptr;         // by calloc: this record
  std::uint32_t index = 0;           // among its heap's spans
  std::uint16_t linked = 0;          // slots that were ever in the free list
  std::uint16_t capacity = 0;
  std::uint8_t size_class = 0;
  bool listed = false;               // in its bin's list

  std::uint32_t block_bytes() const { return counts[1]; }  // of its class
  Slot* slots() { return reinterpret_cast<Slot*>(this + 1); }

  // Of the block that begins at the address; null when none does. Requires: the address is inside
  // the span. The quotient is the product's upper half. Its lower half is below the reciprocal
  // where the division has no rest: offsets are below 2^18 and blocks at most 2^16 bytes. A rest
  // behind the last block has a slot too, which is never used.
  Slot* slot_at(const void* address) {
    const std::uint64_t i = quotient(address);
    return low_part(address) < reciprocal ? &slots()[i] : nullptr;
  }
  // Requires: a block begins at the address.
  Slot* slot_of(const void* address) { return &slots()[quotient(address)]; }

  // Requires: there is a free block.
  Slot* pop() {
    Slot* slot = slot_of(free);
    free = reinterpret_cast<void*>(slot->header);
    return slot;
  }
  // Returns whether it is the only one now.
  bool push(Slot* slot, void* its_data) {
    const bool was_empty = free == nullptr;
    slot->header = reinterpret_cast<std::uintptr_t>(free);
    free = its_data;
    return was_empty;
  }
  // O(blocks).
  std::uint64_t count_free() {
    std::uint64_t count = 0;
    for (void* at = free; at != nullptr; at = reinterpret_cast<void*>(slot_of(at)->header)) ++count;
    return count;
  }

 private:
  __extension__ typedef unsigned __int128 Wide;  // so that -Wpedantic says nothing
  Wide product(const void* address) const {
    const auto offset = static_cast<std::uint64_t>(static_cast<const char*>(address) - data);
    return Wide{offset} * reciprocal;
  }
  std::uint64_t quotient(const void* address) const {
    return static_cast<std::uint64_t>(product(address) >> 64);
  }
  std::uint64_t low_part(const void* address) const {
    return static_cast<std::uint64_t>(product(address));
  }
};
static_assert(sizeof(Span) == 128);

// Spans of one class that have room, the one in use first.
class SpanList {
 public:
  Span* front() const { return head_; }

  void push_front(Span* span) {
    span->listed = true;
    span->prev = nullptr;
    span->next = head_;
    (head_ != nullptr ? head_->prev : tail_) = span;
    head_ = span;
  }
  void push_back(Span* span) {
    span->listed = true;
    span->next = nullptr;
    span->prev = tail_;
    (tail_ != nullptr ? tail_->next : head_) = span;
    tail_ = span;
  }
  void erase(Span* span) {
    span->listed = false;
    (span->prev != nullptr ? span->prev->next : head_) = span->next;
    (span->next != nullptr ? span->next->prev : tail_) = span->prev;
  }

 private:
  Span* head_ = nullptr;
  Span* tail_ = nullptr;
};

}  // namespace tenon::host
