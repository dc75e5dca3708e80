// What an allocator keeps for each stream, found without a lock.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "tenon/base/error.h"
#include "tenon/device/device.h"

namespace tenon {

// One T for each stream that came by, by its id. Finding is O(1), thread-safe and takes no lock;
// who adds excludes others who add. What was added stays until the end.
template <typename T>
class StreamSlots {
 public:
  static constexpr std::uint32_t kMost = 4096;  // ids are dense; a larger one is a mistake

  StreamSlots() = default;
  StreamSlots(const StreamSlots&) = delete;
  StreamSlots& operator=(const StreamSlots&) = delete;
  [[gnu::cold]] ~StreamSlots() {
    for (std::uint32_t id = 0; id < end_.load(); ++id) delete slots_[id].load();
  }

  // Null for a stream that is new.
  T* find(Stream stream) const {
    return stream.id < kMost ? slots_[stream.id].load(std::memory_order_acquire) : nullptr;
  }

  // Throws InvalidArgument for an id that no backend hands out.
  [[gnu::cold]] static void check(Stream stream) {
    if (stream.id >= kMost)
      raise<InvalidArgument>("{}: stream ids go up to {}", to_string(stream), kMost - 1);
  }

  // Requires: the id passes check(), and find() is null.
  T& add(Stream stream, std::unique_ptr<T> made) {
    T* const added = made.release();
    slots_[stream.id].store(added, std::memory_order_release);
    if (end_.load() <= stream.id) end_.store(stream.id + 1);
    return *added;
  }

  // In order of stream id. What is added meanwhile may be left out.
  template <typename Visit>
  void for_each(Visit&& visit) const {
    for (std::uint32_t id = 0; id < end_.load(); ++id)
      if (T* slot = slots_[id].load(std::memory_order_acquire)) visit(*slot);
  }

 private:
  std::atomic<std::uint32_t> end_{0};  // the highest id that is there, plus 1
  std::array<std::atomic<T*>, kMost> slots_ = {};
};

}  // namespace tenon
