// Writes a line for everything that passes.
#pragma once

#include <exception>
#include <functional>
#include <iosfwd>
#include <mutex>
#include <string>
#include <string_view>

#include "tenon/memory/adaptors/adaptor.h"

namespace tenon {

// Writes the lines. Thread-safe; what a sink throws is ignored.
class AllocationLog {
 public:
  // Gets each line, without its end.
  using Sink = std::function<void(std::string_view line)>;

 protected:
  explicit AllocationLog(Sink sink) : sink_(std::move(sink)) {}
  // To a stream, which must outlive the log.
  explicit AllocationLog(std::ostream& out);

  // A line for each event; `data` and `place`: of the block.
  void allocated(std::size_t size_bytes, const std::string& place, const void* data) const;
  // The request failed with `error`.
  void failed(std::size_t size_bytes, const std::exception& error) const;
  // As `allocated`.
  void freed(std::size_t size_bytes, const std::string& place, const void* data) const;
  // From `src` to `dest`.
  void copied(std::size_t size_bytes, const void* dest, const void* src) const;

 private:
  void write(std::string_view line) const noexcept;

  mutable std::recursive_mutex mutex_;
  const Sink sink_;
};

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
class LoggingAdaptor final : public Adaptor<Base>, public AllocationLog {
 public:
  LoggingAdaptor(std::type_identity_t<Base>& upstream, Sink sink)
      : Adaptor<Base>(upstream), AllocationLog(std::move(sink)) {}
  // To a stream, which must outlive the adaptor.
  LoggingAdaptor(std::type_identity_t<Base>& upstream, std::ostream& out)
      : Adaptor<Base>(upstream), AllocationLog(out) {}

  void copy_data(void* dest, const void* src, std::size_t size_bytes) const override {
    copied(size_bytes, dest, src);
    Adaptor<Base>::copy_data(dest, src, size_bytes);
  }

 protected:
  std::string adaptor_name() const override { return "logging"; }
  DataPtr serve(std::size_t size_bytes, Stream stream) override {
    DataPtr inner;
    try {
      inner = this->from_upstream(size_bytes, stream);
    } catch (const std::exception& error) {
      failed(size_bytes, error);
      throw;
    }
    const std::string where = place(inner.device(), stream);
    DataPtr data = this->wrap(std::move(inner), size_bytes, stream);
    allocated(size_bytes, where, data.get());
    return data;
  }
  void take_back(std::unique_ptr<AdaptorBlock> block) override {
    freed(block->size_bytes, place(block->inner.device(), block->stream), block->data);
    Adaptor<Base>::take_back(std::move(block));
  }

 private:
  static std::string place(Device device, Stream stream) {
    if constexpr (AdaptorCore<Base>::kOnDevice) return to_string(stream);
    return to_string(device);
  }
};

// Over a DeviceAllocator it is one: Note [Adaptors] in adaptor.h.
template <typename A, typename To>
LoggingAdaptor(A&, To&&) -> LoggingAdaptor<AdaptorBase<A>>;

}  // namespace tenon
