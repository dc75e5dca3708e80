#include "tenon/memory/compat/memory_pool.h"

#include <algorithm>
#include <new>

#include "tenon/base/align.h"
#include "tenon/base/check.h"
#include "tenon/base/error.h"
#include "tenon/base/reserve.h"

namespace tenon {
namespace {

std::uint64_t address_of(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

std::size_t alignment_over(const Allocator* upstream) {
  if (upstream == nullptr)
    throw InvalidArgument("memory pool: the upstream allocator is null; give one, such as system");
  return std::max(MemoryPool::kMinAlignment, upstream->alignment());
}

std::uint64_t checked_pool_size(std::uint64_t size, std::uint64_t alignment) {
  if (size == 0 || size > kMaxRequestBytes)
    raise<InvalidArgument>("memory pool: a pool size of {} bytes is not from 1 to {}", size,
                           kMaxRequestBytes);
  return align_up(size, alignment);
}

}  // namespace

MemoryPool::MemoryPool(std::shared_ptr<Allocator> upstream, std::size_t pool_size)
    : upstream_(std::move(upstream)),
      alignment_(alignment_over(upstream_.get())),
      pool_size_(checked_pool_size(pool_size, alignment_)) {
  add_chunk(pool_size_);
}

void* MemoryPool::allocate(std::size_t size_bytes) {
  if (size_bytes == 0) return nullptr;
  check_size(size_bytes);
  const std::uint64_t rounded = align_up(size_bytes, alignment_);
  if (void* data = place(rounded)) [[likely]] return data;
  const std::lock_guard growing(grow_mutex_);
  for (;;) {
    // Another thread may have grown the pool or freed a block, or allocated the added memory.
    if (void* data = place(rounded)) return data;
    grow(rounded);
  }
}

void* MemoryPool::place(std::uint64_t rounded) {
  const std::lock_guard lock(lock_);
  if (!heap_.can_cut()) [[unlikely]] {
    const LongLock::Stay stay(lock_);
    heap_.reserve_cuts(1);
  }
  Block* block = heap_.place(rounded, 1, kMinBlockBytes);
  if (block == nullptr) return nullptr;
  void* data = reinterpret_cast<void*>(block->offset);
  try {
    used_.insert(data, block, [&] { return LongLock::Stay(lock_); });
  } catch (...) {
    heap_.release(block);
    throw;
  }
  stats_.total_allocated += block->size;
  stats_.current_usage += block->size;
  stats_.peak_usage = std::max(stats_.peak_usage, stats_.current_usage);
  ++stats_.num_allocations;
  ++stats_.num_pool_allocations;
  return data;
}

void MemoryPool::deallocate(void* data) {
  if (data == nullptr) return;
  const std::lock_guard lock(lock_);
  Block* block = used_.take(data);
  if (block == nullptr) [[unlikely]]
    raise<InvalidPointer>(
        "deallocate({}): not a block in use of this memory pool ({} blocks in use in {} chunks); "
        "freed twice, or from elsewhere", data, used_.size(), chunks_.size());
  count_freed(*block);
  heap_.release(block);
}

void MemoryPool::count_freed(const Block& block) {
  stats_.total_freed += block.size;
  stats_.current_usage -= block.size;
  ++stats_.num_deallocations;
}

void MemoryPool::reset() {
  const std::lock_guard lock(lock_);
  // Merging leaves each chunk as one free block of its own size, for blocks never merge across the
  // border of two.
  used_.for_each([&](const void*, Block* block) {
    count_freed(*block);
    heap_.release(block);
  });
  used_.clear();
}

// Where upstream has no room for a chunk of the usual size, one that just holds the request will
// do.
void MemoryPool::grow(std::uint64_t rounded) {
  try {
    add_chunk(std::max(pool_size_, 2 * rounded));
  } catch (const std::bad_alloc&) {
    add_chunk(rounded);
  }
}

void MemoryPool::add_chunk(std::uint64_t size_bytes) {
  // Room to align the first block where upstream itself aligns to less.
  DataPtr memory = require_chunk(upstream_->allocate(size_bytes), size_bytes, "memory pool");
  std::uint64_t begin = address_of(memory.get());
  if (!is_aligned(begin, alignment_)) {
    memory.clear();
    const std::uint64_t padded = size_bytes + alignment_ - 1;
    memory = require_chunk(upstream_->allocate(padded), padded, "memory pool");
    begin = align_up(address_of(memory.get()), alignment_);
  }
  const std::lock_guard lock(lock_);
  const LongLock::Stay stay(lock_);
  reserve_more(chunks_);
  Block* extent = heap_.add_extent(begin, size_bytes);
  chunks_.push_back({std::move(memory), extent});
  reserved_bytes_ += size_bytes;
  ++stats_.num_device_allocations;
}

MemoryPoolStats MemoryPool::statistics() const {
  const std::lock_guard lock(lock_);
  return stats_;
}

std::uint64_t MemoryPool::reserved_bytes() const {
  const std::lock_guard lock(lock_);
  return reserved_bytes_;
}

std::uint64_t MemoryPool::free_bytes() const {
  const std::lock_guard lock(lock_);
  return heap_.free_bytes();
}

std::uint64_t MemoryPool::largest_free_bytes() const {
  const std::lock_guard lock(lock_);
  return heap_.largest_free();
}

void MemoryPool::check_invariants() const {
  const std::lock_guard lock(lock_);
  heap_.check_invariants();
  std::uint64_t reserved = 0, used = 0, blocks = 0;
  for (const PoolChunk& chunk : chunks_)
    BestFitHeap::for_each_in_extent(chunk.extent, [&](const Block* block) {
      reserved += block->size;
      if (block->state != Block::State::kUsed) return;
      TENON_CHECK(used_.find(reinterpret_cast<void*>(block->offset)) == block,
                  "the block at {} is not in the map", block->offset);
      used += block->size;
      ++blocks;
    });
  TENON_CHECK(reserved == reserved_bytes_, "blocks of {} bytes in chunks of {}", reserved,
              reserved_bytes_);
  TENON_CHECK(used == stats_.current_usage && blocks == used_.size() &&
                  reserved - used == heap_.free_bytes(),
              "{} bytes in {} blocks used, counted {} in {}", used, blocks, stats_.current_usage,
              used_.size());
  TENON_CHECK(stats_.total_allocated - stats_.total_freed == stats_.current_usage &&
                  stats_.num_allocations - stats_.num_deallocations == blocks,
              "totals and usage disagree");
}

}  // namespace tenon
