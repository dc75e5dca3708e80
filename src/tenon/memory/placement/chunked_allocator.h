// The policies that only place, over chunks of driver memory.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "tenon/memory/front/segment_front.h"
#include "tenon/memory/placement/chunk_heap.h"

namespace tenon {

// Serves each stream from a placement of its own. A heap that has no room grows by a chunk from the
// driver. When the driver has none left, empty chunks go back to it and it is asked again. Then the
// fallback, if there is one, is asked for the block alone.
//
// Thread safety and failure: as StreamFront. Complexity: the placement's.
class ChunkedAllocator : public SegmentFront {
 public:
  std::size_t alignment() const override { return alignment_of_steps(kChunkStepBytes); }

 protected:
  using SegmentFront::SegmentFront;

  std::string advice() const override {
    return "free what is no longer needed; other streams' free blocks are not shared";
  }

 private:
  bool may_grow(FrontHeap& heap, std::size_t size_bytes) final;
  bool grow(FrontHeap& heap, std::size_t size_bytes) final;
  void release_surplus(FrontHeap& heap) final;
};

// The same over heaps H, each made with a copy of the configuration. Gives all memory back to the
// driver at its end; blocks that still live must not be used any more.
template <typename H, typename Config>
class PlacementAllocator : public FastPath<H, ChunkedAllocator> {
 public:
  [[gnu::cold]] std::string name() const final { return name_; }

 protected:
  // `name`: the policy's, a literal.
  PlacementAllocator(const char* name, Backend& backend, Config config, std::uint64_t limit_bytes,
                     std::unique_ptr<DeviceAllocator>&& fallback = nullptr)
      : FastPath<H, ChunkedAllocator>(backend, limit_bytes, std::move(fallback)),
        name_(name),
        config_(std::move(config)) {}

  // As it was made with.
  const Config& config() const { return config_; }

 private:
  [[gnu::cold]] std::unique_ptr<FrontHeap> make_heap(Stream stream) override {
    return std::make_unique<H>(*this, stream, config_);
  }

  const char* const name_;
  const Config config_;
};

}  // namespace tenon
