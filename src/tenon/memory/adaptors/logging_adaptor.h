// Writes a line for everything that passes.
#pragma once

#include <functional>
#include <iosfwd>
#include <mutex>
#include <string_view>

#include "tenon/memory/adaptors/adaptor.h"

namespace tenon {

// One line, without its end, for each event:
//   allocate 1024 bytes on cpu:0: 0x7f8a4c000000
//   allocate 0 bytes on cpu:0: null
//   allocate 1099511627776 bytes failed: out of memory on ...
//   free 1024 bytes on cpu:0: 0x7f8a4c000000
//   copy 1024 bytes: 0x7f8a4c000000 to 0x7f8a4c001000
// On a device with streams, "on sim:0 stream 3".
//
// Thread-safe: the sink is called by one thread at a time and may use the allocator. What it throws
// is ignored, so an allocation does not fail because its log did. O(1) beside upstream and sink.
template <typename Base>
class LoggingAdaptor final : public Adaptor<Base> {
 public:
  // Gets each line, without its end.
  using Sink = std::function<void(std::string_view line)>;

  LoggingAdaptor(std::type_identity_t<Base>& upstream, Sink sink)
      : Adaptor<Base>(upstream), sink_(std::move(sink)) {}
  // To a stream, which must outlive the adaptor.
  LoggingAdaptor(std::type_identity_t<Base>& upstream, std::ostream& out);

  void copy_data(void* dest, const void* src, std::size_t size_bytes) const override;

 protected:
  using typename AdaptorCore<Base>::Block;
  std::string adaptor_name() const override { return "logging"; }
  DataPtr serve(std::size_t size_bytes, Stream stream) override;
  void take_back(std::unique_ptr<Block> block) override;

 private:
  void log(std::string_view line) const noexcept;
  std::string place(Device device, Stream stream) const;

  mutable std::recursive_mutex mutex_;
  const Sink sink_;
};

// Over a DeviceAllocator it is one: Note [Adaptors] in adaptor.h.
template <typename A, typename To>
LoggingAdaptor(A&, To&&) -> LoggingAdaptor<AdaptorBase<A>>;

extern template class LoggingAdaptor<Allocator>;
extern template class LoggingAdaptor<DeviceAllocator>;

}  // namespace tenon
