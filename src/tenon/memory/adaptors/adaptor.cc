#include "tenon/memory/adaptors/adaptor.h"

#include <algorithm>

namespace tenon {

// --- Over any allocator.

void* Adaptor<Allocator>::raw_allocate(std::size_t size_bytes) {
  DataPtr data = allocate(size_bytes);
  return raw_table_.hold(data);
}

void Adaptor<Allocator>::raw_deallocate(void* data) {
  if (data == nullptr || raw_table_.release(data)) return;
  raise<InvalidPointer>(
      "raw_deallocate({}): adaptor {} holds no raw block there; it was freed already, or comes "
      "from another allocator or from allocate()", data, adaptor_name());
}

// --- Over a DeviceAllocator.

void Adaptor<DeviceAllocator>::record_stream(const DataPtr& data, Stream stream) {
  const Block* block = record_of(data);
  if (block == nullptr) return;
  const auto lock = enter();
  home_of(*block).record_stream(block->inner, stream);
}

void Adaptor<DeviceAllocator>::add_sources(std::vector<const Allocator*>& sources) const {
  sources.push_back(this);
  for (const DeviceAllocator* upstream : upstreams()) upstream->add_sources(sources);
}

void Adaptor<DeviceAllocator>::empty_cache() {
  const auto lock = enter();
  release_kept();
  for (DeviceAllocator* upstream : upstreams()) upstream->empty_cache();
}

AllocatorStats Adaptor<DeviceAllocator>::stats() const {
  AllocatorStats sum;
  for_each_upstream([&](DeviceAllocator& upstream) { sum += upstream.stats(); });
  return sum;
}

void Adaptor<DeviceAllocator>::reset_peak_stats() {
  for_each_upstream([](DeviceAllocator& upstream) { upstream.reset_peak_stats(); });
}

std::uint64_t Adaptor<DeviceAllocator>::reserved_bytes() const {
  std::uint64_t sum = 0;
  for_each_upstream([&](DeviceAllocator& upstream) { sum += upstream.reserved_bytes(); });
  return sum;
}

std::uint64_t Adaptor<DeviceAllocator>::largest_free_bytes() const {
  std::uint64_t largest = 0;
  for_each_upstream([&](DeviceAllocator& upstream) {
    largest = std::max(largest, upstream.largest_free_bytes());
  });
  return largest;
}

std::vector<SegmentInfo> Adaptor<DeviceAllocator>::snapshot() const {
  std::vector<SegmentInfo> all;
  for_each_upstream([&](DeviceAllocator& upstream) {
    for (SegmentInfo& segment : upstream.snapshot()) all.push_back(std::move(segment));
  });
  return all;
}

// Where the upstream put the block; what an adaptor adds before the data may depend on addresses.
// Upstreams beyond the first have ranges of their own, told apart by the bits from 56 on.
std::uint64_t Adaptor<DeviceAllocator>::layout_offset(const DataPtr& data) const {
  const Block* block = record_of(data);
  if (block == nullptr) return 0;
  const auto lock = enter();
  const std::vector<DeviceAllocator*> all = upstreams();
  DeviceAllocator& home = home_of(*block);
  const auto number = std::find(all.begin(), all.end(), &home) - all.begin();
  return (static_cast<std::uint64_t>(number) << 56) + home.layout_offset(block->inner);
}

void Adaptor<DeviceAllocator>::check_invariants() const {
  for_each_upstream([](DeviceAllocator& upstream) { upstream.check_invariants(); });
}

}  // namespace tenon
