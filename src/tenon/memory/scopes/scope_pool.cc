#include "tenon/memory/scopes/scope_pool.h"

#include <algorithm>
#include <utility>

#include "tenon/base/align.h"
#include "tenon/base/check.h"
#include "tenon/base/error.h"
#include "tenon/device/os/os_memory.h"
#include "tenon/memory/scopes/scope_arena.h"

namespace tenon {

using scopes::Chunk;
using scopes::kEscapePageBytes;
using scopes::Resident;
using scopes::ResidentPage;
using scopes::Span;

namespace {

Chunk& chunk_of(const Block* block) { return *static_cast<Chunk*>(block->owner); }

bool is_free(const Chunk& chunk) { return chunk.heap.free_bytes() == chunk.size_bytes; }

ScopeOptions checked(ScopeOptions options, const Allocator& upstream) {
  if (options.alignment == 0)
    options.alignment = std::clamp<std::uint64_t>(upstream.alignment(), 64, 4096);
  if (!is_power_of_two(options.alignment) || options.alignment > 4096)
    raise<InvalidArgument>("scope alignment {} is not a power of two up to 4096",
                           options.alignment);
  if (options.first_chunk_bytes == 0 || options.max_chunk_bytes < options.first_chunk_bytes)
    raise<InvalidArgument>("first chunk {} and largest chunk {} are out of order",
                           options.first_chunk_bytes, options.max_chunk_bytes);
  return options;
}

void clear_all(std::vector<std::unique_ptr<Chunk>>& chunks) {
  for (auto& chunk : chunks) chunk->memory.clear();
}

}  // namespace

std::shared_ptr<ScopePool> ScopePool::make(Allocator& upstream, const ScopeOptions& options) {
  return std::shared_ptr<ScopePool>(new ScopePool(upstream, options));
}

ScopePool::ScopePool(Allocator& upstream, const ScopeOptions& options)
    : upstream_(upstream),
      device_(upstream.allocate(0).device()),
      options_(checked(options, upstream)),
      on_stream_(dynamic_cast<DeviceAllocator*>(&upstream)),
      enrolment_(IdleOrigin::allocator(upstream), *this) {}

ScopePool::~ScopePool() {
  enrolment_.end();
  while (free_pages_ != nullptr) delete std::exchange(free_pages_, free_pages_->next);
  try {
    clear_all(chunks_);
  } catch (...) {
    // A destructor cannot report that an upstream does not take its memory back.
  }
}

// --- Spans.

Span ScopePool::find_span(std::uint32_t stream, std::uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  for (const auto& chunk : chunks_) {
    const std::uint64_t largest = chunk->heap.largest_free();
    if (chunk->stream != stream || largest < size_bytes) continue;
    Block* block = chunk->heap.find(largest);
    chunk->heap.take(block);
    return {chunk.get(), block, block->offset, block->offset + block->size};
  }
  return {};
}

Span ScopePool::take_span(std::uint32_t stream, std::uint64_t size_bytes) {
  for (;;) {
    if (const Span span = find_span(stream, size_bytes); span.block != nullptr) return span;
    const std::uint64_t exact = align_up(size_bytes, kEscapePageBytes);
    std::uint64_t wanted = 0;
    {
      const std::lock_guard lock(mutex_);
      wanted = std::min(options_.max_chunk_bytes,
                        std::max(options_.first_chunk_bytes, stats_.reserved_bytes));
    }
    wanted = std::max(exact, align_up(wanted, kEscapePageBytes));
    // Where all chunks of the stream are free, none has room, so the new one serves in their place.
    // Else a scope uses them, and it needs the free ones again.
    if (all_free(stream)) release_free_chunks(stream);
    // As much as is sensible, else as much as is needed, else that in the place of idle chunks.
    {
      const ReclaimPause least_first;
      if (try_add_chunk(stream, wanted)) continue;
      if (wanted > exact && try_add_chunk(stream, exact)) continue;
    }
    release_free_chunks();
    add_chunk(stream, exact);
  }
}

DataPtr ScopePool::from_upstream(std::uint32_t stream, std::uint64_t size_bytes) {
  {
    const std::lock_guard lock(mutex_);
    ++stats_.upstream_calls;
  }
  return require_chunk(on_stream_ != nullptr
                           ? on_stream_->allocate_on(size_bytes, {device_, stream})
                           : upstream_.allocate(size_bytes),
                       size_bytes, "scope pool");
}

// False when the upstream has not so much memory.
bool ScopePool::try_add_chunk(std::uint32_t stream, std::uint64_t size_bytes) {
  try {
    add_chunk(stream, size_bytes);
    return true;
  } catch (const OutOfMemory&) {
    return false;
  }
}

void ScopePool::add_chunk(std::uint32_t stream, std::uint64_t size_bytes) {
  auto chunk = std::make_unique<Chunk>();
  chunk->memory = from_upstream(stream, size_bytes);
  if (!is_aligned(reinterpret_cast<std::uintptr_t>(chunk->memory.get()), options_.alignment)) {
    chunk->memory.clear();
    chunk->memory = from_upstream(stream, size_bytes + options_.alignment);
  }
  chunk->base = reinterpret_cast<std::byte*>(
      align_up(reinterpret_cast<std::uintptr_t>(chunk->memory.get()), options_.alignment));
  chunk->size_bytes = size_bytes;
  chunk->stream = stream;
  chunk->heap.add_extent(0, size_bytes)->owner = chunk.get();
  const std::lock_guard lock(mutex_);
  chunks_.push_back(std::move(chunk));
  ++stats_.chunks;
  stats_.reserved_bytes += size_bytes;
}

void ScopePool::give_back(Block* block) {
  const std::lock_guard lock(mutex_);
  chunk_of(block).heap.release(block);
}

Block* ScopePool::cut(Block* block, std::uint64_t offset) {
  const std::uint64_t size = offset - block->offset;
  if (size == 0 || size >= block->size) return nullptr;
  const std::lock_guard lock(mutex_);
  try {
    return chunk_of(block).heap.split_used(block, size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

// --- Escapes.

void ScopePool::keep(Resident* cluster, Block* block) {
  cluster->block = block;
  {
    const std::lock_guard lock(mutex_);
    stats_.kept_bytes += block->size;
  }
  if (cluster->escapes.fetch_sub(1, std::memory_order_acq_rel) == 1) release(cluster);
}

void ScopePool::release(Resident* cluster) {
  {
    const std::lock_guard lock(mutex_);
    stats_.kept_bytes -= cluster->block->size;
    chunk_of(cluster->block).heap.release(cluster->block);
  }
  ResidentPage::of(cluster)->drop();  // may be the last hold on us
}

// --- Accounts.

void ScopePool::note_use(std::uint64_t noted_bytes, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  stats_.in_use_bytes = stats_.in_use_bytes - noted_bytes + bytes;
  stats_.high_water_bytes = std::max(stats_.high_water_bytes, stats_.in_use_bytes);
}

void ScopePool::end_scope(const ScopeReport& report) {
  const std::lock_guard lock(mutex_);
  last_report_ = report;
  ++stats_.scopes;
  stats_.escapes += report.escapes;
  stats_.escaped_bytes += report.escaped_bytes;
}

ResidentPage* ScopePool::take_page() {
  ResidentPage* page = nullptr;
  {
    const std::lock_guard lock(mutex_);
    page = free_pages_;
    if (page != nullptr) free_pages_ = page->next;
  }
  if (page == nullptr) page = new ResidentPage;
  page->holders.store(1, std::memory_order_relaxed);
  return page;
}

void ScopePool::give_page(ResidentPage* page) {
  page->pool.reset();
  const std::lock_guard lock(mutex_);
  page->next = std::exchange(free_pages_, page);
}

ScopePoolStats ScopePool::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

std::uint64_t ScopePool::layout_offset(const DataPtr& data) const {
  const auto* at = static_cast<const std::byte*>(data.get());
  const std::lock_guard lock(mutex_);
  for (const auto& chunk : chunks_) {
    if (at < chunk->base || at >= chunk->base + chunk->size_bytes) continue;
    const auto inside = static_cast<std::uint64_t>(at - chunk->base);
    return inside + (on_stream_ != nullptr ? on_stream_->layout_offset(chunk->memory) : 0);
  }
  throw InvalidPointer("layout_offset: not a block of this scope");
}

ScopeReport ScopePool::last_report() const {
  const std::lock_guard lock(mutex_);
  return last_report_;
}

// --- Giving back.

bool ScopePool::all_free(std::uint32_t stream) {
  const std::lock_guard lock(mutex_);
  return std::all_of(chunks_.begin(), chunks_.end(), [&](const auto& chunk) {
    return chunk->stream != stream || is_free(*chunk);
  });
}

std::uint64_t ScopePool::release_free_chunks(std::optional<std::uint32_t> stream) {
  std::vector<std::unique_ptr<Chunk>> free;
  std::uint64_t bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    free.reserve(chunks_.size());  // from here on nothing throws
    for (auto& chunk : chunks_) {
      if (stream && chunk->stream != *stream) continue;
      if (!is_free(*chunk)) continue;
      bytes += chunk->size_bytes;
      free.push_back(std::move(chunk));
    }
    std::erase(chunks_, nullptr);
    stats_.chunks -= free.size();
    stats_.reserved_bytes -= bytes;
  }
  clear_all(free);
  return bytes;
}

void ScopePool::trim() {
  release_free_chunks();
  if (device_.type != DeviceType::kCpu) return;
  const std::uint64_t page = os::page_size();
  const std::lock_guard lock(mutex_);
  for (const auto& chunk : chunks_)
    chunk->heap.for_each_free([&](const Block* block) {
      const auto start = reinterpret_cast<std::uintptr_t>(chunk->base) + block->offset;
      const std::uintptr_t begin = align_up(start, page);
      const std::uintptr_t end = align_down(start + block->size, page);
      if (begin < end) os::forget(reinterpret_cast<void*>(begin), end - begin);
    });
}

void ScopePool::abandon() {
  const std::lock_guard lock(mutex_);
  for (const auto& chunk : chunks_) {
    // Memory that is freed by its address alone needs no allocator; any other went with it.
    const bool simple = chunk->memory.get_context() == chunk->memory.get() ||
                        chunk->memory.get_context() == nullptr;
    if (!simple) static_cast<void>(chunk->memory.release_context());
  }
}

void ScopePool::outlive(DataPtr (*unwrap)(DataPtr)) {
  release_free_chunks();
  const std::lock_guard lock(mutex_);
  for (const auto& chunk : chunks_) chunk->memory = unwrap(std::move(chunk->memory));
}

std::string ScopePool::reclaim_name() const {
  return on_stream_ != nullptr ? "a scope pool over " + on_stream_->name() : "a scope pool";
}

std::uint64_t ScopePool::idle_bytes() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t sum = 0;
  for (const auto& chunk : chunks_) sum += chunk->heap.free_bytes();
  return sum;
}

void ScopePool::check_invariants() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t reserved = 0;
  for (const auto& chunk : chunks_) {
    chunk->heap.check_invariants();
    reserved += chunk->size_bytes;
    TENON_CHECK(chunk->heap.free_bytes() <= chunk->size_bytes, "more free than there is");
  }
  TENON_CHECK(reserved == stats_.reserved_bytes, "{} bytes in chunks, counted {}", reserved,
              stats_.reserved_bytes);
}

// --- The pool of an allocator.

class ScopeAttachment final : public AllocatorAttachment {
 public:
  explicit ScopeAttachment(Allocator& upstream) : pool_(ScopePool::make(upstream)) {}
  ~ScopeAttachment() override {
    if (!outlives_) pool_->abandon();
  }
  void before_end(DataPtr (*unwrap)(DataPtr)) override {
    outlives_ = true;
    pool_->outlive(unwrap);
  }
  const std::shared_ptr<ScopePool>& pool() const { return pool_; }

 private:
  const std::shared_ptr<ScopePool> pool_;
  bool outlives_ = false;
};

std::shared_ptr<ScopePool> scope_pool_of(Allocator& upstream) {
  if (const auto* arena = dynamic_cast<ScopeArena*>(&upstream)) return arena->pool();
  AllocatorAttachment& attachment = upstream.attachment(
      [](Allocator& allocator) -> std::unique_ptr<AllocatorAttachment> {
        return std::make_unique<ScopeAttachment>(allocator);
      });
  return static_cast<ScopeAttachment&>(attachment).pool();
}

}  // namespace tenon
