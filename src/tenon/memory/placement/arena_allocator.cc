#include "tenon/memory/placement/arena_allocator.h"

#include <algorithm>

#include "tenon/base/check.h"
#include "tenon/base/error.h"
#include "tenon/memory/front/completion.h"

namespace tenon {

using arena::PooledBuffer;

void ArenaHeap::release_block(Handle buffer) {
  if (!buffer->in_use) [[unlikely]]
    raise<InvalidPointer>("free({}): this buffer was freed already", buffer->data);
  const bool is_ordered = !buffer->used_elsewhere || order_after_users(buffer);
  keep(buffer, is_ordered);
}

void ArenaHeap::keep(Handle buffer, bool may_be_reused) {
  if (may_be_reused && bins_.has_room_for(buffer)) [[likely]] return bins_.put(buffer);
  buffer->in_use = false;
  buffer->is_surplus = true;
  buffer->next = surplus_;
  surplus_ = buffer;
}

bool ArenaHeap::record_use(void* block, Stream user) {
  const auto buffer = static_cast<Handle>(block);
  std::vector<Stream>& users = users_[buffer];
  if (std::find(users.begin(), users.end(), user) == users.end()) users.push_back(user);
  buffer->used_elsewhere = true;
  return true;
}

// False when no event could be had: then only the driver, which waits for everything, may take it.
bool ArenaHeap::order_after_users(Handle buffer) {
  const auto users = users_.find(buffer);
  bool ordered = true;
  try {
    for (const Stream user : users->second)
      Completion::order_now(allocator().backend(), user, stream());
  } catch (const std::exception&) {
    ordered = false;
  }
  users_.erase(users);
  buffer->used_elsewhere = false;
  return ordered;
}

void* ArenaHeap::give(Extent& chunk) {
  PooledBuffer* buffer =
      bins_.create(&chunk, stream().id, arena::BufferClasses::of(chunk.size_bytes),
                   DataPtr(chunk.segment.base, allocator().device()));
  buffer->upstream_context = this;
  keep(buffer, true);
  return buffer;
}

bool ArenaHeap::withdraw(Extent& chunk) {
  auto* const buffer = static_cast<Handle>(chunk.first);
  if (buffer->in_use) return false;
  if (buffer->is_surplus) {
    PooledBuffer** at = &surplus_;
    while (*at != buffer) at = &(*at)->next;
    *at = buffer->next;
  } else {
    bins_.unlink(buffer);
  }
  static_cast<void>(bins_.destroy(buffer).release_context());
  return true;
}

std::uint64_t ArenaHeap::largest_free() const {
  std::uint64_t largest = 0;
  for (const PooledBuffer* buffer : bins_.all())
    if (!buffer->in_use) largest = std::max(largest, buffer->size_bytes);
  return largest;
}

void ArenaHeap::check_placement() const {
  for (PooledBuffer* buffer : bins_.all())
    TENON_CHECK(&heap_of(buffer) == this && buffer->data == chunk_of(buffer).segment.base,
                "a buffer of another stream");
}

ArenaAllocator::ArenaAllocator(Backend& backend, const ArenaOptions& options)
    : PlacementAllocator("arena", backend, options, options.limit_bytes) {
  if (options.max_per_size == 0)
    throw InvalidArgument("the arena must keep at least one buffer of each size, not 0");
}

std::string ArenaAllocator::advice() const {
  return "its free buffers were given back already: a policy that splits and merges blocks needs "
         "less, such as stitched";
}

}  // namespace tenon
