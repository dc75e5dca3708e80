// The bodies of PerStreamAllocator. Include per_stream_allocator.h.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tenon/base/check.h"
#include "tenon/base/error.h"

namespace tenon {

template <typename L>
PerStreamAllocator<L>::PerStreamAllocator(Backend& backend, Config config,
                                          std::uint64_t limit_bytes,
                                          std::unique_ptr<DeviceAllocator>&& fallback)
    : DeviceAllocator(backend), config_(std::move(config)), limit_bytes_(limit_bytes) {
  if (fallback != nullptr) fallback_ = std::make_unique<Fallback>(std::move(fallback), observers_);
}

template <typename L>
PerStreamAllocator<L>::~PerStreamAllocator() {
  lanes_.for_each([&](LaneState& lane) {
    for (const auto& chunk : lane.chunks)
      ignore_refusal([&] { backend_.free_segment(chunk->segment); });
  });
}

// ------------------------------------------------------------------------------------------------
// The common path
//
// Note [no frame]: an allocation or free of a plan is some 80 instructions in all, and a dozen more
// to save and restore registers would show. So the path that nearly all calls take, a lane of the
// thread's own that nobody observes, calls nothing: whatever else there is to do is a function of
// its own, called last. The thread's name is one load (fast_thread_local.h), for the same reason.
// See allocate_on and free_block, here and in the arena, and HostAllocator's.

template <typename L>
DataPtr PerStreamAllocator<L>::allocate_on(std::size_t size_bytes, Stream stream) {
  if constexpr (QuickLane<L>) {
    check_request(size_bytes, stream);
    LaneState* lane = lanes_.find(stream);
    if (lane != nullptr && size_bytes != 0 && observers_.empty() &&
        lane->lock.try_lock_as_owner()) [[likely]] {
      Handle block = lane->heap.place_at_once(size_bytes);
      if (block != nullptr) [[likely]] count_placed(*lane, block, size_bytes);
      lane->lock.unlock_as_owner();
      if (block != nullptr) [[likely]] return wrap(block);
    }
  }
  return allocate_by_steps(size_bytes, stream);
}

template <typename L>
DataPtr PerStreamAllocator<L>::allocate_by_steps(std::size_t size_bytes, Stream stream) {
  check_request(size_bytes, stream);
  if (size_bytes == 0) [[unlikely]] return DataPtr(device_);
  LaneState& lane = lane_of(stream);
  Handle block = nullptr;
  {
    const BiasedGuard lock(lane.lock);
    block = place_in(lane, size_bytes);
  }
  if (block == nullptr) [[unlikely]] return allocate_slowly(lane, size_bytes);
  DataPtr data = wrap(block);
  observers_.report(MemoryEvent::kRecycled, data.get(), size_bytes, stream);
  return data;
}

template <typename L>
typename PerStreamAllocator<L>::LaneState& PerStreamAllocator<L>::make_lane(Stream stream) {
  const std::lock_guard growing(grow_mutex_);
  if (LaneState* lane = lanes_.find(stream)) return *lane;
  StreamSlots<LaneState>::check(stream);
  return totals_.add_lane(lanes_, stream, std::make_unique<LaneState>(config_, stream));
}

// Requires: the lane is locked.
template <typename L>
typename L::Handle PerStreamAllocator<L>::place_in(LaneState& lane, std::size_t size_bytes) {
  Handle block = lane.heap.place(size_bytes);
  if (block != nullptr) [[likely]] count_placed(lane, block, size_bytes);
  return block;
}

template <typename L>
void PerStreamAllocator<L>::free_block(void* context) {
  Handle block = static_cast<Handle>(context);
  const Chunk& chunk = *chunk_of(block);
  auto& lane = *static_cast<LaneState*>(chunk.lane);
  if (static_cast<PerStreamAllocator*>(chunk.allocator)->observers_.empty() &&
      lane.lock.try_lock_as_owner()) [[likely]] {
    take_back(lane, block);
    lane.lock.unlock_as_owner();
    return;
  }
  free_by_steps(block);
}

template <typename L>
void PerStreamAllocator<L>::free_by_steps(Handle block) {
  const Chunk& chunk = *chunk_of(block);
  auto& self = *static_cast<PerStreamAllocator*>(chunk.allocator);
  auto& lane = *static_cast<LaneState*>(chunk.lane);
  // Before the block can be handed out again, so that observers see events in their order.
  self.observers_.report(MemoryEvent::kFreed, address_of(block), block->requested, lane.stream);
  const BiasedGuard lock(lane.lock);
  take_back(lane, block);
}

// ------------------------------------------------------------------------------------------------
// Growth

template <typename L>
DataPtr PerStreamAllocator<L>::allocate_slowly(LaneState& lane, std::size_t size_bytes) {
  if (Handle block = grow_and_place(lane, size_bytes)) {
    DataPtr data = wrap(block);
    observers_.report(MemoryEvent::kAllocated, data.get(), size_bytes, lane.stream);
    return data;
  }
  if (fallback_ != nullptr &&
      (limit_bytes_ == 0 || reserved_bytes() + size_bytes <= limit_bytes_)) {
    try {
      return fallback_->allocator().allocate_on(size_bytes, lane.stream);
    } catch (const OutOfMemory&) {
      // Reported below, with this allocator's figures.
    }
  }
  {
    const std::lock_guard lock(lock_);
    ++num_ooms_;
  }
  throw_out_of_memory(size_bytes, lane.stream,
                      limit_bytes_ != 0 ? limit_bytes_ : backend_.total_bytes(),
                      "free what is no longer needed; other streams' free blocks are not shared");
}

// Null when the lane does not grow for this request, or the driver has no memory even after all
// free chunks went back.
template <typename L>
typename L::Handle PerStreamAllocator<L>::grow_and_place(LaneState& lane, std::size_t size_bytes) {
  const std::lock_guard growing(grow_mutex_);
  for (bool retried = false;; retried = true) {
    for (int choice = 0;; ++choice) {
      std::uint64_t wanted = 0;
      {
        const std::lock_guard lock(lane.lock);
        if (borrow_chunk(lane)) return place_in(lane, size_bytes);
        wanted = lane.heap.chunk_bytes(size_bytes, choice, lane.chunk_bytes);
        if (wanted == 0 && choice == 0) return nullptr;
        if (wanted == 0) break;
        // Another thread may have grown the heap or freed a block meanwhile.
        if (Handle block = place_in(lane, size_bytes)) return block;
      }
      const std::optional<Segment> segment = allocate_chunk(wanted);
      if (!segment) continue;
      const std::lock_guard lock(lane.lock);
      auto chunk = std::make_unique<Chunk>();
      chunk->allocator = this;
      chunk->lane = &lane;
      chunk->offset_base = lane.offset_end;
      chunk->segment = *segment;
      chunk->size_bytes = wanted;
      chunk->extent = lane.heap.add_chunk(chunk->offset_base, wanted, chunk.get());
      lane.offset_end += wanted;
      lane.chunk_bytes += wanted;
      lane.chunks.push_back(std::move(chunk));
      if (Handle block = place_in(lane, size_bytes)) return block;
      choice = -1;  // another thread took what was added, or the lane refuses this request anyway
    }
    if (!retried) {
      const std::lock_guard lock(lock_);
      ++num_alloc_retries_;
    }
    if (retried || !release_free_chunks()) {
      const std::lock_guard lock(lane.lock);
      lane.heap.note_refused();
      return nullptr;
    }
  }
}

// Requires: grow_mutex_ is held and the lane locked, so that the chunk does not go back meanwhile.
template <typename L>
bool PerStreamAllocator<L>::borrow_chunk(LaneState& lane) {
  if constexpr (BorrowingLane<L>) {
    const Chunk* lent = lane.heap.chunk_to_borrow();
    if (lent == nullptr) return false;
    auto chunk = std::make_unique<Chunk>(*lent);
    chunk->lane = &lane;
    chunk->extent = lane.heap.add_chunk(chunk->offset_base, chunk->size_bytes, chunk.get(), true);
    lane.borrowed = std::move(chunk);
    return true;
  }
  return false;
}

template <typename L>
std::optional<Segment> PerStreamAllocator<L>::allocate_chunk(std::uint64_t size_bytes) {
  {
    const std::lock_guard lock(lock_);
    if (limit_bytes_ != 0 &&
        static_cast<std::uint64_t>(reserved_.current) + size_bytes > limit_bytes_)
      return std::nullopt;
  }
  const std::optional<Segment> segment = backend_.allocate_segment(size_bytes);
  if (!segment) return std::nullopt;
  const std::lock_guard lock(lock_);
  reserved_.increase(static_cast<std::int64_t>(segment->size_bytes));
  segments_.increase(1);
  ++num_device_alloc_;
  return segment;
}

// Gives every chunk in which nothing lives back to the driver, lanes in order. Returns whether any
// went. Requires: grow_mutex_ is held, no lane is locked. A driver that fails to take a chunk
// leaves it where it was.
template <typename L>
bool PerStreamAllocator<L>::release_free_chunks() {
  bool any = false;
  lanes_.for_each([&](LaneState& lane) {
    for (std::size_t i = 0; i < lane.chunks.size();)  // only grow_mutex_'s holder changes the list
      if (release_if_free(lane, i))
        any = true;
      else
        ++i;
  });
  return any;
}

template <typename L>
bool PerStreamAllocator<L>::release_if_free(LaneState& lane, std::size_t index) {
  Chunk& chunk = *lane.chunks[index];
  {
    const std::lock_guard lock(lane.lock);
    auto* extent = static_cast<typename L::Extent*>(chunk.extent);
    if (!L::is_wholly_free(extent)) return false;
    lane.heap.remove_chunk(extent);
  }
  const Segment segment = chunk.segment;
  try {
    backend_.free_segment(segment);
  } catch (...) {
    const std::lock_guard lock(lane.lock);
    chunk.extent = lane.heap.add_chunk(chunk.offset_base, chunk.size_bytes, &chunk);
    throw;
  }
  {
    const std::lock_guard lock(lane.lock);
    lane.chunk_bytes -= chunk.size_bytes;
    lane.chunks.erase(lane.chunks.begin() + static_cast<std::ptrdiff_t>(index));
  }
  const std::lock_guard lock(lock_);
  reserved_.decrease(static_cast<std::int64_t>(segment.size_bytes));
  segments_.decrease(1);
  ++num_device_free_;
  return true;
}

template <typename L>
void PerStreamAllocator<L>::empty_cache() {
  {
    const std::lock_guard growing(grow_mutex_);
    release_free_chunks();
  }
  if (fallback_ != nullptr) fallback_->allocator().empty_cache();
}

// ------------------------------------------------------------------------------------------------
// Accounts

template <typename L>
AllocatorStats PerStreamAllocator<L>::stats() const {
  AllocatorStats out;
  {
    const std::lock_guard growing(grow_mutex_);
    totals_.add_to(out, lanes_);
  }
  {
    const std::lock_guard lock(lock_);
    out.reserved_bytes[0] = reserved_;
    out.segment[0] = segments_;
    out.num_device_alloc = num_device_alloc_;
    out.num_device_free = num_device_free_;
    out.num_alloc_retries = num_alloc_retries_;
  }
  if (fallback_ != nullptr) add_stats(out, fallback_->allocator().stats());
  const std::lock_guard lock(lock_);
  out.num_ooms = num_ooms_;  // a request that the fallback refused failed once, not twice
  return out;
}

template <typename L>
void PerStreamAllocator<L>::reset_peak_stats() {
  if (fallback_ != nullptr) fallback_->allocator().reset_peak_stats();
  const std::lock_guard growing(grow_mutex_);
  totals_.reset_peaks(lanes_);
  const std::lock_guard lock(lock_);
  for (Stat* stat : {&reserved_, &segments_}) stat->peak = stat->current;
}

template <typename L>
std::uint64_t PerStreamAllocator<L>::largest_free_bytes() const {
  std::uint64_t largest = 0;
  for_each_lane([&](std::uint32_t, const L& lane) {
    largest = std::max(largest, lane.largest_free());
  });
  if (fallback_ != nullptr)
    largest = std::max(largest, fallback_->allocator().largest_free_bytes());
  return largest;
}

template <typename L>
std::vector<SegmentInfo> PerStreamAllocator<L>::snapshot() const {
  std::vector<SegmentInfo> out;
  if (fallback_ != nullptr) out = fallback_->allocator().snapshot();
  lanes_.for_each([&](LaneState& lane) {
    const std::lock_guard lock(lane.lock);
    for (const auto& chunk : lane.chunks) {
      SegmentInfo& segment = out.emplace_back();
      segment.address = reinterpret_cast<std::uintptr_t>(chunk->segment.base);
      segment.size_bytes = chunk->segment.size_bytes;
      segment.stream = lane.stream;
      auto* extent = static_cast<typename L::Extent*>(chunk->extent);
      lane.heap.for_each_block(extent, [&](Handle block, bool used) {
        segment.blocks.push_back(
            {chunk->address_of(L::offset_of(block)), L::size_of(block),
             used ? static_cast<std::uint64_t>(block->requested) : 0,
             used ? BlockInfo::State::kActive : BlockInfo::State::kInactive});
      });
    }
  });
  add_borrowed_blocks(out);
  std::sort(out.begin(), out.end(),
            [](const SegmentInfo& a, const SegmentInfo& b) { return a.address < b.address; });
  return out;
}

// Blocks that lanes have placed in chunks of others, into the segments of those.
template <typename L>
void PerStreamAllocator<L>::add_borrowed_blocks(std::vector<SegmentInfo>& segments) const {
  lanes_.for_each([&](LaneState& lane) {
    const std::lock_guard lock(lane.lock);
    if (lane.borrowed == nullptr || !lane.chunks.empty()) return;
    const auto base = reinterpret_cast<std::uintptr_t>(lane.borrowed->segment.base);
    const auto segment = std::find_if(segments.begin(), segments.end(),
                                      [&](const SegmentInfo& s) { return s.address == base; });
    if (segment == segments.end()) return;
    auto* extent = static_cast<typename L::Extent*>(lane.borrowed->extent);
    lane.heap.for_each_block(extent, [&](Handle block, bool used) {
      segment->blocks.push_back({lane.borrowed->address_of(L::offset_of(block)), L::size_of(block),
                                 used ? static_cast<std::uint64_t>(block->requested) : 0,
                                 used ? BlockInfo::State::kActive : BlockInfo::State::kInactive});
    });
    std::sort(segment->blocks.begin(), segment->blocks.end(),
              [](const BlockInfo& x, const BlockInfo& y) { return x.address < y.address; });
  });
}

template <typename L>
bool PerStreamAllocator<L>::owns(const DataPtr& data) const {
  return data.get_deleter() == &free_block && data.get_context() != nullptr &&
         chunk_of(static_cast<Handle>(data.get_context()))->allocator == this;
}

// Blocks of the fallback have the highest bit set.
template <typename L>
std::uint64_t PerStreamAllocator<L>::layout_offset(const DataPtr& data) const {
  if (owns(data)) return L::offset_of(static_cast<Handle>(data.get_context()));
  if (fallback_ != nullptr)
    return (std::uint64_t{1} << 63) | fallback_->allocator().layout_offset(data);
  throw InvalidPointer(fmt::format("layout_offset({}): not a block of {} on {}", data.get(), name(),
                                   to_string(device_)));
}

template <typename L>
void PerStreamAllocator<L>::record_stream(const DataPtr& data, Stream stream) {
  if (data == nullptr) return;
  if (!owns(data)) {
    if (fallback_ != nullptr) return fallback_->allocator().record_stream(data, stream);
    throw InvalidPointer(fmt::format("record_stream({}): not a block of {} on {}", data.get(),
                                     name(), to_string(device_)));
  }
  const Chunk& chunk = *chunk_of(static_cast<Handle>(data.get_context()));
  if (static_cast<LaneState*>(chunk.lane)->stream != stream)
    DeviceAllocator::record_stream(data, stream);
}

template <typename L>
void PerStreamAllocator<L>::check_invariants() const {
  if (fallback_ != nullptr) fallback_->allocator().check_invariants();
  const std::lock_guard growing(grow_mutex_);
  std::int64_t reserved = 0, chunks = 0;
  lanes_.for_each([&](LaneState& lane) {
    const std::lock_guard lock(lane.lock);
    check_lane(lane);
    for (const auto& chunk : lane.chunks) {
      ++chunks;
      reserved += static_cast<std::int64_t>(chunk->segment.size_bytes);
    }
  });
  const std::lock_guard lock(lock_);
  TENON_CHECK(reserved == reserved_.current && chunks == segments_.current,
              "{} chunks of {} bytes held, counted {} of {}", chunks, reserved, segments_.current,
              reserved_.current);
}

template <typename L>
void PerStreamAllocator<L>::check_lane(const LaneState& lane) {
  lane.heap.check_invariants();
  std::int64_t used_blocks = 0, used_bytes = 0, requested = 0;
  const auto count_blocks = [&](const Chunk& chunk) {
    lane.heap.for_each_block(
        static_cast<typename L::Extent*>(chunk.extent), [&](Handle block, bool used) {
          TENON_CHECK(chunk_of(block) == &chunk, "a block at {} forgot its chunk",
                      L::offset_of(block));
          if (!used) return;
          ++used_blocks;
          used_bytes += static_cast<std::int64_t>(L::size_of(block));
          requested += static_cast<std::int64_t>(block->requested);
        });
  };
  for (const auto& chunk : lane.chunks) count_blocks(*chunk);
  if (lane.borrowed != nullptr && lane.chunks.empty()) count_blocks(*lane.borrowed);
  const LaneCounters& counted = lane.counters;
  TENON_CHECK(used_blocks == counted.blocks.current() && used_bytes == counted.bytes.current() &&
                  requested == counted.requested_bytes.current(),
              "{} blocks of {} bytes ({} requested) in chunks of {}, counted {} of {} ({})",
              used_blocks, used_bytes, requested, to_string(lane.stream), counted.blocks.current(),
              counted.bytes.current(), counted.requested_bytes.current());
}

}  // namespace tenon
