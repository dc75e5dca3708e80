#include "tenon/memory/adaptors/logging_adaptor.h"

#include <fmt/format.h>

#include <ostream>

namespace tenon {

template <typename Base>
LoggingAdaptor<Base>::LoggingAdaptor(std::type_identity_t<Base>& upstream, std::ostream& out)
    : LoggingAdaptor(upstream, Sink([&out](std::string_view line) { out << line << '\n'; })) {}

template <typename Base>
void LoggingAdaptor<Base>::log(std::string_view line) const noexcept {
  try {
    const std::lock_guard lock(mutex_);
    sink_(line);
  } catch (...) {
    // See the class comment.
  }
}

template <typename Base>
std::string LoggingAdaptor<Base>::place(Device device, Stream stream) const {
  if constexpr (AdaptorCore<Base>::kOnDevice) return to_string(stream);
  return to_string(device);
}

template <typename Base>
DataPtr LoggingAdaptor<Base>::serve(std::size_t size_bytes, Stream stream) {
  DataPtr inner;
  try {
    inner = this->from_upstream(size_bytes, stream);
  } catch (const std::exception& error) {
    log(fmt::format("allocate {} bytes failed: {}", size_bytes, error.what()));
    throw;
  }
  const std::string where = place(inner.device(), stream);
  DataPtr data = this->wrap(std::move(inner), size_bytes, stream);
  if (data == nullptr)
    log(fmt::format("allocate {} bytes on {}: null", size_bytes, where));
  else
    log(fmt::format("allocate {} bytes on {}: {}", size_bytes, where, data.get()));
  return data;
}

template <typename Base>
void LoggingAdaptor<Base>::take_back(std::unique_ptr<Block> block) {
  log(fmt::format("free {} bytes on {}: {}", block->size_bytes,
                  place(block->inner.device(), block->stream), block->data));
  Adaptor<Base>::take_back(std::move(block));
}

template <typename Base>
void LoggingAdaptor<Base>::copy_data(void* dest, const void* src, std::size_t size_bytes) const {
  log(fmt::format("copy {} bytes: {} to {}", size_bytes, src, dest));
  Adaptor<Base>::copy_data(dest, src, size_bytes);
}

template class LoggingAdaptor<Allocator>;
template class LoggingAdaptor<DeviceAllocator>;

}  // namespace tenon
