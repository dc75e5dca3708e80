// From bare pointers to the blocks that are held by them.
#pragma once

#include "tenon/base/page_map.h"
#include "tenon/memory/host/held.h"
#include "tenon/memory/host/region_store.h"

namespace tenon::host {

// A span enters the map when its memory leaves the store, a large block when it is first held by
// its bare pointer; they leave it when their memory goes back to the store. Its memory budget is
// PageMap's. Thread-safe; a caller of find must hold the block, or hold nothing.
class RawBlocks {
 public:
  // False where blocks cannot be found: the span does not consist of whole entries, or there is no
  // memory for the map. Large blocks are longer than an entry's reach, so no two begin in one.
  bool enter(Span& span) noexcept;
  bool enter(Block* block) noexcept;
  void leave(Span& span) noexcept;
  void leave(Block* block) noexcept;
  static bool is_entered(const Block* block) { return block->flags == kEntered; }

  // What the block's page has, if it has anything: a large block, or a span as span_of expects it.
  void* entry_of(const void* data) const { return pages_.get(data); }
  static bool is_spans(void* entry) {
    return (reinterpret_cast<std::uintptr_t>(entry) & kSpanBit) != 0;
  }
  static Span* span_of(void* entry) {
    return reinterpret_cast<Span*>(reinterpret_cast<std::uintptr_t>(entry) - kSpanBit);
  }

  // The record of the small block that is held by that pointer; null when there is none.
  Slot* find_small(const void* data) const {
    void* const entry = entry_of(data);
    return is_spans(entry) ? slot_of(data, span_of(entry)) : nullptr;
  }
  static Slot* slot_of(const void* data, Span* span) {
    Slot* slot = span->slot_at(data);
    return slot != nullptr && header::is_raw(slot->header) ? slot : nullptr;
  }
  Block* find_large(const void* data) const {
    void* const entry = entry_of(data);
    return is_spans(entry) ? nullptr : held_at(data, static_cast<Block*>(entry));
  }
  static Block* held_at(const void* data, Block* block) {
    const bool is_held = block != nullptr && RegionStore::address_of(block) == data &&
                         header::is_raw(header_of(block));
    return is_held ? block : nullptr;
  }

 private:
  static constexpr std::uint8_t kEntered = 1;  // a large block's flags
  static constexpr std::uintptr_t kSpanBit = 1;
  static void* entry_for(Span& span) { return reinterpret_cast<char*>(&span) + kSpanBit; }

  bool set(const void* data, void* entry) noexcept;

  PageMap<void> pages_;  // a span's 64 KiB pieces, a large block's first
};

}  // namespace tenon::host
