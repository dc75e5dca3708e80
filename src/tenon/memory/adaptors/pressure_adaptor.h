// Watermarks and pressure callbacks for any allocator.
#pragma once

#include <cstdint>

#include "tenon/memory/adaptors/usage_adaptor.h"
#include "tenon/memory/watermark.h"

namespace tenon {

// Counts the bytes in use through it, as asked for, against two marks (Watermarks: ratios of the
// recommended bytes).
//
//   above the low mark    the callbacks are asked for the excess before the request goes upstream
//   above the high mark   the same, and the request is refused where that does not help
//   upstream has none     the callbacks are asked, and the request is made again for as long as
//                         they free memory: RMM's failure callback
//
// A callback may free and allocate here (PressureCallbacks). Thread-safe, no lock; O(1) beside.
template <typename Base>
class PressureAdaptor final : public UsageAdaptor<Base> {
 public:
  // `recommended_bytes`: what the ratios are of; 0: none, so both marks are off.
  PressureAdaptor(std::type_identity_t<Base>& upstream, std::uint64_t recommended_bytes)
      : UsageAdaptor<Base>(upstream), watermarks_(recommended_bytes) {}

  // The marks and the callbacks.
  Watermarks& watermarks() { return watermarks_; }
  PressureCallbacks& callbacks() { return callbacks_; }

 protected:
  std::string adaptor_name() const override { return "pressure"; }
  DataPtr serve(std::size_t size_bytes, Stream stream) override;

 private:
  DataPtr ask_upstream(std::size_t size_bytes, Stream stream);

  Watermarks watermarks_;
  PressureCallbacks callbacks_;
};

// What it is an adaptor of: Note [Adaptors].
template <typename A>
PressureAdaptor(A&, std::uint64_t) -> PressureAdaptor<AdaptorBase<A>>;

extern template class PressureAdaptor<Allocator>;
extern template class PressureAdaptor<DeviceAllocator>;

}  // namespace tenon
