#include "tenon/memory/host/raw_blocks.h"

#include <new>

#include "tenon/base/align.h"

namespace tenon::host {
namespace {

constexpr std::uint64_t kEntry = PageMap<void>::kPageBytes;

}  // namespace

bool RawBlocks::enter(Span& span) noexcept {
  if (!is_aligned(reinterpret_cast<std::uintptr_t>(span.data), kEntry)) return false;
  bool entered = true;
  for (std::uint64_t at = 0; at < span.block->size; at += kEntry)
    entered = set(span.data + at, entry_for(span)) && entered;
  return entered;
}

bool RawBlocks::enter(Block* block) noexcept {
  block->flags = set(RegionStore::address_of(block), block) ? kEntered : 0;
  return is_entered(block);
}

bool RawBlocks::set(const void* data, void* entry) noexcept {
  try {
    pages_.set(data, entry);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void RawBlocks::leave(Span& span) noexcept {
  for (std::uint64_t at = 0; at < span.block->size; at += kEntry)
    if (entry_of(span.data + at) == entry_for(span)) set(span.data + at, nullptr);
}

void RawBlocks::leave(Block* block) noexcept {
  if (is_entered(block)) set(RegionStore::address_of(block), nullptr);
}

}  // namespace tenon::host
