// How a request is served and a buffer freed. Questions and metadata are in
// unified_interface.cc.
#include "tenon/memory/unified/unified_allocator.h"

#include <algorithm>
#include <utility>

#include "tenon/base/align.h"
#include "tenon/base/check.h"
#include "tenon/base/error.h"

namespace tenon {

using unified::Buffer;
using unified::BufferHeap;
using unified::BufferPool;
using unified::BufferUse;
using unified::Lane;
using unified::SizeClass;
using unified::Storage;

namespace {

constexpr std::uint64_t kLargeAlignment = 256;

const UnifiedOptions& checked(const UnifiedOptions& options) {
  if (!is_power_of_two(options.alignment) || options.alignment < 16 || options.alignment > kMiB)
    raise<InvalidArgument>("alignment {} is not a power of two between 16 and 1 MiB",
                           options.alignment);
  if (!(options.max_oversize_factor >= 1 && options.max_oversize_factor <= 1e6))
    raise<InvalidArgument>("oversize factor {} is not between 1 and a million",
                           options.max_oversize_factor);
  return options;
}

}  // namespace

UnifiedAllocator::UnifiedAllocator(Backend& backend, const UnifiedOptions& options)
    : DeviceAllocator(backend),
      options_(checked(options)),
      shares_(backend.limits().unified || options.shared_memory),
      default_storage_(options.storage.value_or(backend.limits().unified ? Storage::kShared
                                                                         : Storage::kPrivate)),
      limits_(backend, options.limit_bytes),
      completions_(backend),
      supply_(backend, stats_, options.shared_memory.value_or(MemoryKind::kShared)) {
  if (options.shared_memory == MemoryKind::kDevice)
    throw InvalidArgument("shared_memory must be memory that the host sees: shared, managed or "
                          "pinned");
  if (default_storage_ == Storage::kShared && !shares_) refuse_shared();
}

void UnifiedAllocator::refuse_shared() const {
  raise<InvalidArgument>("{} does not share its memory with the host: storage must be "
                         "private, or options.shared_memory managed or pinned", to_string(device_));
}

// --- Requests.

UnifiedAllocator::Request UnifiedAllocator::make_request(std::size_t size_bytes, Stream stream,
                                                         Storage storage, bool scalar) const {
  Request request;
  request.requested_bytes = size_bytes;
  request.stream = stream;
  request.storage = storage;
  const bool is_small = size_bytes <= unified::kMaxSmallBytes && !options_.grows_by_shares;
  request.size_class = scalar     ? SizeClass::kScalar
                       : is_small ? SizeClass::kSmall
                                  : SizeClass::kLarge;
  request.alignment = request.size_class == SizeClass::kScalar  ? 16
                      : request.size_class == SizeClass::kSmall ? options_.alignment
                      : std::max(options_.alignment, kLargeAlignment);
  request.size_bytes = align_up(size_bytes, request.alignment);
  return request;
}

DataPtr UnifiedAllocator::allocate_buffer(std::size_t size_bytes, Stream stream, Storage storage) {
  check_request(size_bytes, stream);
  if (storage == Storage::kShared && !shares_) [[unlikely]] refuse_shared();
  if (size_bytes == 0) return DataPtr(device_);
  return obtain(make_request(size_bytes, stream, storage, false));
}

// Note [The common path]: memory of the stream, under the lock of its lane alone.
DataPtr UnifiedAllocator::obtain(const Request& request) {
  Lane* lane = lanes_.find(request.stream);
  Buffer* buffer = nullptr;
  if (lane != nullptr) [[likely]] {
    const BiasedGuard lock(lane->lock);
    lane->note_user();
    if (BufferPool* pool = lane->pools[request.pool_index()].get()) [[likely]]
      buffer = reuse_fast(*pool, request);
    if (buffer != nullptr) [[likely]] hand_out(buffer, request);
  }
  return buffer != nullptr ? wrap(buffer, MemoryEvent::kRecycled, request)
                           : obtain_slowly(request);
}

DataPtr UnifiedAllocator::wrap(Buffer* buffer, MemoryEvent event, const Request& request) {
  report(event, buffer->data, request.requested_bytes, request.stream);
  return DataPtr(buffer->data, buffer, &free_block, device_);
}

Lane& UnifiedAllocator::make_lane(Stream stream) {
  StreamSlots<Lane>::check(stream);
  const std::lock_guard growing(mutex_);
  if (Lane* lane = lanes_.find(stream)) return *lane;
  auto made = std::make_unique<Lane>(this, last_id_, idle_clock_, stream.id,
                                     completions_.of(stream.id));
  made->note_user();
  lanes_.for_each([&](Lane& other) {
    const std::lock_guard lock(other.lock);
    other.completion.expect_mark();
  });
  return peaks_.add_heap(lanes_, stream, std::move(made));
}

DataPtr UnifiedAllocator::obtain_slowly(const Request& request) {
  if (lanes_.find(request.stream) == nullptr) make_lane(request.stream);
  Growth growth;
  Served served = try_to_serve(request, &growth);
  if (served.buffer != nullptr) [[likely]] return wrap(served.buffer, served.event, request);
  int asked =
      UnifiedCallbackRegistry::instance().report(nullptr, MemoryEvent::kAllocationFailed);
  asked += pressure_.relieve(request.size_bytes).called;
  asked += reclaim_for_retry(growth.of_driver) ? 1 : 0;
  if (asked > 0) served = try_to_serve(request, &growth);
  if (served.buffer != nullptr) return wrap(served.buffer, served.event, request);
  std::uint64_t held = 0;
  {
    const AllLanesLock all(*this);
    ++stats_.num_ooms;
    held = supply_.reserved_bytes();
  }
  const std::uint64_t total = backend_.memory().total_bytes;
  throw_out_of_memory(request.requested_bytes, request.stream,
                      std::min(limits_.hard_limit_bytes(), total),
                      limits_.advice(request.size_bytes, held), growth.of_driver);
}

UnifiedAllocator::Served UnifiedAllocator::try_to_serve(const Request& request, Growth* growth) {
  Served served;
  unified::HeapChanges changes;
  {
    const AllLanesLock all(*this);
    served = serve(request);
    if (served.buffer == nullptr) served = serve_by_eviction(request, growth);
    if (served.buffer != nullptr) hand_out(served.buffer, request);
    growth->of_driver = !passes(unified::dedicated_heap_bytes(request.size_bytes),
                                limits_.hard_limit_bytes());
    changes = supply_.take_changes();
  }
  report_heaps(changes);
  return served;
}

void UnifiedAllocator::free_block(void* context) {
  Buffer* buffer = static_cast<Buffer*>(context);
  UnifiedAllocator& self = *buffer->allocator;
  void* const data = buffer->data;
  const std::uint64_t requested = buffer->requested_bytes;
  Lane& lane = buffer->heap->pool->lane();
  bool done = false;
  {
    const BiasedGuard lock(lane.lock);
    done = self.put_back_fast(lane, buffer);
  }
  if (!done) [[unlikely]] return self.free_slowly(data);
  self.report(MemoryEvent::kFreed, data, requested, {self.device_, lane.stream});
}

void UnifiedAllocator::free_slowly(void* data) {
  std::uint64_t requested = 0;
  Stream stream{device_, 0};
  unified::HeapChanges changes;
  {
    const AllLanesLock all(*this);
    Buffer* buffer = find_in_use(data, "free");
    requested = buffer->requested_bytes;
    stream.id = buffer->stream;
    put_back(buffer);
    trim_to_cache_limit();
    changes = supply_.take_changes();
  }
  report(MemoryEvent::kFreed, data, requested, stream);
  report_heaps(changes);
}

void UnifiedAllocator::report(MemoryEvent event, void* data, std::uint64_t size_bytes,
                              Stream stream) {
  observers_.report(event, data, size_bytes, stream);
  UnifiedCallbackRegistry::instance().report(data, event);
}

void UnifiedAllocator::report_heaps(const unified::HeapChanges& changes) {
  for (const MemoryEventInfo& heap : changes)
    if (heap.event == MemoryEvent::kMapped)
      observers_.report(heap.event, heap.data, heap.size_bytes, heap.stream);
    else
      report(heap.event, heap.data, heap.size_bytes, heap.stream);
}

// --- Allocation: with all lanes locked, except where a comment names the lane's lock.

UnifiedAllocator::AllLanesLock::AllLanesLock(const UnifiedAllocator& allocator,
                                             std::unique_lock<GrowthMutex> growing)
    : allocator_(allocator), growing_(std::move(growing)) {
  allocator_.lanes_.for_each([](Lane& lane) { lane.lock.lock(); });
}

UnifiedAllocator::AllLanesLock::~AllLanesLock() {
  allocator_.lanes_.for_each([](Lane& lane) { lane.lock.unlock(); });
}

UnifiedAllocator::Served UnifiedAllocator::serve(const Request& request) {
  BufferPool& pool = lanes_.find(request.stream)->pool(request.storage, request.size_class);
  if (Buffer* buffer = reuse(pool, request)) return {buffer};
  if (Buffer* buffer = borrow(request, From::kThisThread)) return {buffer};
  const bool is_short = passes(heap_bytes(pool, request, false), limits_.soft_limit_bytes());
  if (is_short)
    if (Buffer* buffer = borrow(request, From::kOtherThreads)) return {buffer};
  if (grow(pool, request)) {
    Buffer* buffer = pool.place(request.size_bytes, request.alignment);
    TENON_CHECK(buffer != nullptr, "a new heap has no room for {} bytes", request.size_bytes);
    return {buffer, MemoryEvent::kAllocated};
  }
  return {is_short ? nullptr : borrow(request, From::kOtherThreads)};
}

// How large a free buffer may be that is reused whole.
std::uint64_t UnifiedAllocator::largest_acceptable(std::uint64_t size_bytes) const {
  const double factor = options_.max_oversize_factor;
  return std::min(size_bytes + options_.max_oversize_bytes,
                  static_cast<std::uint64_t>(static_cast<double>(size_bytes) * factor));
}

// A buffer of the pool that its own stream may use without a wait. Under the lane's lock.
Buffer* UnifiedAllocator::reuse_fast(BufferPool& pool, const Request& request) {
  if (Buffer* buffer = pool.take(request.size_bytes, largest_acceptable(request.size_bytes)))
    return buffer;
  if (options_.grows_by_shares && pool.cached_bytes() != 0) pool.merge_cached();  // best fit of all
  if (Buffer* buffer = pool.place(request.size_bytes, request.alignment)) return buffer;
  return pool.pending().empty() ? merge_and_place(pool, request) : nullptr;
}

Buffer* UnifiedAllocator::merge_and_place(BufferPool& pool, const Request& request) {
  if (pool.cached_bytes() == 0 || pool.mergeable_bytes() < request.size_bytes) return nullptr;
  pool.merge_cached();
  return pool.place(request.size_bytes, request.alignment);
}

// The same, and with what has settled meanwhile.
Buffer* UnifiedAllocator::reuse(BufferPool& pool, const Request& request) {
  if (Buffer* buffer = reuse_fast(pool, request)) return buffer;
  if (pool.pending().empty()) return nullptr;
  if (settle_pending(pool) > 0)
    if (Buffer* buffer = pool.take(request.size_bytes, largest_acceptable(request.size_bytes)))
      return buffer;
  return merge_and_place(pool, request);
}

// A pending buffer whose other uses are all ordered before the requesting stream's next work.
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
      ordered = completions_.is_ordered(use->point, stream);
    if (ordered) best = i;
  }
  if (best == pending.size()) return nullptr;
  Buffer* buffer = pending[best];
  completions_.order_before(stream, buffer->freed);
  pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(best));
  pool.lane().came_back(buffer->heap);
  count_pending(pool, buffer, -1);
  return buffer;
}

// From free memory of other streams, and from pending buffers of the own stream.
Buffer* UnifiedAllocator::borrow(const Request& request, From whose) {
  Buffer* found = nullptr;
  lanes_.for_each([&](Lane& lane) {
    BufferPool* pool = lane.pools[request.pool_index()].get();
    if (found != nullptr || pool == nullptr) return;
    const bool is_own = lane.stream == request.stream.id || lane.is_this_threads();
    if (is_own != (whose == From::kThisThread)) return;
    found = take_pending(*pool, request);
    if (found != nullptr || lane.stream == request.stream.id) return;
    found = reuse(*pool, request);
    if (found == nullptr) return;
    try {
      completions_.order_before(request.stream.id, found->freed);
    } catch (...) {
      pool->cache(found);
      throw;
    }
  });
  return found;
}

std::uint64_t UnifiedAllocator::heap_bytes(const BufferPool& pool, const Request& request,
                                           bool under_pressure) const {
  if (request.size_class == SizeClass::kScalar) return unified::kScalarHeapBytes;
  if (!options_.grows_by_shares)
    return unified::heap_bytes_for(request.size_bytes, under_pressure);
  return under_pressure ? unified::dedicated_heap_bytes(request.size_bytes)
                        : growth_bytes(supply_.reserved_bytes(pool), request.size_bytes);
}

bool UnifiedAllocator::grow(BufferPool& pool, const Request& request) {
  const std::uint64_t soft = limits_.soft_limit_bytes();
  const std::uint64_t hard = limits_.hard_limit_bytes();
  if (options_.grows_by_shares)
    while (BufferHeap* heap = supply_.oldest_idle(&pool)) supply_.release(heap);
  std::uint64_t bytes = heap_bytes(pool, request, false);
  if (passes(bytes, soft)) {
    bytes = heap_bytes(pool, request, true);
    release_idle([&] { return passes(bytes, soft); });
  }
  if (!passes(bytes, hard) && supply_.grow(pool, bytes)) return true;
  const std::uint64_t exact = unified::dedicated_heap_bytes(request.size_bytes);
  return exact < bytes && !passes(exact, hard) && supply_.grow(pool, exact);
}

// Everything that is not in use goes back to the driver: first as much as the request needs, oldest
// first, then all of it.
UnifiedAllocator::Served UnifiedAllocator::serve_by_eviction(const Request& request,
                                                             Growth* growth) {
  if (!std::exchange(growth->retried, true)) ++stats_.num_alloc_retries;
  settle_everything();
  if (supply_.oldest_idle() == nullptr) return serve(request);
  const BufferPool& pool = lanes_.find(request.stream)->pool(request.storage, request.size_class);
  const std::uint64_t needed = heap_bytes(pool, request, true);
  const std::uint64_t before = supply_.reserved_bytes();
  release_idle([&] { return before - supply_.reserved_bytes() < needed; });
  if (const Served served = serve(request); served.buffer != nullptr) return served;
  if (supply_.oldest_idle() == nullptr) return {};
  release_idle([] { return true; });
  return serve(request);
}

// Under the lock of the buffer's lane.
void UnifiedAllocator::hand_out(Buffer* buffer, const Request& request) {
  BufferPool& pool = *buffer->heap->pool;
  Lane& lane = pool.lane();
  if (request.stream.id != lane.stream) [[unlikely]] expect_pending(pool, buffer);
  ++buffer->heap->buffers_out;
  lane.records.drop_uses(buffer);
  buffer->state = Buffer::State::kInUse;
  buffer->stream = request.stream.id;
  buffer->requested_bytes = request.requested_bytes;
  lane.counters.count_place(pool.counts(), static_cast<std::int64_t>(buffer->size_bytes()),
                            static_cast<std::int64_t>(request.requested_bytes));
  lane.counters.publish_if_drifted();
}

}  // namespace tenon
