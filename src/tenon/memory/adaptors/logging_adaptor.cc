#include "tenon/memory/adaptors/logging_adaptor.h"

#include <fmt/format.h>

#include <ostream>

namespace tenon {

AllocationLog::AllocationLog(std::ostream& out)
    : AllocationLog([&out](std::string_view line) { out << line << '\n'; }) {}

void AllocationLog::write(std::string_view line) const noexcept {
  try {
    const std::lock_guard lock(mutex_);
    sink_(line);
  } catch (...) {
    // See the class comment.
  }
}

void AllocationLog::allocated(std::size_t size_bytes, const std::string& place,
                              const void* data) const {
  write(fmt::format("allocate {} bytes on {}: {}", size_bytes, place,
                    data == nullptr ? "null" : fmt::format("{}", data)));
}

void AllocationLog::failed(std::size_t size_bytes, const std::exception& error) const {
  write(fmt::format("allocate {} bytes failed: {}", size_bytes, error.what()));
}

void AllocationLog::freed(std::size_t size_bytes, const std::string& place,
                          const void* data) const {
  write(fmt::format("free {} bytes on {}: {}", size_bytes, place, data));
}

void AllocationLog::copied(std::size_t size_bytes, const void* dest, const void* src) const {
  write(fmt::format("copy {} bytes: {} to {}", size_bytes, src, dest));
}

}  // namespace tenon
