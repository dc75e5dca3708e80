#include "tenon/memory/placement/size_class_pool.h"

#include <algorithm>
#include <mutex>

#include "tenon/base/error.h"

namespace tenon {

using arena::PooledBuffer;

SizeClassPool::SizeClassPool(Allocator& upstream, std::uint32_t max_per_size)
    : upstream_(upstream), device_(upstream.allocate(0).device()), max_per_size_(max_per_size) {
  if (max_per_size == 0)
    throw InvalidArgument("a size-class pool must keep at least one buffer of each size, not 0");
}

SizeClassPool::~SizeClassPool() {
  enrolment_.end();
  try {
    trim();
  } catch (...) {
    // A destructor cannot report that an upstream does not take its memory back.
  }
}

arena::BufferBins& SizeClassPool::bins_of(std::uint32_t stream) {
  if (bins_.size() <= stream) bins_.resize(stream + 1);
  if (bins_[stream] == nullptr) bins_[stream] = std::make_unique<arena::BufferBins>(max_per_size_);
  return *bins_[stream];
}

DataPtr SizeClassPool::allocate(std::size_t size_bytes) {
  if (size_bytes == 0) return DataPtr(device_);
  check_size(size_bytes);
  const int size_class = arena::BufferClasses::of(size_bytes);
  const std::uint32_t stream = current_stream(device_).id;
  const auto hand_out = [&](PooledBuffer* buffer) {
    buffer->requested = size_bytes;
    ++stats_.in_use;
    stats_.in_use_bytes += buffer->size_bytes;
    stats_.peak_in_use_bytes = std::max(stats_.peak_in_use_bytes, stats_.in_use_bytes);
    return DataPtr(buffer->data, buffer, &free_buffer, device_);
  };
  {
    const std::lock_guard lock(lock_);
    if (PooledBuffer* buffer = bins_of(stream).take(size_class)) {
      ++stats_.reused;
      --stats_.free;
      stats_.free_bytes -= buffer->size_bytes;
      return hand_out(buffer);
    }
  }
  const std::uint64_t class_bytes = arena::BufferClasses::bytes(size_class);
  DataPtr memory;
  try {
    memory = upstream_.allocate(class_bytes);
  } catch (const OutOfMemory&) {
    trim();
    memory = upstream_.allocate(class_bytes);
  }
  const std::lock_guard lock(lock_);
  ++stats_.created;
  return hand_out(bins_of(stream).create(this, stream, size_class, std::move(memory)));
}

void SizeClassPool::free_buffer(void* context) {
  auto* buffer = static_cast<PooledBuffer*>(context);
  auto& self = *static_cast<SizeClassPool*>(buffer->owner);
  DataPtr surplus;  // goes back upstream once the lock is open
  {
    const std::lock_guard lock(self.lock_);
    if (!buffer->in_use)
      raise<InvalidPointer>("free({}): this buffer was freed already", buffer->data);
    const std::uint64_t size = buffer->size_bytes;
    --self.stats_.in_use;
    self.stats_.in_use_bytes -= size;
    arena::BufferBins& bins = *self.bins_[buffer->stream];
    if (bins.has_room_for(buffer)) {
      bins.put(buffer);
      ++self.stats_.free;
      self.stats_.free_bytes += size;
    } else {
      ++self.stats_.dropped;
      surplus = bins.destroy(buffer);
    }
  }
  surplus.clear();
}

void SizeClassPool::release(DataPtr buffer) {
  if (buffer == nullptr) return;
  if (buffer.get_deleter() != &free_buffer ||
      static_cast<PooledBuffer*>(buffer.get_context())->owner != this)
    raise<InvalidPointer>("release({}): not a buffer of this pool", buffer.get());
  buffer.clear();
}

void SizeClassPool::trim() {
  std::vector<DataPtr> memory;
  {
    const std::lock_guard lock(lock_);
    for (const auto& bins : bins_)
      if (bins != nullptr) bins->drain(memory);
    stats_.free = 0;
    stats_.free_bytes = 0;
  }
  for (DataPtr& piece : memory) piece.clear();
}

SizeClassPoolStats SizeClassPool::stats() const {
  const std::lock_guard lock(lock_);
  return stats_;
}

}  // namespace tenon
