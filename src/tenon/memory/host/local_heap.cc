#include "tenon/memory/host/local_heap.h"

#include <algorithm>

#include "tenon/base/check.h"
#include "tenon/memory/host/host_allocator.h"

namespace tenon::host {

LocalHeap::~LocalHeap() = default;

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
  const std::uint32_t end = std::min(span->capacity, first + kBatch);
  if (first == end) return false;
  const std::uint64_t size = span->block_bytes;
  for (std::uint32_t i = end; i-- > first;) {
    span->slots[i] = {reinterpret_cast<std::uintptr_t>(span->free), span, span->data + i * size};
    span->free = &span->slots[i];
  }
  span->linked = end;
  return true;
}

void LocalHeap::push_remote(Slot* slot) {
  Slot* head = remote_.load(std::memory_order_relaxed);
  do {
    slot->set_next(head);
  } while (!remote_.compare_exchange_weak(head, slot, std::memory_order_release,
                                          std::memory_order_relaxed));
}

void LocalHeap::drain() {
  Slot* slot = remote_.exchange(nullptr, std::memory_order_acquire);
  while (slot != nullptr) {
    Slot* next = slot->next();
    put(slot, slot->span);
    slot = next;
  }
}

std::unique_ptr<Span> LocalHeap::prepare_span(int size_class) {
  auto span = std::make_unique<Span>();
  span->size_class = size_class;
  span->block_bytes = static_cast<std::uint32_t>(size_class_bytes(size_class));
  span->reciprocal = ((std::uint64_t{1} << 40) + span->block_bytes - 1) / span->block_bytes;
  span->capacity = static_cast<std::uint32_t>(span_bytes(size_class)) / span->block_bytes;
  span->slots = std::unique_ptr<Slot[]>(new Slot[span->capacity]);  // not initialised
  return span;
}

void LocalHeap::add_span(std::unique_ptr<Span> span, Block* block) {
  span->heap = this;
  span->block = block;
  span->data = static_cast<char*>(ExtentStore::address_of(block));
  span->index = spans_.size();
  bins_[span->size_class].push_front(span.get());
  spans_.push_back(std::move(span));
}

void LocalHeap::release_span(Span* span, std::vector<Released>& released) {
  bins_[span->size_class].erase(span);
  store_.allocator().raw_blocks_.leave(*span);
  store_.release(span->block, released);
  const std::size_t index = span->index;
  spans_.back()->index = index;
  std::swap(spans_[index], spans_.back());
  spans_.pop_back();
}

void LocalHeap::release_large(Block* block, std::vector<Released>& released) {
  store_.allocator().raw_blocks_.leave(block);
  store_.release(block, released);
}

void LocalHeap::put_large(Block* block, std::vector<Released>& released) {
  if (block->size > LargeCache::kLargestBytes) return release_large(block, released);
  if (!large_.has_room(block->size))
    large_.evict_for(block->size, [&](Block* evicted) { release_large(evicted, released); });
  large_.push(block, block->size);
}

void LargeCache::check_invariants() const {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < sets_.size(); ++i)
    for (const Block* block = sets_[i]; block != nullptr; block = next(block)) {
      bytes += block->size;
      TENON_CHECK(bytes <= bytes_, "the large blocks of set {} are more than were counted", i);
      TENON_CHECK(block->size == sets_[i]->size && set_of(block->size) == i &&
                      block->state == Block::State::kUsed,
                  "a block of {} bytes is in set {}", block->size, i);
    }
  TENON_CHECK(bytes == bytes_ && bytes <= kBytes, "{} cached bytes, {} counted", bytes, bytes_);
}

void LocalHeap::trim(std::vector<Released>& released) {
  drain();
  large_.clear([&](Block* block) { release_large(block, released); });
  for (std::size_t i = spans_.size(); i-- > 0;)
    if (spans_[i]->used() == 0) release_span(spans_[i].get(), released);
}

void LocalHeap::check_invariants() const {
  large_.check_invariants();
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    const Span& span = *spans_[i];
    TENON_CHECK(span.index == i && span.heap == this, "span {} is another heap's", i);
    std::uint32_t free = 0;
    for (const Slot* slot = span.free; slot != nullptr; slot = slot->next()) {
      TENON_CHECK(slot->span == &span, "a slot is in another span's list");
      TENON_CHECK(++free <= span.linked, "the free list of span {} has a cycle", i);
    }
    TENON_CHECK(free + span.used() == span.linked, "span {}: {} free and {} used of {} slots", i,
                free, span.used(), span.linked);
    TENON_CHECK(span.listed || (free == 0 && span.linked == span.capacity),
                "span {} has room but is in no list", i);
  }
  for (int c = 0; c < kClasses; ++c)
    for (const Span* span = bins_[c].front(); span != nullptr; span = span->next)
      TENON_CHECK(span->listed && span->size_class == c, "a span is in the wrong bin");
}

}  // namespace tenon::host
