// The allocator that does nothing: the floor under every figure in ns. Thread-safe: it has no
// state. O(1). Throws InvalidArgument for a size or a stream that no allocator takes.
#pragma once

#include "tenon/memory/device_allocator.h"

namespace tenon {

// Every request succeeds with a null pointer, and nothing is counted. Replaying over it measures
// the replayer. Memory of it must not be touched: there is none.
class NullAllocator final : public DeviceAllocator {
 public:
  // Over a backend, for its device alone.
  using DeviceAllocator::DeviceAllocator;

  std::string name() const override { return "null"; }
  DataPtr allocate_on(std::size_t size_bytes, Stream stream) override {
    check_request(size_bytes, stream);
    return DataPtr(stream.device);
  }
  void record_stream(const DataPtr&, Stream) override {}
  AllocatorStats stats() const override { return {}; }
  void reset_peak_stats() override {}
  std::uint64_t layout_offset(const DataPtr&) const override { return 0; }
};

}  // namespace tenon
