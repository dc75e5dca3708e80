// The host memory that tensors use unless told otherwise.
#pragma once

namespace tenon {

class HostAllocator;

// A HostAllocator over the machine's memory, never destroyed. When the first tensor is made, it is
// registered for DeviceType::kCpu, unless the program has put another in the place of the C
// library's by then; a program may register another at any time.
HostAllocator& tensor_host_allocator();

namespace detail {

// Registers it at the first call.
void ensure_tensor_memory();

}  // namespace detail
}  // namespace tenon
