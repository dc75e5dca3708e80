// Larger alignment than the upstream's.
#pragma once

#include <cstdint>
#include <string>

#include "tenon/base/align.h"
#include "tenon/base/byte_size.h"
#include "tenon/memory/adaptors/adaptor.h"

namespace tenon {

// Every block starts at a multiple of `alignment`, over any upstream. Each request is made
// alignment - 1 bytes larger, and the block begins at the first multiple inside.
//
//   upstream's block:  | ..... |<- aligned: size_bytes ->| ... |
//
// The upstream counts the larger requests. Thread-safe without a lock. O(1) beside the upstream.
template <typename Base>
class AlignedAdaptor final : public Adaptor<Base> {
 public:
  static constexpr std::uint64_t kMaxAlignment = std::uint64_t{1} << 40;

  // Throws InvalidArgument unless `alignment` is a power of two up to kMaxAlignment.
  AlignedAdaptor(std::type_identity_t<Base>& upstream, std::uint64_t alignment)
      : Adaptor<Base>(upstream), alignment_(alignment) {
    if (!is_power_of_two(alignment) || alignment > kMaxAlignment)
      throw InvalidArgument("alignment " + std::to_string(alignment) +
                            " is no power of two from 1 to " + format_byte_size(kMaxAlignment));
  }

  // Of every block, in bytes.
  std::size_t alignment() const override { return alignment_; }

 protected:
  std::string adaptor_name() const override { return "aligned"; }
  DataPtr serve(std::size_t size_bytes, Stream stream) override {
    DataPtr inner = this->padded_from_upstream(alignment_ - 1, size_bytes, stream);
    const auto address = reinterpret_cast<std::uintptr_t>(inner.get());
    auto* data = reinterpret_cast<void*>(align_up(address, alignment_));
    return this->wrap(std::move(inner), size_bytes, stream, std::make_unique<AdaptorBlock>(), data);
  }

 private:
  const std::uint64_t alignment_;
};

// Over a DeviceAllocator it is one: Note [Adaptors] in adaptor.h.
template <typename A>
AlignedAdaptor(A&, std::uint64_t) -> AlignedAdaptor<AdaptorBase<A>>;

}  // namespace tenon
