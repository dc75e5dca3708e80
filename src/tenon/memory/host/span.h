// A run of equal small blocks, and the records of its blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tenon/heap/block.h"

namespace tenon::host {

class LocalHeap;
struct Span;

// The record of one small block: the context of its DataPtr. Out of line, so that the memory may
// be a device's, or not there at all.
// Left uninitialised until it is first linked.
struct Slot {
  // Used: see held.h. Free: the next Slot, in the span's list or among the frees by other threads.
  std::uintptr_t header;
  Span* span;
  void* data;

  Slot* next() const { return reinterpret_cast<Slot*>(header); }
  void set_next(Slot* next) { header = reinterpret_cast<std::uintptr_t>(next); }
};

// Owned by one LocalHeap. Its slots are linked in small batches as they are first needed, so a span
// that is barely used touches little of its records.
struct Span {
  // Never changes while blocks are out: other threads read it when they free one.
  LocalHeap* heap = nullptr;
  char* data = nullptr;              // address of the block
  Block* block = nullptr;            // its memory
  std::unique_ptr<Slot[]> slots;
  std::uint64_t reciprocal = 0;      // 2^40 / block_bytes, rounded up
  std::uint32_t block_bytes = 0;     // of its class
  std::uint32_t capacity = 0;
  std::int32_t size_class = 0;

  // The owner's, who writes it all the time: on a line of its own.
  alignas(64) Slot* free = nullptr;  // freed last first
  std::uint32_t taken = 0;           // slots handed out, modulo 2^32, and
  std::uint32_t returned = 0;        //   put back: two counts, as in LocalAccount
  std::uint32_t linked = 0;          // slots that were ever in the free list
  bool listed = false;               // in its bin's list of spans with room
  bool mapped = false;               // in the allocator's page map
  Span* prev = nullptr;              // in that list
  Span* next = nullptr;
  std::size_t index = 0;             // among its heap's spans

  // Slots in use (those freed elsewhere until drained).
  std::uint32_t used() const { return taken - returned; }

  // The number of the block that begins at the address; kNone when none does. Requires: the address
  // is inside the span. Division by a multiplication: exact below 2^21 bytes and 2^18 a block.
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  std::uint64_t index_at(const void* address) const {
    const auto offset = static_cast<std::uint64_t>(static_cast<const char*>(address) - data);
    const std::uint64_t i = (offset * reciprocal) >> 40;
    return i < linked && i * block_bytes == offset ? i : kNone;
  }
};

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
