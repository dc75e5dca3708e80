// What kernels tell the capture (tensor/capture.h) that records them. O(1).
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "tenon/device/device.h"
#include "tenon/tensor/random.h"
#include "tenon/tensor/storage_impl.h"

namespace tenon::vulkan {

// Whether the calling thread captures work of the device.
bool is_captured(Device device);

// A kernel reads or writes the storage, whose bytes are at `data`. Nothing happens where no capture
// records.
void note_use(StorageImpl& storage, const void* data, bool writes);

// Puts the numbers of the next run in place of those of this one.
using Renew = std::function<void(std::span<std::uint64_t>)>;
// Where a captured kernel finds `numbers`, and in each later run what `renew` makes of them. A run
// renews all numbers in the order of these calls. Requires: the calling thread captures.
std::uint64_t changing_numbers(std::span<const std::uint64_t> numbers, Renew renew);

// Where a captured kernel finds the counter that its random numbers begin at, then the generator's
// seed. A run begins where the generator is then, as far on as the step was, and takes as many.
// Requires: as above.
std::uint64_t changing_draw(Generator& generator, std::uint64_t start);

// Throws InvalidArgument where the calling thread captures work of the device, and bytes from
// before the step are to be copied to other memory for a storage, of which runs know nothing.
void refuse_other_memory(Device device, const void* data, std::size_t size_bytes);

// Throws DeviceError where a rehearsal that is over left the address, which has no memory.
void require_memory(Device device, const void* address);

// Throws InvalidArgument where the calling thread captures work of the device: the host is needed
// for `what`.
void refuse_host_in_capture(Device device, const char* what);

}  // namespace tenon::vulkan
