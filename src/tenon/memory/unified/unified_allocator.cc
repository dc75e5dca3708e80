// How a request is served and a buffer comes back. Questions and metadata are in
// unified_interface.cc.
#include "tenon/memory/unified/unified_allocator.h"

#include <fmt/format.h>

#include <algorithm>

#include "tenon/base/align.h"
#include "tenon/base/check.h"
#include "tenon/base/error.h"

namespace tenon {

using unified::Buffer;
using unified::BufferHeap;
using unified::BufferPool;
using unified::BufferUse;
using unified::SizeClass;
using unified::Storage;
using unified::StreamPoint;

namespace {

constexpr std::uint64_t kLargeAlignment = 256;
constexpr std::uint32_t kMaxStreams = 1 << 16;  // stream ids are dense; a larger one is a mistake

const UnifiedOptions& checked(const UnifiedOptions& options) {
  if (!is_power_of_two(options.alignment) || options.alignment < 16 || options.alignment > kMiB)
    throw InvalidArgument(fmt::format(
        "alignment {} is not a power of two between 16 and 1 MiB", options.alignment));
  if (!(options.max_oversize_factor >= 1 && options.max_oversize_factor <= 1e6))
    throw InvalidArgument(fmt::format("oversize factor {} is not between 1 and a million",
                                      options.max_oversize_factor));
  return options;
}

}  // namespace

UnifiedAllocator::UnifiedAllocator(Backend& backend, const UnifiedOptions& options)
    : DeviceAllocator(backend),
      options_(checked(options)),
      default_storage_(options.storage.value_or(backend.limits().unified ? Storage::kShared
                                                                         : Storage::kPrivate)),
      limits_(backend, options.limit_bytes),
      clocks_(backend),
      records_(this),
      supply_(backend, stats_) {
  if (default_storage_ == Storage::kShared && !backend.limits().unified)
    throw InvalidArgument(fmt::format("{} does not share its memory with the host: storage must "
                                      "be private", to_string(device_)));
}

// --- The doors.

UnifiedAllocator::Request UnifiedAllocator::make_request(std::size_t size_bytes, Stream stream,
                                                         Storage storage, bool scalar) const {
  Request request;
  request.requested_bytes = size_bytes;
  request.stream = stream;
  request.storage = storage;
  request.size_class = scalar                               ? SizeClass::kScalar
                       : size_bytes <= unified::kMaxSmallBytes ? SizeClass::kSmall
                                                               : SizeClass::kLarge;
  request.alignment = request.size_class == SizeClass::kScalar  ? 16
                      : request.size_class == SizeClass::kSmall ? options_.alignment
                      : std::max(options_.alignment, kLargeAlignment);
  request.size_bytes = align_up(size_bytes, request.alignment);
  return request;
}

DataPtr UnifiedAllocator::allocate_buffer(std::size_t size_bytes, Stream stream, Storage storage) {
  check_request(size_bytes, stream);
  if (storage == Storage::kShared && !is_shared_storage_supported()) [[unlikely]]
    throw InvalidArgument(fmt::format("{} does not share its memory with the host: storage must "
                                      "be private", to_string(device_)));
  if (size_bytes == 0) return DataPtr(device_);
  return obtain(make_request(size_bytes, stream, storage, false));
}

DataPtr UnifiedAllocator::obtain(const Request& request) {
  std::vector<unified::HeapSupply::Released> released;
  const auto try_once = [&] {
    const std::lock_guard lock(mutex_);
    Grant grant = serve(request);
    if (grant.buffer == nullptr) grant = serve_by_eviction(request);
    if (grant.buffer != nullptr) hand_out(grant.buffer, request);
    released = supply_.take_released();
    return grant;
  };
  Grant grant = try_once();
  report_released(released);
  if (grant.buffer == nullptr) [[unlikely]] {
    int asked = UnifiedCallbackRegistry::instance().report(
        nullptr, UnifiedAllocatorCallback::EventType::kAllocationFailed);
    asked += pressure_.relieve(request.size_bytes).called;
    if (asked > 0) {
      grant = try_once();
      report_released(released);
    }
    if (grant.buffer == nullptr) {
      std::uint64_t held = 0;
      {
        const std::lock_guard lock(mutex_);
        ++stats_.num_ooms;
        held = supply_.reserved_bytes();
      }
      const std::uint64_t hard = limits_.hard_limit_bytes();
      const std::uint64_t total = backend_.memory().total_bytes;
      throw_out_of_memory(request.requested_bytes, request.stream, std::min(hard, total),
                          limits_.advice(request.size_bytes, held));
    }
  }
  Buffer* buffer = grant.buffer;
  report(grant.fresh ? MemoryEvent::kAllocated : MemoryEvent::kRecycled, buffer->data,
         request.requested_bytes, request.stream);
  return DataPtr(buffer->data, buffer, &free_block, device_);
}

void UnifiedAllocator::free_block(void* context) {
  Buffer* buffer = static_cast<Buffer*>(context);
  buffer->allocator->free(buffer, buffer->data);
}

void* UnifiedAllocator::raw_allocate(std::size_t size_bytes) {
  DataPtr block = allocate(size_bytes);
  static_cast<void>(block.release_context());
  return block.get();
}

void UnifiedAllocator::deallocate(void* data) {
  if (data == nullptr) return;
  free(nullptr, data);
}

// By record, or by address when there is no record.
void UnifiedAllocator::free(Buffer* buffer, void* data) {
  std::uint64_t requested = 0;
  Stream stream{device_, 0};
  std::vector<unified::HeapSupply::Released> released;
  {
    const std::lock_guard lock(mutex_);
    if (buffer == nullptr) buffer = find_in_use(data, "deallocate");
    if (buffer->state != Buffer::State::kInUse) [[unlikely]] refuse_pointer(data, "free");
    requested = buffer->requested_bytes;
    stream.id = buffer->stream;
    put_back(buffer);
    if (limits_.cache_limit() != unified::MemoryLimits::kNoLimit) [[unlikely]] {
      trim_to_cache_limit();
      released = supply_.take_released();
    }
  }
  report(MemoryEvent::kFreed, data, requested, stream);
  report_released(released);
}

void UnifiedAllocator::report(MemoryEvent event, void* data, std::uint64_t size_bytes,
                              Stream stream) {
  observers_.report(event, data, size_bytes, stream);
  UnifiedCallbackRegistry& registry = UnifiedCallbackRegistry::instance();
  if (registry.empty()) [[likely]] return;
  using Type = UnifiedAllocatorCallback::EventType;
  registry.report(data, event == MemoryEvent::kAllocated  ? Type::kAllocated
                        : event == MemoryEvent::kRecycled ? Type::kRecycled
                        : event == MemoryEvent::kFreed    ? Type::kFreed
                                                          : Type::kReleased);
}

void UnifiedAllocator::report_released(
    const std::vector<unified::HeapSupply::Released>& released) {
  for (const auto& heap : released)
    report(MemoryEvent::kReleased, heap.base, heap.size_bytes, {device_, heap.stream});
}

// --- Serving a request. All below under mutex_.

BufferPool& UnifiedAllocator::pool_of(const Request& request) {
  const std::uint32_t stream = request.stream.id;
  if (stream >= pools_.size()) [[unlikely]] {
    if (stream >= kMaxStreams)
      throw InvalidArgument(fmt::format("{} is no stream that a backend handed out",
                                        to_string(request.stream)));
    pools_.resize(stream + 1);
  }
  auto& pool = pools_[stream].pools[static_cast<std::size_t>(request.storage) * 3 +
                                    static_cast<std::size_t>(request.size_class)];
  if (pool == nullptr) [[unlikely]]
    pool = std::make_unique<BufferPool>(records_, stats_, stream, request.storage,
                                        request.size_class);
  return *pool;
}

UnifiedAllocator::Grant UnifiedAllocator::serve(const Request& request) {
  BufferPool& pool = pool_of(request);
  if (Buffer* buffer = reuse(pool, request)) return {buffer, false};
  if (Buffer* buffer = borrow(request)) return {buffer, false};
  if (!grow(pool, request)) return {};
  Buffer* buffer = pool.place(request.size_bytes, request.alignment);
  TENON_CHECK(buffer != nullptr, "a new heap has no room for {} bytes", request.size_bytes);
  return {buffer, true};
}

// How large a free buffer may be that is reused whole.
std::uint64_t UnifiedAllocator::largest_acceptable(std::uint64_t size_bytes) const {
  const double factor = options_.max_oversize_factor;
  return std::min(size_bytes + options_.max_oversize_bytes,
                  static_cast<std::uint64_t>(static_cast<double>(size_bytes) * factor));
}

// From what the pool has that its own stream may use at once.
Buffer* UnifiedAllocator::reuse(BufferPool& pool, const Request& request) {
  const std::uint64_t most = largest_acceptable(request.size_bytes);
  if (Buffer* buffer = pool.take(request.size_bytes, most)) return buffer;
  if (Buffer* buffer = pool.place(request.size_bytes, request.alignment)) return buffer;
  if (settle_pending(pool) > 0)
    if (Buffer* buffer = pool.take(request.size_bytes, most)) return buffer;
  if (pool.cached_bytes() == 0 || pool.mergeable_bytes() < request.size_bytes) return nullptr;
  pool.merge_cached();
  return pool.place(request.size_bytes, request.alignment);
}

// A pending buffer whose other users all come before what the requesting stream does next.
Buffer* UnifiedAllocator::take_pending(BufferPool& pool, const Request& request) {
  const std::uint32_t stream = request.stream.id;
  std::vector<Buffer*>& pending = pool.pending();
  std::size_t best = pending.size();
  for (std::size_t i = 0; i < pending.size(); ++i) {
    const Buffer* buffer = pending[i];
    const std::uint64_t size = buffer->size_bytes();
    if (size < request.size_bytes || size > largest_acceptable(request.size_bytes)) continue;
    if (best < pending.size() && pending[best]->size_bytes() <= size) continue;
    bool ordered = true;
    for (const BufferUse* use = buffer->uses; use != nullptr && ordered; use = use->next)
      ordered = clocks_.is_ordered(use->point, stream);
    if (ordered) best = i;
  }
  if (best == pending.size()) return nullptr;
  Buffer* buffer = pending[best];
  clocks_.order_after(stream, buffer->freed);
  pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(best));
  supply_.came_back(buffer->heap);
  pool.count(&AllocatorStats::active, &AllocatorStats::active_bytes, -1, buffer->size_bytes());
  return buffer;
}

// From what other streams left: no heap is opened while one of them has memory to spare.
Buffer* UnifiedAllocator::borrow(const Request& request) {
  if (pools_.size() < 2) return nullptr;
  const std::size_t slot = static_cast<std::size_t>(request.storage) * 3 +
                           static_cast<std::size_t>(request.size_class);
  for (const StreamPools& stream : pools_) {
    BufferPool* pool = stream.pools[slot].get();
    if (pool == nullptr) continue;
    if (Buffer* buffer = take_pending(*pool, request)) return buffer;
    if (pool->stream() == request.stream.id) continue;
    Buffer* buffer = reuse(*pool, request);
    if (buffer == nullptr) continue;
    try {
      clocks_.order_after(request.stream.id, buffer->freed);
    } catch (...) {
      pool->cache(buffer);
      throw;
    }
    return buffer;
  }
  return nullptr;
}

bool UnifiedAllocator::grow(BufferPool& pool, const Request& request) {
  const std::uint64_t soft = limits_.soft_limit_bytes();
  const std::uint64_t hard = limits_.hard_limit_bytes();
  const auto passes = [&](std::uint64_t bytes, std::uint64_t limit) {
    return bytes > limit || supply_.reserved_bytes() > limit - bytes;
  };
  std::uint64_t bytes = request.heap_bytes(false);
  if (passes(bytes, soft)) {
    bytes = request.heap_bytes(true);
    while (supply_.oldest_idle() != nullptr && passes(bytes, soft))
      supply_.release(supply_.oldest_idle());
  }
  if (!passes(bytes, hard) && supply_.grow(pool, bytes)) return true;
  const std::uint64_t exact = unified::dedicated_heap_bytes(request.size_bytes);
  return exact < bytes && !passes(exact, hard) && supply_.grow(pool, exact);
}

// Everything that is not in use goes back to the driver: first as much as the request needs, oldest
// first, then all of it.
UnifiedAllocator::Grant UnifiedAllocator::serve_by_eviction(const Request& request) {
  ++stats_.num_alloc_retries;
  settle_everything();
  if (supply_.oldest_idle() == nullptr) return serve(request);
  const std::uint64_t needed = request.heap_bytes(true);
  const std::uint64_t before = supply_.reserved_bytes();
  while (supply_.oldest_idle() != nullptr && before - supply_.reserved_bytes() < needed)
    supply_.release(supply_.oldest_idle());
  if (const Grant grant = serve(request); grant.buffer != nullptr) return grant;
  if (supply_.oldest_idle() == nullptr) return {};
  while (supply_.oldest_idle() != nullptr) supply_.release(supply_.oldest_idle());
  return serve(request);
}

void UnifiedAllocator::hand_out(Buffer* buffer, const Request& request) {
  BufferPool& pool = *buffer->heap->pool;
  supply_.went_out(buffer->heap);
  records_.drop_uses(buffer);
  buffer->state = Buffer::State::kInUse;
  buffer->stream = request.stream.id;
  buffer->requested_bytes = request.requested_bytes;
  const std::uint64_t size = buffer->size_bytes();
  pool.count(&AllocatorStats::allocation, &AllocatorStats::allocated_bytes, 1, size);
  pool.count(&AllocatorStats::active, &AllocatorStats::active_bytes, 1, size);
  stats_.requested_bytes[0].increase(static_cast<std::int64_t>(request.requested_bytes));
  stats_.requested_bytes[static_cast<std::size_t>(stat_pool(pool))].increase(
      static_cast<std::int64_t>(request.requested_bytes));
}

// --- A buffer comes back.

void UnifiedAllocator::put_back(Buffer* buffer) {
  BufferPool& pool = *buffer->heap->pool;
  const std::uint64_t size = buffer->size_bytes();
  const auto requested = static_cast<std::int64_t>(buffer->requested_bytes);
  pool.count(&AllocatorStats::allocation, &AllocatorStats::allocated_bytes, -1, size);
  stats_.requested_bytes[0].decrease(requested);
  stats_.requested_bytes[static_cast<std::size_t>(stat_pool(pool))].decrease(requested);
  delete std::exchange(buffer->shape, nullptr);

  const StreamPoint freed = clocks_.tick(buffer->stream);
  if (buffer->stream == pool.stream()) [[likely]]
    buffer->freed = freed;
  else
    records_.add_use(buffer, freed, false);
  for (BufferUse* use = buffer->uses; use != nullptr; use = use->next)
    if (std::exchange(use->open, false)) use->point = clocks_.tick(use->point.stream);
  if (settle(buffer)) [[likely]] {
    pool.count(&AllocatorStats::active, &AllocatorStats::active_bytes, -1, size);
    supply_.came_back(buffer->heap);
    pool.cache(buffer);
    return;
  }
  buffer->state = Buffer::State::kPending;
  pool.pending().push_back(buffer);
}

// True when the pool's own stream may use the buffer at once.
bool UnifiedAllocator::settle(Buffer* buffer) {
  if (buffer->uses == nullptr) [[likely]] return true;
  const std::uint32_t home = buffer->heap->pool->stream();
  bool all_done = true;
  for (const BufferUse* use = buffer->uses; use != nullptr; use = use->next) {
    if (!clocks_.is_ordered(use->point, home)) return false;
    all_done &= clocks_.is_done(use->point);
  }
  // What waits for the home stream from here on waits for these uses too.
  if (!all_done) buffer->freed = clocks_.tick(home);
  records_.drop_uses(buffer);
  return true;
}

// Asks what has finished meanwhile. Returns how many bytes became available.
std::uint64_t UnifiedAllocator::settle_pending(BufferPool& pool) {
  if (pool.pending().empty()) [[likely]] return 0;
  for (const Buffer* buffer : pool.pending())
    for (const BufferUse* use = buffer->uses; use != nullptr; use = use->next)
      clocks_.try_mark(use->point.stream);
  clocks_.poll();
  std::uint64_t bytes = 0;
  std::erase_if(pool.pending(), [&](Buffer* buffer) {
    if (!settle(buffer)) return false;
    bytes += buffer->size_bytes();
    pool.count(&AllocatorStats::active, &AllocatorStats::active_bytes, -1, buffer->size_bytes());
    supply_.came_back(buffer->heap);
    pool.cache(buffer);
    return true;
  });
  return bytes;
}

void UnifiedAllocator::settle_everything() {
  bool any = false;
  for_each_pool([&](BufferPool& pool) { any |= !pool.pending().empty(); });
  if (!any) return;
  clocks_.wait_for_all();
  ++stats_.num_sync_all_streams;
  for_each_pool([&](BufferPool& pool) { settle_pending(pool); });
}

void UnifiedAllocator::trim_to_cache_limit() noexcept {
  const std::uint64_t limit = limits_.cache_limit();
  const std::uint64_t wired = limits_.wired_limit();
  try {
    while (BufferHeap* heap = supply_.oldest_idle()) {
      const std::uint64_t held = supply_.reserved_bytes();
      const auto used = static_cast<std::uint64_t>(stats_.active_bytes[0].current);
      if (held - used <= limit || held - heap->segment.size_bytes < wired) break;
      supply_.release(heap);
    }
  } catch (const DeviceError&) {
    // The heap stays idle; whoever needs memory tries again and hears of the failure.
  }
}

}  // namespace tenon
