// How often a tensor's values were changed in place. O(1).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "tenon/base/intrusive_ptr.h"

namespace tenon {

// Note [Version counter sharing]
//
// Autograd records the version of a tensor that it saves, and compares it at backward. So whatever
// can change the same values must share a counter:
//   - views share their base's, detach() shares its source's;
//   - set_data() gives the tensor a new one, and data() makes a tensor with one of its own. Only
//     through those two can values change unnoticed by autograd;
//   - inference tensors have none.
// In nearly every program a storage therefore has exactly one counter. It lives inside the
// StorageImpl: no allocation, and a view needs one atomic increment (of the storage) instead of
// two. Only a tensor that must not share (set_data, data) has a VersionCounter on the heap. The
// counter is part of every tensor rather than of the autograd metadata. Tensors that need no
// gradient are saved, too, and making it lazily would be a race between forward threads.
struct VersionCounter final : IntrusiveTarget {
  std::atomic<std::uint32_t> value{0};
};

// A hold on a tensor's counter, wherever it lives; disabled for inference tensors. Keeps the
// counter readable without keeping the tensor's bytes. Copying costs one atomic increment.
// Thread-safe.
class VariableVersion {
 public:
  VariableVersion() = default;  // disabled
  // Requires: `value` is a member of `*owner`.
  VariableVersion(const IntrusivePtr<IntrusiveTarget>& owner, std::atomic<std::uint32_t>* value)
      : owner_(owner), value_(value) {}

  // Whether changes are counted.
  bool enabled() const { return value_ != nullptr; }
  // Throws InvalidArgument when disabled: inference tensors have no version.
  std::uint32_t current_version() const;
  // One in-place change. Throws InvalidArgument when disabled.
  void bump() const;
  // True when a change through either is seen by both.
  bool shares_with(const VariableVersion& other) const {
    return enabled() && value_ == other.value_;
  }

 private:
  WeakIntrusivePtr<IntrusiveTarget> owner_;
  std::atomic<std::uint32_t>* value_ = nullptr;
};

}  // namespace tenon
