#include "tenon/memory/placement/arena_placement.h"

#include <algorithm>

#include "tenon/base/check.h"
#include "tenon/base/error.h"
#include "tenon/memory/device_allocator.h"
#include "tenon/memory/front/completion.h"

namespace tenon {

using arena::PooledBuffer;

void ArenaPlacement::release(Handle buffer) {
  if (!buffer->in_use) [[unlikely]]
    raise<InvalidPointer>("free({}): this buffer was freed already", buffer->data);
  const bool is_ordered = !buffer->used_elsewhere || order_after_users(buffer);
  keep(buffer, is_ordered);
}

void ArenaPlacement::keep(Handle buffer, bool may_be_reused) {
  if (may_be_reused && bins_.has_room_for(buffer)) [[likely]] return bins_.put(buffer);
  buffer->in_use = false;
  buffer->is_surplus = true;
  buffer->next = surplus_;
  surplus_ = buffer;
}

void ArenaPlacement::record_use(Handle buffer, Stream stream) {
  std::vector<Stream>& users = users_[buffer];
  if (std::find(users.begin(), users.end(), stream) == users.end()) users.push_back(stream);
  buffer->used_elsewhere = true;
}

// False when no event could be had: then only the driver, which waits for everything, may take it.
bool ArenaPlacement::order_after_users(Handle buffer) {
  const auto users = users_.find(buffer);
  bool ordered = true;
  try {
    for (const Stream user : users->second)
      Completion::order_now(heap_.allocator().backend(), user, stream_);
  } catch (const std::exception&) {
    ordered = false;
  }
  users_.erase(users);
  buffer->used_elsewhere = false;
  return ordered;
}

PooledBuffer* ArenaPlacement::add_chunk(std::uint64_t, std::uint64_t size, Chunk* chunk, bool) {
  PooledBuffer* buffer =
      bins_.create(chunk, stream_.id, arena::size_class_of(size),
                   DataPtr(chunk->segment.base, heap_.allocator().device()));
  buffer->upstream_context = &heap_;
  keep(buffer, true);
  return buffer;
}

void ArenaPlacement::remove_chunk(Extent* buffer) {
  if (buffer->is_surplus) {
    PooledBuffer** at = &surplus_;
    while (*at != buffer) at = &(*at)->next;
    *at = buffer->next;
  } else {
    bins_.unlink(buffer);
  }
  static_cast<void>(bins_.destroy(buffer).release_context());
}

std::uint64_t ArenaPlacement::largest_free() const {
  std::uint64_t largest = 0;
  for (const PooledBuffer* buffer : bins_.all())
    if (!buffer->in_use) largest = std::max(largest, buffer->size_bytes);
  return largest;
}

void ArenaPlacement::check_invariants() const {
  for (const PooledBuffer* buffer : bins_.all())
    TENON_CHECK(heap_of(const_cast<PooledBuffer*>(buffer)) == &heap_ &&
                    buffer->data == static_cast<const Chunk*>(buffer->owner)->segment.base,
                "a buffer of another stream");
}

}  // namespace tenon
