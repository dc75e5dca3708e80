#include "tenon/memory/host/local_heap.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "tenon/base/check.h"
#include "tenon/memory/host/host_allocator.h"

namespace tenon::host {

LocalHeap::~LocalHeap() = default;

Span::Pointer Span::make(int size_class) {
  const auto bytes = static_cast<std::uint32_t>(BlockClasses::bytes(size_class));
  const auto capacity = static_cast<std::uint16_t>(span_bytes(size_class) / bytes);
  // calloc gives zeroes without touching fresh memory; a multiple of 64 is found inside.
  void* const memory =
      std::calloc(1, alignof(Span) + sizeof(Span) + (capacity + 1) * sizeof(Slot));
  if (memory == nullptr) throw std::bad_alloc();
  const std::uintptr_t at = align_up(reinterpret_cast<std::uintptr_t>(memory), alignof(Span));
  Pointer span(new (reinterpret_cast<void*>(at)) Span);
  span->allocated = memory;
  span->capacity = capacity;
  span->size_class = static_cast<std::uint8_t>(size_class);
  span->counts = LocalAccount::counts_of(bytes);
  span->reciprocal = ~std::uint64_t{0} / bytes + 1;
  return span;
}

void Span::Delete::operator()(Span* span) const { std::free(span->allocated); }

// The first span with a free slot, linking or draining as needed; null when the bin has no room.
Span* LocalHeap::find_room(int size_class) {
  SpanList& bin = bins_[size_class];
  for (;;) {
    while (Span* span = bin.front()) {
      if (span->free != nullptr || link_more(span)) return span;
      bin.erase(span);  // full: the first free lists it again
    }
    if (remote_.load(std::memory_order_relaxed) == nullptr) return nullptr;
    drain();
    if (bin.front() == nullptr) return nullptr;
  }
}

// Links the next slots that were never used. False when there are none.
bool LocalHeap::link_more(Span* span) {
  constexpr std::uint32_t kBatch = 32;
  const std::uint32_t first = span->linked;
  const std::uint32_t end = std::min<std::uint32_t>(span->capacity, first + kBatch);
  if (first == end) return false;
  const std::uint64_t size = span->block_bytes();
  for (std::uint32_t i = end; i-- > first;) {
    Slot& slot = span->slots()[i];
    slot = {0, span, span->data + i * size};
    span->push(&slot, slot.data);
  }
  span->linked = static_cast<std::uint16_t>(end);
  return true;
}

void LocalHeap::push_remote(Slot* slot) {
  Slot* head = remote_.load(std::memory_order_relaxed);
  do {
    slot->header = reinterpret_cast<std::uintptr_t>(head);
  } while (!remote_.compare_exchange_weak(head, slot, std::memory_order_release,
                                          std::memory_order_relaxed));
}

void LocalHeap::drain() {
  Slot* slot = remote_.exchange(nullptr, std::memory_order_acquire);
  while (slot != nullptr) {
    Slot* next = reinterpret_cast<Slot*>(slot->header);
    put(slot, slot->span, slot->data);
    slot = next;
  }
}

void LocalHeap::add_span(Span::Pointer span) {
  span->heap = this;
  span->index = static_cast<std::uint32_t>(spans_.size());
  bins_[span->size_class].push_front(span.get());
  spans_.push_back(std::move(span));
}

void LocalHeap::release_span(Span* span, Released& released) {
  bins_[span->size_class].erase(span);
  store_.allocator().raw_blocks_.leave(*span);
  store_.release(span->block, released);
  const std::uint32_t index = span->index;
  spans_.back()->index = index;
  std::swap(spans_[index], spans_.back());
  spans_.pop_back();
}

void LocalHeap::release_large(Block* block, Released& released) {
  store_.allocator().raw_blocks_.leave(block);
  store_.release(block, released);
}

void LocalHeap::put_large(Block* block, Released& released) {
  if (block->size > LargeCache::kLargestBytes) return release_large(block, released);
  LargeCache::Set& set = large_.make_room(
      block->size, [&](Block* evicted) { release_large(evicted, released); });
  large_.push(set, block, RegionStore::address_of(block));
}

void LargeCache::check_invariants() const {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < sets_.size(); ++i)
    for (const Block* block = sets_[i].first; block != nullptr; block = next(block)) {
      bytes += block->size;
      TENON_CHECK(bytes <= bytes_, "the large blocks of set {} are more than were counted", i);
      TENON_CHECK(block->size == sets_[i].size_bytes && block->state == Block::State::kUsed &&
                      block->context == RegionStore::address_of(block),
                  "a block of {} bytes is in set {}", block->size, i);
    }
  TENON_CHECK(bytes == bytes_ && bytes <= kBytes, "{} cached bytes, {} counted", bytes, bytes_);
}

void LocalHeap::trim(Released& released) {
  drain();
  large_.clear([&](Block* block) { release_large(block, released); });
  for (std::size_t i = spans_.size(); i-- > 0;)
    if (Span* span = spans_[i].get(); span->count_free() == span->linked)
      release_span(span, released);
}

void LocalHeap::check_invariants() const {
  large_.check_invariants();
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    Span& span = *spans_[i];
    TENON_CHECK(span.index == i && span.heap == this, "span {} is another heap's", i);
    std::uint32_t free = 0;
    for (void* at = span.free; at != nullptr; ++free) {
      const Slot* slot = span.slot_at(at);
      TENON_CHECK(slot != nullptr && slot->span == &span && slot->data == at,
                  "span {} lists what is no block of its", i);
      TENON_CHECK(free < span.linked, "the free list of span {} has a cycle", i);
      at = reinterpret_cast<void*>(slot->header);
    }
    TENON_CHECK(span.listed || (free == 0 && span.linked == span.capacity),
                "span {} has room but is in no list", i);
  }
  for (int c = 0; c < kClasses; ++c)
    for (const Span* span = bins_[c].front(); span != nullptr; span = span->next)
      TENON_CHECK(span->listed && span->size_class == c, "a span is in the wrong bin");
}

}  // namespace tenon::host
