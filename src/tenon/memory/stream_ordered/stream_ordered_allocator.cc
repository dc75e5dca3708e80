#include "tenon/memory/stream_ordered/stream_ordered_allocator.h"

#include <fmt/format.h>

#include <algorithm>

#include "tenon/base/check.h"

namespace tenon {
namespace {

const Extent* extent_of(const Block* block) { return static_cast<const Extent*>(block->owner); }

bool is_plain(const CachingSettings& settings) {
  return std::all_of(settings.roundup_power2_divisions.begin(),
                     settings.roundup_power2_divisions.end(), [](auto d) { return d <= 1; });
}

}  // namespace

StreamOrderedAllocator::StreamOrderedAllocator(Backend& backend, const CachingSettings& settings,
                                               std::uint64_t limit_bytes,
                                               std::uint64_t small_limit)
    : DeviceAllocator(backend),
      settings_(settings),
      small_limit_(small_limit),
      plain_rounding_(is_plain(settings)),
      limit_bytes_(limit_bytes) {
  if (settings.per_process_memory_fraction < 1)
    set_memory_fraction(settings.per_process_memory_fraction);
}

// ------------------------------------------------------------------------------------------------
// The common path

DataPtr StreamOrderedAllocator::allocate_on(std::size_t size_bytes, Stream stream) {
  check_request(size_bytes, stream);
  StreamHeap* heap = heaps_.find(stream);
  if (heap != nullptr && size_bytes != 0 && observers_.empty()) [[likely]] {
    const std::uint64_t rounded = round_size(size_bytes);
    Block* block = heap->place_at_once(pool_for(rounded), size_bytes, rounded);
    if (block != nullptr) [[likely]] return wrap(block);
  }
  return allocate_by_steps(size_bytes, stream);
}

DataPtr StreamOrderedAllocator::allocate_by_steps(std::size_t size_bytes, Stream stream) {
  if (size_bytes == 0) return DataPtr(device_);
  const std::uint64_t rounded = round_size(size_bytes);
  const Pool pool = pool_for(rounded);
  StreamHeap* heap = heaps_.find(stream);
  if (heap == nullptr) heap = &make_heap(stream);
  bool grew = false;
  Block* block = place(*heap, pool, size_bytes, rounded);
  if (block == nullptr) [[unlikely]]
    block = place_slowly(*heap, pool, size_bytes, rounded, &grew);
  observers_.report(grew ? MemoryEvent::kAllocated : MemoryEvent::kRecycled, address_of(block),
                    size_bytes, stream);
  return wrap(block);
}

Block* StreamOrderedAllocator::place(StreamHeap& heap, Pool pool, std::uint64_t requested,
                                     std::uint64_t rounded, bool grown) {
  const StreamHeap::Lock lock(heap, StreamHeap::Door::kAsItIs);
  if (Block* again = heap.pass_again(requested)) return again;
  heap.close_door();
  heap.adopt();
  if (heap.has_remote_frees()) [[unlikely]] heap.drain_remote_frees();
  if (heap.has_pending()) [[unlikely]] heap.process_pending(false);
  return heap.place(pool, requested, rounded, grown);
}

void StreamOrderedAllocator::free_block(void* context) {
  Block* block = static_cast<Block*>(context);
  StreamHeap& heap = *extent_of(block)->heap;
  if (heap.allocator()->observers_.empty() && heap.release_at_once(block)) [[likely]] return;
  free_by_steps(block);
}

void StreamOrderedAllocator::free_by_steps(Block* block) {
  StreamHeap& heap = *extent_of(block)->heap;
  StreamOrderedAllocator& self = *heap.allocator();
  self.observers_.report(MemoryEvent::kFreed, address_of(block), block->requested, heap.stream());
  if (!heap.is_owned_by_this_thread()) return heap.push_remote_free(block);
  const StreamHeap::Lock lock(heap, StreamHeap::Door::kAsItIs);
  if (heap.come_back(block)) return;
  heap.close_door();
  heap.release(block);
}

// ------------------------------------------------------------------------------------------------
// Growth

Block* StreamOrderedAllocator::place_slowly(StreamHeap& heap, Pool pool, std::uint64_t requested,
                                            std::uint64_t rounded, bool* grew) {
  Block* block = nullptr;
  std::string help;
  {
    const std::lock_guard device_lock(device_mutex_);
    // What another thread or stream has just finished with may do, and after growth another thread
    // may have been quicker; so look again each time.
    while ((block = place(heap, pool, requested, rounded, *grew)) == nullptr) {
      if (!grow(heap, pool, rounded)) break;
      *grew = true;
    }
    if (block == nullptr) {
      ++device_stats_.num_ooms;
      help = advice();
    }
  }
  report_notes();
  if (block != nullptr) return block;
  throw_out_of_memory(requested, heap.stream(),
                      limit_bytes_ != 0 ? limit_bytes_ : backend_.total_bytes(),
                      std::move(help));
}

void StreamOrderedAllocator::report_notes() {
  if (observers_.empty()) [[likely]] return;
  std::vector<MemoryEventInfo> notes;
  {
    const std::lock_guard device_lock(device_mutex_);
    notes.swap(notes_);
  }
  for (const MemoryEventInfo& n : notes)
    observers_.report(n.event, n.data, n.size_bytes, n.stream);
}

StreamHeap& StreamOrderedAllocator::make_heap(Stream stream) {
  StreamSlots<StreamHeap>::check(stream);
  const std::lock_guard device_lock(device_mutex_);
  if (StreamHeap* heap = heaps_.find(stream)) return *heap;
  auto heap = std::make_unique<StreamHeap>(*this, stream);
  for (const Pool pool : {Pool::kSmall, Pool::kLarge}) heap->rules(pool) = pool_rules(pool);
  bool alone = true;
  for_each_heap([&](StreamHeap& other) {
    const StreamHeap::Lock lock(other);
    if (alone) peak_board_.raise_peaks(other.peak_levels());
    alone = false;
    other.join_board(&peak_board_);
  });
  if (!alone) heap->join_board(&peak_board_);
  return heaps_.add(stream, std::move(heap));
}

void StreamOrderedAllocator::finish_pending_frees() {
  ++device_stats_.num_sync_all_streams;
  for_each_heap([](StreamHeap& heap) {
    const StreamHeap::Lock lock(heap);
    heap.drain_remote_frees();
    heap.process_pending(true);
  });
}

void StreamOrderedAllocator::empty_cache() {
  {
    const std::lock_guard device_lock(device_mutex_);
    release_cached();
  }
  report_notes();
}

void StreamOrderedAllocator::set_memory_fraction(double fraction) {
  if (!(fraction > 0 && fraction <= 1))
    throw InvalidArgument(fmt::format("memory fraction {} is not above 0 and up to 1", fraction));
  const std::lock_guard device_lock(device_mutex_);
  const auto total = static_cast<double>(backend_.total_bytes());
  limit_bytes_ = static_cast<std::uint64_t>(fraction * total);
}

bool StreamOrderedAllocator::exceeds_limit(std::uint64_t more) const {
  return limit_bytes_ != 0 && reserved_now() + more > limit_bytes_;
}

void StreamOrderedAllocator::record_stream(const DataPtr& data, Stream stream) {
  if (data == nullptr) return;
  if (stream.device != device_)
    throw InvalidArgument(fmt::format("record_stream: {} does not belong to {}", to_string(stream),
                                      to_string(device_)));
  Block* block = block_of(data, "record_stream");
  StreamHeap& heap = *extent_of(block)->heap;
  const StreamHeap::Lock lock(heap);
  heap.record_use(block, stream);
}

// The block behind a DataPtr that this allocator handed out.
Block* StreamOrderedAllocator::block_of(const DataPtr& data, const char* caller) const {
  if (data.get_deleter() == &free_block && data.get_context() != nullptr) {
    Block* block = static_cast<Block*>(data.get_context());
    if (extent_of(block)->heap->allocator() == this) return block;
  }
  throw InvalidPointer(fmt::format("{}({}): not a block of {} on {}", caller, data.get(), name(),
                                   to_string(device_)));
}

// ------------------------------------------------------------------------------------------------
// Accounts

void StreamOrderedAllocator::add_reserved(Pool pool, std::int64_t bytes) {
  const auto which = pool == Pool::kSmall ? StatPool::kSmall : StatPool::kLarge;
  for (const StatPool p : {StatPool::kAll, which}) {
    Stat& stat = device_stats_.reserved_bytes[static_cast<std::size_t>(p)];
    if (bytes > 0)
      stat.increase(bytes);
    else
      stat.decrease(-bytes);
  }
}

void StreamOrderedAllocator::count_segment(Pool pool, int change) {
  const auto which = pool == Pool::kSmall ? StatPool::kSmall : StatPool::kLarge;
  for (const StatPool p : {StatPool::kAll, which}) {
    Stat& stat = device_stats_.segment[static_cast<std::size_t>(p)];
    if (change > 0)
      stat.increase(change);
    else
      stat.decrease(-change);
  }
  (change > 0 ? device_stats_.num_device_alloc : device_stats_.num_device_free) += 1;
}

AllocatorStats StreamOrderedAllocator::stats() const {
  const std::lock_guard device_lock(device_mutex_);
  AllocatorStats out = device_stats_;
  int heaps = 0;
  for_each_heap([&](StreamHeap& heap) {
    const StreamHeap::Lock lock(heap);
    heap.drain_remote_frees();
    heap.publish();
    heap.add_stats(out);
    ++heaps;
  });
  if (heaps < 2) return out;
  const StreamHeap::Board::Levels peaks = peak_board_.peaks();
  const auto set_peak = [](Stat& stat, std::int64_t peak) {
    stat.peak = std::max(peak, stat.current);
  };
  const std::int64_t requested[] = {peaks[6][0], peaks[7][0], peaks[7][1]};
  for (const std::size_t pool : {0, 1, 2}) {
    set_peak(out.allocation[pool], peaks[pool][0]);
    set_peak(out.allocated_bytes[pool], peaks[pool][1]);
    set_peak(out.active[pool], peaks[3 + pool][0]);
    set_peak(out.active_bytes[pool], peaks[3 + pool][1]);
    set_peak(out.requested_bytes[pool], requested[pool]);
  }
  return out;
}

void StreamOrderedAllocator::reset_peak_stats() {
  const std::lock_guard device_lock(device_mutex_);
  reset_peaks(device_stats_);
  for_each_heap([](StreamHeap& heap) {
    const StreamHeap::Lock lock(heap);
    heap.reset_peaks();
    heap.publish();
  });
  peak_board_.reset_peaks();
}

std::uint64_t StreamOrderedAllocator::reserved_bytes() const {
  const std::lock_guard device_lock(device_mutex_);
  return reserved_now();
}

std::uint64_t StreamOrderedAllocator::largest_free_bytes() const {
  const std::lock_guard device_lock(device_mutex_);
  std::uint64_t largest = 0;
  for_each_heap([&](StreamHeap& heap) {
    const StreamHeap::Lock lock(heap);
    for (const Pool pool : {Pool::kSmall, Pool::kLarge})
      largest = std::max(largest, heap.heap(pool).largest_free());
  });
  return largest;
}

std::uint64_t StreamOrderedAllocator::layout_offset(const DataPtr& data) const {
  const Block* block = block_of(data, "layout_offset");
  const Extent* extent = extent_of(block);
  const std::uint64_t pool_bit = extent->pool == Pool::kSmall ? 0 : std::uint64_t{1} << 63;
  return pool_bit | (extent->layout_base + block->offset -
                     reinterpret_cast<std::uintptr_t>(extent->segment.base));
}

std::vector<SegmentInfo> StreamOrderedAllocator::snapshot() const {
  const std::lock_guard device_lock(device_mutex_);
  std::vector<SegmentInfo> out;
  for_each_heap([&](StreamHeap& heap) {
    const StreamHeap::Lock lock(heap);
    heap.drain_remote_frees();
    heap.add_snapshot(out);
  });
  std::sort(out.begin(), out.end(),
            [](const SegmentInfo& a, const SegmentInfo& b) { return a.address < b.address; });
  return out;
}

void StreamOrderedAllocator::check_invariants() const {
  const std::lock_guard device_lock(device_mutex_);
  for_each_heap([](StreamHeap& heap) {
    const StreamHeap::Lock lock(heap);
    heap.drain_remote_frees();
    heap.check_invariants();
  });
}

}  // namespace tenon
