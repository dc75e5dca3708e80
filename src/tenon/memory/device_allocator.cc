#include "tenon/memory/device_allocator.h"

#include <fmt/format.h>

#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"
#include "tenon/device/os/os_memory.h"

namespace tenon {

void* DeviceAllocator::raw_allocate(std::size_t size_bytes) {
  return raw_allocate_on(size_bytes, current_stream(device_));
}

void* DeviceAllocator::raw_allocate_on(std::size_t size_bytes, Stream stream) {
  DataPtr data = allocate_on(size_bytes, stream);
  return raw_table_.hold(data);
}

void DeviceAllocator::raw_deallocate(void* data) {
  if (data == nullptr || raw_table_.release(data)) return;
  raise<InvalidPointer>(
      "raw_deallocate({}): {} on {} holds no raw block there; it was freed already, or comes from "
      "another allocator or from allocate()", data, name(), to_string(device_));
}

void DeviceAllocator::record_stream(const DataPtr&, Stream stream) {
  raise<InvalidArgument>(
      "record_stream({}): policy {} knows no stream but the block's own; use caching, expandable "
      "or stitched, or make the block's stream wait instead", to_string(stream), name());
}

void DeviceAllocator::check_stream(Stream stream, const char* caller) const {
  if (stream.device != device_)
    raise<InvalidArgument>("{}: {} does not belong to {}", caller, to_string(stream),
                           to_string(device_));
}

void DeviceAllocator::refuse_request(std::size_t size_bytes, Stream stream) const {
  check_stream(stream, "allocate_on");
  refuse_size(size_bytes);
}

// What the device has that is neither free nor this allocator's. Empty: none, or unknown.
std::string DeviceAllocator::held_elsewhere(std::uint64_t reserved_bytes) const {
  std::string text;
  if (device_.type == DeviceType::kCpu) return text;
  ignore_refusal([&] {
    const BackendMemory memory = backend_.memory();
    const std::uint64_t known = memory.free_bytes + reserved_bytes;
    if (memory.total_bytes > known)
      text = fmt::format("other allocators or programs hold {} of the device, {} is free",
                         format_byte_size(memory.total_bytes - known),
                         format_byte_size(memory.free_bytes));
  });
  return text;
}

void DeviceAllocator::throw_out_of_memory(std::size_t size_bytes, Stream stream,
                                          std::uint64_t limit_bytes, std::string advice,
                                          bool of_driver) {
  observers().report(MemoryEvent::kAllocationFailed, nullptr, size_bytes, stream);
  const AllocatorStats now = stats();
  OutOfMemoryDetails details;
  details.allocator = name();
  details.device = to_string(device_);
  details.requested_bytes = size_bytes;
  details.allocated_bytes = static_cast<std::uint64_t>(now.allocated_bytes[0].current);
  details.reserved_bytes = static_cast<std::uint64_t>(now.reserved_bytes[0].current);
  details.limit_bytes = limit_bytes;
  details.largest_free_bytes = largest_free_bytes();
  details.idle = idle_holders(shortage(of_driver));
  const std::string elsewhere = held_elsewhere(details.reserved_bytes);
  advice = elsewhere + (elsewhere.empty() || advice.empty() ? "" : "; ") + advice;
  // A driver of the host that refuses addresses has met a limit of the process.
  if (device_.type == DeviceType::kCpu && os::address_limit_bytes() != 0)
    advice += fmt::format("{}this process may use {} of addresses (ulimit -v)",
                          advice.empty() ? "" : "; ", format_byte_size(os::address_limit_bytes()));
  details.advice = std::move(advice);
  throw OutOfMemory(std::move(details));
}

}  // namespace tenon
