// From bare pointers to the blocks that are held by them.
#pragma once

#include "tenon/base/page_map.h"
#include "tenon/memory/host/extent_store.h"
#include "tenon/memory/host/held.h"

namespace tenon::host {

// A span enters the map when a block of its is first held by its bare pointer, a large block each
// time it is; they leave it when their memory goes back to its store. Its memory budget is
// PageMap's. Thread-safe; a caller of find must hold the block, or hold nothing.
class RawBlocks {
 public:
  // False when the block's span does not consist of whole entries: then it cannot be found. Large
  // blocks are longer than an entry's reach, so no two begin in one. Throws std::bad_alloc with no
  // entry made.
  bool enter(const Held& held);
  void leave(Span& span);
  void leave(Block* block);

  // What the block's page has, if it has anything: a span, or a large block as its context.
  void* entry_of(const void* data) const { return pages_.get(data); }

  // The record of the small block that is held by that pointer; null when there is none.
  Slot* find_small(const void* data) const {
    void* const entry = entry_of(data);
    if (entry == nullptr || is_large(entry)) return nullptr;
    return slot_of(data, static_cast<const Span*>(entry));
  }
  static Slot* slot_of(const void* data, const Span* span) {
    const std::uint64_t i = span->index_at(data);
    if (i == Span::kNone || !header::is_raw(span->slots[i].header)) [[unlikely]] return nullptr;
    return &span->slots[i];
  }
  Block* find_large(const void* data) const {
    Block* block = large_block_of(entry_of(data));
    const bool is_held = block != nullptr && ExtentStore::address_of(block) == data &&
                         header::is_raw(header_of(block));
    return is_held ? block : nullptr;
  }

 private:
  PageMap<void> pages_;  // a span's 64 KiB pieces, a large block's first; tagged like contexts
};

}  // namespace tenon::host
