// Writes a line for everything that passes.
#pragma once

#include <fmt/core.h>

#include <exception>
#include <functional>
#include <mutex>
#include <ostream>
#include <string>
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
  // Gets each line.
  using Sink = std::function<void(std::string_view line)>;

  LoggingAdaptor(std::type_identity_t<Base>& upstream, Sink sink)
      : Adaptor<Base>(upstream), sink_(std::move(sink)) {}
  // To a stream, which must outlive the adaptor.
  LoggingAdaptor(std::type_identity_t<Base>& upstream, std::ostream& out)
      : LoggingAdaptor(upstream, [&out](std::string_view line) { out << line << '\n'; }) {}

  void copy_data(void* dest, const void* src, std::size_t size_bytes) const override {
    write([&] { return fmt::format("copy {} bytes: {} to {}", size_bytes, src, dest); });
    Adaptor<Base>::copy_data(dest, src, size_bytes);
  }

 protected:
  std::string adaptor_name() const override { return "logging"; }
  DataPtr serve(std::size_t size_bytes, Stream stream) override {
    DataPtr inner;
    try {
      inner = this->from_upstream(size_bytes, stream);
    } catch (const std::exception& error) {
      write([&] {
        return fmt::format("allocate {} bytes failed: {}", size_bytes, error.what());
      });
      throw;
    }
    DataPtr data = this->wrap(std::move(inner), size_bytes, stream);
    write([&] {
      return fmt::format("allocate {} bytes on {}: {}", size_bytes, place(data.device(), stream),
                         data == nullptr ? "null" : fmt::format("{}", data.get()));
    });
    return data;
  }
  void take_back(std::unique_ptr<AdaptorBlock> block) override {
    write([&] {
      return fmt::format("free {} bytes on {}: {}", block->size_bytes,
                         place(block->inner.device(), block->stream), block->data);
    });
    Adaptor<Base>::take_back(std::move(block));
  }

 private:
  static std::string place(Device device, Stream stream) {
    if constexpr (AdaptorCore<Base>::kOnDevice) return to_string(stream);
    return to_string(device);
  }
  template <typename Text>
  void write(Text&& text) const noexcept {
    try {
      const std::string line = text();
      const std::lock_guard lock(mutex_);
      sink_(line);
    } catch (...) {
      // See the class comment.
    }
  }

  mutable std::recursive_mutex mutex_;
  const Sink sink_;
};

// Over a DeviceAllocator it is one: Note [Adaptors] in adaptor.h.
template <typename A, typename To>
LoggingAdaptor(A&, To&&) -> LoggingAdaptor<AdaptorBase<A>>;

}  // namespace tenon
