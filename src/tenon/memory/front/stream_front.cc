#include "tenon/memory/front/stream_front.h"

#include <algorithm>
#include <new>
#include <utility>

#include "tenon/base/error.h"

namespace tenon {

StreamFront::StreamFront(Backend& backend, std::uint64_t limit_bytes,
                         std::unique_ptr<DeviceAllocator>&& fallback)
    : DeviceAllocator(backend), limit_bytes_(limit_bytes), fallback_(std::move(fallback)) {
  if (fallback_ == nullptr) return;
  end_idle_cache_of(*fallback_);  // the front's empties it
  fallback_->observers().share_lock(observers_);
  fallback_->observers().add(this);
}

StreamFront::~StreamFront() {
  if (fallback_ != nullptr) fallback_->observers().remove(this);
}

// Observers of the front see every block of the fallback. Its failures are the front's to report.
void StreamFront::on_memory_event(const MemoryEventInfo& info) {
  if (info.event == MemoryEvent::kAllocationFailed) return;
  observers_.report(info.event, info.data, info.size_bytes, info.stream);
}

// --- The slow path.

DataPtr StreamFront::allocate_slowly(std::size_t size_bytes, Stream stream) {
  if (size_bytes == 0) return DataPtr(device_);
  FrontHeap* heap = heaps_.find(stream);
  if (heap == nullptr) heap = &add_heap(stream);
  Growth growth;
  bool has_surplus = false;  // from frees by other threads
  void* block = place(*heap, size_bytes, false, &has_surplus);
  if (has_surplus) [[unlikely]] trim(*heap);
  if (block == nullptr) [[unlikely]] block = grow_and_place(*heap, size_bytes, &growth);
  if (block == nullptr) [[unlikely]] return allocate_when_short(*heap, size_bytes, stream, growth);
  return hand_out(block, growth.grown, size_bytes, stream);
}

DataPtr StreamFront::hand_out(void* block, bool grown, std::size_t size_bytes, Stream stream) {
  DataPtr data = wrap(block);
  report_notes();  // observers hear of memory before they hear of blocks in it
  observers_.report(grown ? MemoryEvent::kAllocated : MemoryEvent::kRecycled, data.get(),
                    size_bytes, stream);
  return data;
}

// The heaps and the driver have nothing: the fallback, then what others hold idle.
DataPtr StreamFront::allocate_when_short(FrontHeap& heap, std::size_t size_bytes, Stream stream,
                                         Growth growth) {
  report_notes();
  DataPtr data = ask_fallback(size_bytes, stream, &growth);
  if (data == nullptr && reclaim_for_retry(growth.of_driver)) {
    data = allocate_again(heap, size_bytes, stream, &growth);
    if (data == nullptr) {  // what came back may lie in the caches, where it cannot serve
      ignore_refusal([&] { empty_cache(); });
      data = allocate_again(heap, size_bytes, stream, &growth);
    }
  }
  if (data == nullptr) give_up(size_bytes, stream, growth.of_driver);
  return data;
}

// The same request, which counts as one retry however often it is tried.
DataPtr StreamFront::allocate_again(FrontHeap& heap, std::size_t size_bytes, Stream stream,
                                    Growth* growth) {
  if (void* const block = grow_and_place(heap, size_bytes, growth))
    return hand_out(block, growth->grown, size_bytes, stream);
  report_notes();
  if (fallback_ == nullptr) return DataPtr(device_);
  const auto retries = [&] { return fallback_->stats().num_alloc_retries; };
  const std::int64_t before = retries();
  DataPtr data = ask_fallback(size_bytes, stream, growth);
  const std::int64_t after = retries();
  const std::lock_guard growing(growth_mutex_);
  device_stats_.num_alloc_retries -= after - before;
  return data;
}

void* StreamFront::place(FrontHeap& heap, std::size_t size_bytes, bool grown, bool* has_surplus) {
  const BiasedGuard lock(heap.lock);
  heap.adopt();
  heap.release_remote_frees();
  if (heap.has_pending()) [[unlikely]] heap.process_pending(false);
  *has_surplus = heap.has_surplus();
  return heap.place(size_bytes, grown);
}

void* StreamFront::grow_and_place(FrontHeap& heap, std::size_t size_bytes, Growth* growth) {
  const std::lock_guard growing(growth_mutex_);
  refused_by_limit_ = false;
  const std::int64_t retries = device_stats_.num_alloc_retries;
  if (!may_grow(heap, size_bytes)) return nullptr;
  may_have_notes_.store(true, std::memory_order_relaxed);  // see report_notes
  void* block = nullptr;
  bool has_surplus = false;
  // What another thread or stream has just finished with may do, and after growth another thread
  // may have been quicker; so look again each time.
  while ((block = place(heap, size_bytes, growth->grown, &has_surplus)) == nullptr) {
    if (!grow(heap, size_bytes)) break;
    growth->grown = true;
  }
  growth->of_driver = !refused_by_limit_;
  if (growth->retried) device_stats_.num_alloc_retries = retries;  // a request counts once
  growth->retried |= device_stats_.num_alloc_retries != retries;
  return block;
}

// Null: there is none, or it has no memory either.
DataPtr StreamFront::ask_fallback(std::size_t size_bytes, Stream stream, Growth* growth) {
  if (fallback_ == nullptr) return DataPtr(device_);
  growth->of_driver = limit_bytes_ == 0 || reserved_bytes() + size_bytes <= limit_bytes_;
  if (!growth->of_driver) return DataPtr(device_);
  const ReclaimPause front_asks;
  try {
    return fallback_->allocate_on(size_bytes, stream);
  } catch (const OutOfMemory&) {
    return DataPtr(device_);  // give_up reports it, with this allocator's figures
  }
}

void StreamFront::give_up(std::size_t size_bytes, Stream stream, bool of_driver) {
  std::string help;
  {
    const std::lock_guard growth(growth_mutex_);
    ++device_stats_.num_ooms;
    help = advice();
  }
  throw_out_of_memory(size_bytes, stream, most_bytes(), std::move(help), of_driver);
}

void StreamFront::free_slowly(FrontHeap& heap, void* block) {
  auto& self = static_cast<StreamFront&>(heap.allocator());
  // Before the block can be handed out again, so that observers see events in their order.
  const FrontHeap::BlockFacts freed = heap.facts(block);
  self.observers_.report(MemoryEvent::kFreed, freed.address, freed.requested_bytes, heap.stream());
  if (!heap.is_owned_by_this_thread()) return heap.add_remote_free(block);
  bool has_surplus = false;
  {
    const BiasedGuard lock(heap.lock);
    heap.release(block);
    has_surplus = heap.has_surplus();
  }
  if (has_surplus) [[unlikely]] self.trim(heap);
}

// A driver that refuses what a free would give back leaves it with the heap.
void StreamFront::trim(FrontHeap& heap) noexcept {
  try {
    {
      const std::lock_guard growth(growth_mutex_);
      release_surplus(heap);
    }
    report_notes();
  } catch (const std::exception&) {
  }
}

FrontHeap& StreamFront::add_heap(Stream stream) {
  StreamSlots<FrontHeap>::check(stream);
  const std::lock_guard growth(growth_mutex_);
  if (FrontHeap* heap = heaps_.find(stream)) return *heap;
  return peaks_.add_heap(heaps_, stream, make_heap(stream));
}

void StreamFront::note(MemoryEvent event, void* data, std::uint64_t size_bytes, Stream stream) {
  if (observers_.empty()) [[likely]] return;
  try {
    notes_.push_back({event, data, size_bytes, stream, current_tag()});
    may_have_notes_.store(true, std::memory_order_relaxed);
  } catch (const std::bad_alloc&) {
    // The memory has changed hands already: that the observers miss it is the smaller harm.
  }
}

// Without a growth there is no lock to take. Another thread that places a block in memory of a
// growth under way has the heap's lock after the growth had it, so it sees the flag and waits.
void StreamFront::report_notes() {
  if (!may_have_notes_.load(std::memory_order_relaxed) || observers_.empty()) [[likely]] return;
  observers_.report_together([this] {
    std::vector<MemoryEventInfo> notes;
    {
      const std::lock_guard growth(growth_mutex_);
      notes.swap(notes_);
      may_have_notes_.store(false, std::memory_order_relaxed);
    }
    for (const MemoryEventInfo& n : notes)
      observers_.report(n.event, n.data, n.size_bytes, n.stream);
  });
}

void StreamFront::finish_pending_frees() {
  ++device_stats_.num_sync_all_streams;
  for_each_locked_heap([](FrontHeap& heap) { heap.process_pending(true); });
}

void StreamFront::empty_cache() {
  {
    const std::lock_guard growth(growth_mutex_);
    release_cached();
  }
  report_notes();
  if (fallback_ != nullptr) fallback_->empty_cache();
}

// --- Blocks by their DataPtr.

bool StreamFront::is_of_fallback(const DataPtr& data) const {
  return fallback_ != nullptr && heap_of(data) == nullptr;
}

FrontHeap& StreamFront::heap_of(const DataPtr& data, const char* caller) const {
  if (FrontHeap* const heap = heap_of(data)) return *heap;
  raise<InvalidPointer>("{}({}): not a block of {} on {}", caller, data.get(), name(),
                        to_string(device_));
}

void StreamFront::record_stream(const DataPtr& data, Stream stream) {
  if (data == nullptr) return;
  check_stream(stream, "record_stream");
  if (is_of_fallback(data)) return fallback_->record_stream(data, stream);
  FrontHeap& heap = heap_of(data, "record_stream");
  if (heap.stream() != stream) record_use(heap, data, stream);
}

void StreamFront::record_use(FrontHeap& heap, const DataPtr& data, Stream stream) {
  bool is_recorded = false;
  {
    const BiasedGuard lock(heap.lock);
    is_recorded = heap.record_use(data.get_context(), stream);
  }
  if (!is_recorded) DeviceAllocator::record_stream(data, stream);  // refuses
}

std::size_t StreamFront::usable_size(const DataPtr& data) const {
  if (data == nullptr) return 0;
  if (is_of_fallback(data)) return fallback_->usable_size(data);
  return heap_of(data, "usable_size").facts(data.get_context()).size_bytes;
}

bool StreamFront::try_grow(DataPtr& data, std::size_t size_bytes) {
  if (data == nullptr) return size_bytes == 0;
  if (is_of_fallback(data)) return fallback_->try_grow(data, size_bytes);
  FrontHeap& heap = heap_of(data, "try_grow");
  void* block = data.get_context();
  const std::uint64_t before = heap.facts(block).requested_bytes;
  if (size_bytes <= before) return true;
  {
    const BiasedGuard lock(heap.lock);
    heap.release_remote_frees();
    block = size_bytes <= kMaxRequestBytes ? heap.extend(block, size_bytes) : nullptr;
  }
  if (block == nullptr) return false;
  if (block != data.get_context()) {
    static_cast<void>(data.release_context());
    data = wrap(block);
  }
  observers_.report(MemoryEvent::kFreed, data.get(), before, heap.stream());
  observers_.report(MemoryEvent::kRecycled, data.get(), size_bytes, heap.stream());
  return true;
}

// Blocks of the fallback have the highest bit set.
std::uint64_t StreamFront::layout_offset(const DataPtr& data) const {
  if (is_of_fallback(data))
    return (std::uint64_t{1} << 63) | fallback_->layout_offset(data);
  return heap_of(data, "layout_offset").facts(data.get_context()).layout_offset;
}

// --- Accounts.

AllocatorStats StreamFront::stats() const {
  AllocatorStats out;
  {
    const auto asking = growth_mutex_.ask();
    out = device_stats_;
    for_each_locked_heap([&](FrontHeap& heap) { heap.counters.add_share(out); });
    peaks_.set_peaks(out);
  }
  if (fallback_ == nullptr) return out;
  const std::int64_t ooms = out.num_ooms;
  out += fallback_->stats();
  out.num_ooms = ooms;  // a request that the fallback refused failed once, not twice
  return out;
}

void StreamFront::reset_peak_stats() {
  if (fallback_ != nullptr) fallback_->reset_peak_stats();
  const auto asking = growth_mutex_.ask();
  reset_peaks(device_stats_);
  for_each_locked_heap([](FrontHeap& heap) { heap.counters.reset_peaks(); });
  peaks_.reset_peaks();
}

std::uint64_t StreamFront::reserved_bytes() const {
  const std::uint64_t behind = fallback_ ? fallback_->reserved_bytes() : 0;
  const auto asking = growth_mutex_.ask();
  return reserved_now() + behind;
}

std::uint64_t StreamFront::largest_free_bytes() const {
  std::uint64_t largest = fallback_ ? fallback_->largest_free_bytes() : 0;
  const auto asking = growth_mutex_.ask();
  for_each_locked_heap([&](FrontHeap& heap) { largest = std::max(largest, heap.largest_free()); });
  return largest;
}

std::vector<SegmentInfo> StreamFront::snapshot() const {
  std::vector<SegmentInfo> out;
  if (fallback_ != nullptr) out = fallback_->snapshot();
  {
    const auto asking = growth_mutex_.ask();
    for_each_locked_heap([&](FrontHeap& heap) { heap.add_snapshot(out); });
  }
  std::sort(out.begin(), out.end(),
            [](const SegmentInfo& a, const SegmentInfo& b) { return a.address < b.address; });
  return out;
}

void StreamFront::check_invariants() const {
  if (fallback_ != nullptr) fallback_->check_invariants();
  const std::lock_guard growth(growth_mutex_);
  for_each_locked_heap([](FrontHeap& heap) { heap.check_invariants(); });
}

}  // namespace tenon
