#include "tenon/memory/host/raw_blocks.h"

#include <new>

#include "tenon/base/align.h"
#include "tenon/memory/host/local_heap.h"

namespace tenon::host {
namespace {

constexpr std::uint64_t kEntry = PageMap<void>::kPageBytes;

}  // namespace

bool RawBlocks::enter(const Held& held) {
  if (large_block_of(held.context) != nullptr) {
    if (pages_.get(held.data) != held.context) pages_.set(held.data, held.context);
    return true;
  }
  Span& span = *static_cast<Slot*>(held.context)->span;
  if (span.mapped) [[likely]] return true;
  if (!is_aligned(reinterpret_cast<std::uintptr_t>(span.data), kEntry)) return false;
  std::uint64_t at = 0;
  try {
    for (; at < span.block->size; at += kEntry) pages_.set(span.data + at, &span);
  } catch (const std::bad_alloc&) {
    while (at > 0) pages_.set(span.data + (at -= kEntry), nullptr);
    throw;
  }
  span.mapped = true;
  return true;
}

void RawBlocks::leave(Span& span) {
  if (!span.mapped) return;
  for (std::uint64_t at = 0; at < span.block->size; at += kEntry)
    pages_.set(span.data + at, nullptr);
}

void RawBlocks::leave(Block* block) {
  void* const data = ExtentStore::address_of(block);
  if (pages_.get(data) == context_of(block)) pages_.set(data, nullptr);
}

}  // namespace tenon::host
