// Watermarks and pressure callbacks for any allocator.
#pragma once

#include <cstdint>

#include "tenon/memory/adaptors/limit_adaptor.h"
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
  DataPtr serve(std::size_t size_bytes, Stream stream) override {
    const std::uint64_t low = watermarks_.low_limit_bytes();
    if (size_bytes <= kMaxRequestBytes && this->used_bytes() + size_bytes > low)
      callbacks_.relieve(this->used_bytes() + size_bytes - low);
    const std::uint64_t high = watermarks_.high_limit_bytes();
    if (!this->reserve(size_bytes, high))
      this->refuse_above(high, size_bytes, stream,
                         "free blocks, add a callback that frees memory, or raise the high mark "
                         "(watermarks().set_high_ratio)");
    return this->serve_reserved(size_bytes, stream,
                                [&] { return ask_upstream(size_bytes, stream); });
  }

 private:
  DataPtr ask_upstream(std::size_t size_bytes, Stream stream) {
    for (;;) {
      try {
        return this->from_upstream(size_bytes, stream);
      } catch (const OutOfMemory&) {
        if (callbacks_.relieve(size_bytes).freed_bytes == 0) throw;
      }
    }
  }

  Watermarks watermarks_;
  PressureCallbacks callbacks_;
};

// What it is an adaptor of: Note [Adaptors].
template <typename A>
PressureAdaptor(A&, std::uint64_t) -> PressureAdaptor<AdaptorBase<A>>;

}  // namespace tenon
