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
  union {
    Slot* next;               // free: in the span's list, or among the frees from other threads
    std::uint64_t requested;  // used: bytes asked for
  };
  Span* span;
  void* data;
};

// Owned by one LocalHeap. Its slots are linked in small batches as they are first needed, so a span
// that is barely used touches little of its records.
struct Span {
  Slot* free = nullptr;       // freed last first
  std::uint32_t used = 0;     // slots handed out (those freed by other threads count until drained)
  std::uint32_t linked = 0;   // slots that were ever in the free list
  std::uint32_t capacity = 0;
  std::int32_t size_class = 0;
  std::size_t index = 0;      // among its heap's spans
  LocalHeap* heap = nullptr;
  Block* block = nullptr;     // its memory
  char* data = nullptr;       // address of the block
  bool listed = false;        // in its bin's list of spans with room
  Span* prev = nullptr;       // in that list
  Span* next = nullptr;
  std::unique_ptr<Slot[]> slots;
};

// Spans of one class that have room, the one in use first.
class SpanList {
 public:
  Span* front() const { return head_; }
  bool has_several() const { return head_ != nullptr && head_->next != nullptr; }

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
