// The bodies of PerStreamAllocator. Include per_stream_allocator.h.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tenon/base/check.h"
#include "tenon/base/error.h"

namespace tenon {

inline constexpr std::uint32_t kMostLanes = 4096;

template <typename L>
PerStreamAllocator<L>::PerStreamAllocator(Backend& backend, Config config,
                                          std::uint64_t limit_bytes,
                                          std::unique_ptr<DeviceAllocator>&& fallback)
    : DeviceAllocator(backend), config_(std::move(config)), limit_bytes_(limit_bytes) {
  if (fallback != nullptr) fallback_ = std::make_unique<Fallback>(std::move(fallback), observers_);
}

template <typename L>
PerStreamAllocator<L>::~PerStreamAllocator() {
  for (const auto& lane : lanes_) {
    if (lane == nullptr) continue;
    for (const auto& chunk : lane->chunks)
      ignore_refusal([&] { backend_.free_segment(chunk->segment); });
  }
}

// ------------------------------------------------------------------------------------------------
// The common path

template <typename L>
DataPtr PerStreamAllocator<L>::allocate_on(std::size_t size_bytes, Stream stream) {
  check_request(size_bytes, stream);
  if (size_bytes == 0) [[unlikely]] return DataPtr(device_);
  LaneState* lane = nullptr;
  Handle block = nullptr;
  {
    const std::lock_guard lock(lock_);
    lane = &lane_of(stream);
    block = place_in(*lane, size_bytes);
  }
  if (block == nullptr) [[unlikely]] return allocate_slowly(*lane, size_bytes);
  DataPtr data = wrap(block);
  observers_.report(MemoryEvent::kRecycled, data.get(), size_bytes, stream);
  return data;
}

// Requires: lock_ is held.
template <typename L>
typename PerStreamAllocator<L>::LaneState& PerStreamAllocator<L>::lane_of(Stream stream) {
  if (stream.id < lanes_.size() && lanes_[stream.id] != nullptr) [[likely]]
    return *lanes_[stream.id];
  if (stream.id >= kMostLanes)
    throw InvalidArgument(
        fmt::format("{}: stream ids go up to {}", to_string(stream), kMostLanes - 1));
  if (stream.id >= lanes_.size()) lanes_.resize(stream.id + 1);
  lanes_[stream.id] = std::make_unique<LaneState>(config_, stream);
  return *lanes_[stream.id];
}

// Requires: lock_ is held.
template <typename L>
typename L::Handle PerStreamAllocator<L>::place_in(LaneState& lane, std::size_t size_bytes) {
  Handle block = lane.heap.place(size_bytes);
  if (block == nullptr) [[unlikely]] return nullptr;
  block->requested = size_bytes;
  counters_.count_placed(L::size_of(block), size_bytes);
  return block;
}

template <typename L>
void PerStreamAllocator<L>::free_block(void* context) {
  Handle block = static_cast<Handle>(context);
  const Chunk& chunk = *chunk_of(block);
  auto& self = *static_cast<PerStreamAllocator*>(chunk.allocator);
  auto& lane = *static_cast<LaneState*>(chunk.lane);
  // Before the block can be handed out again, so that observers see events in their order.
  self.observers_.report(MemoryEvent::kFreed, address_of(block), block->requested, lane.stream);
  const std::lock_guard lock(self.lock_);
  self.counters_.count_released(L::size_of(block), block->requested);
  lane.heap.release(block);
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
                      limit_bytes_ != 0 ? limit_bytes_ : backend_.memory().total_bytes,
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
        const std::lock_guard lock(lock_);
        if (borrow_chunk(lane)) return place_in(lane, size_bytes);
        wanted = lane.heap.chunk_bytes(size_bytes, choice, lane.chunk_bytes);
        if (wanted == 0 && choice == 0) return nullptr;
        if (wanted == 0) break;
        // Another thread may have grown the heap or freed a block meanwhile.
        if (Handle block = place_in(lane, size_bytes)) return block;
      }
      const std::optional<Segment> segment = allocate_chunk(wanted);
      if (!segment) continue;
      const std::lock_guard lock(lock_);
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
      const std::lock_guard lock(lock_);
      lane.heap.note_refused();
      return nullptr;
    }
  }
}

// Requires: grow_mutex_ and lock_ are held, so that the chunk does not go back meanwhile.
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
// went. Requires: grow_mutex_ is held, lock_ is not. A driver that fails to take a chunk leaves it
// where it was.
template <typename L>
bool PerStreamAllocator<L>::release_free_chunks() {
  bool any = false;
  for (std::size_t id = 0;; ++id) {
    LaneState* lane = nullptr;
    {
      const std::lock_guard lock(lock_);
      if (id >= lanes_.size()) return any;
      lane = lanes_[id].get();
    }
    for (std::size_t i = 0; lane != nullptr && i < lane->chunks.size();) {
      Chunk& chunk = *lane->chunks[i];  // only grow_mutex_'s holder changes the list
      {
        const std::lock_guard lock(lock_);
        auto* extent = static_cast<typename L::Extent*>(chunk.extent);
        if (!L::is_wholly_free(extent)) {
          ++i;
          continue;
        }
        lane->heap.remove_chunk(extent);
      }
      try {
        backend_.free_segment(chunk.segment);
      } catch (...) {
        const std::lock_guard lock(lock_);
        chunk.extent = lane->heap.add_chunk(chunk.offset_base, chunk.size_bytes, &chunk);
        throw;
      }
      const Segment segment = chunk.segment;
      {
        const std::lock_guard lock(lock_);
        reserved_.decrease(static_cast<std::int64_t>(segment.size_bytes));
        segments_.decrease(1);
        ++num_device_free_;
        lane->chunk_bytes -= chunk.size_bytes;
        lane->chunks.erase(lane->chunks.begin() + static_cast<std::ptrdiff_t>(i));
      }
      any = true;
    }
  }
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
    const std::lock_guard lock(lock_);
    out.allocation[0] = out.active[0] = counters_.blocks;
    out.allocated_bytes[0] = out.active_bytes[0] = counters_.bytes;
    out.requested_bytes[0] = counters_.requested_bytes;
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
  const std::lock_guard lock(lock_);
  for (Stat* stat : {&counters_.blocks, &counters_.bytes, &counters_.requested_bytes, &reserved_,
                     &segments_})
    stat->peak = stat->current;
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
  const std::lock_guard lock(lock_);
  for (const auto& lane : lanes_) {
    if (lane == nullptr) continue;
    for (const auto& chunk : lane->chunks) {
      SegmentInfo& segment = out.emplace_back();
      segment.address = reinterpret_cast<std::uintptr_t>(chunk->segment.base);
      segment.size_bytes = chunk->segment.size_bytes;
      segment.stream = lane->stream;
      auto* extent = static_cast<typename L::Extent*>(chunk->extent);
      lane->heap.for_each_block(extent, [&](Handle block, bool used) {
        segment.blocks.push_back(
            {chunk->address_of(L::offset_of(block)), L::size_of(block),
             used ? static_cast<std::uint64_t>(block->requested) : 0,
             used ? BlockInfo::State::kActive : BlockInfo::State::kInactive});
      });
    }
  }
  add_borrowed_blocks(out);
  std::sort(out.begin(), out.end(),
            [](const SegmentInfo& a, const SegmentInfo& b) { return a.address < b.address; });
  return out;
}

// Blocks that lanes have placed in chunks of others, into the segments of those. Requires: lock_ is
// held.
template <typename L>
void PerStreamAllocator<L>::add_borrowed_blocks(std::vector<SegmentInfo>& segments) const {
  for (const auto& lane : lanes_) {
    if (lane == nullptr || lane->borrowed == nullptr || !lane->chunks.empty()) continue;
    const auto base = reinterpret_cast<std::uintptr_t>(lane->borrowed->segment.base);
    const auto segment = std::find_if(segments.begin(), segments.end(),
                                      [&](const SegmentInfo& s) { return s.address == base; });
    if (segment == segments.end()) continue;
    auto* extent = static_cast<typename L::Extent*>(lane->borrowed->extent);
    lane->heap.for_each_block(extent, [&](Handle block, bool used) {
      segment->blocks.push_back({lane->borrowed->address_of(L::offset_of(block)), L::size_of(block),
                                 used ? static_cast<std::uint64_t>(block->requested) : 0,
                                 used ? BlockInfo::State::kActive : BlockInfo::State::kInactive});
    });
    std::sort(segment->blocks.begin(), segment->blocks.end(),
              [](const BlockInfo& a, const BlockInfo& b) { return a.address < b.address; });
  }
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
  const std::lock_guard lock(lock_);
  std::int64_t used_blocks = 0, used_bytes = 0, requested = 0, reserved = 0, chunks = 0;
  const auto count_blocks = [&](const LaneState& lane, const Chunk& chunk) {
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
  for (const auto& lane : lanes_) {
    if (lane == nullptr) continue;
    lane->heap.check_invariants();
    for (const auto& chunk : lane->chunks) {
      ++chunks;
      reserved += static_cast<std::int64_t>(chunk->segment.size_bytes);
      count_blocks(*lane, *chunk);
    }
    if (lane->borrowed != nullptr && lane->chunks.empty()) count_blocks(*lane, *lane->borrowed);
  }
  TENON_CHECK(used_blocks == counters_.blocks.current && used_bytes == counters_.bytes.current &&
                  requested == counters_.requested_bytes.current,
              "{} blocks of {} bytes ({} requested) in chunks, counted {} of {} ({})", used_blocks,
              used_bytes, requested, counters_.blocks.current, counters_.bytes.current,
              counters_.requested_bytes.current);
  TENON_CHECK(reserved == reserved_.current && chunks == segments_.current,
              "{} chunks of {} bytes held, counted {} of {}", chunks, reserved, segments_.current,
              reserved_.current);
}

}  // namespace tenon
