// Allocators broken on purpose: whoever checks the stream rule must catch each of them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/device/backend.h"
#include "tenon/memory/device_allocator.h"

namespace tenon {

// How a policy is broken, without touching its code: what it is told, or what it does, gets lost.
enum class Breakage : std::uint8_t {
  kNone,
  kOneStream,         // every request is served as if stream 0 had made it: early reuse
  kLostRecordStream,  // record_stream does nothing: early reuse
  kEarlyEvents,       // every event is taken for complete at once: early reuse, early unmap
  kLostStreamWait,    // no stream is made to wait for another: early reuse
  kLostHostWait,      // the host does not wait for the device: early unmap, early reuse
};

const std::vector<Breakage>& breakages();  // all but kNone
const char* name_of(Breakage breakage);    // "lost record_stream"
const char* key_of(Breakage breakage);     // "lost-record-stream", for a command line
// Throws InvalidArgument, listing the known keys.
Breakage find_breakage(std::string_view key);

// The driver as a broken policy uses it: all calls go to `driver`, which must outlive it, but those
// that the breakage loses. `lost` counts how often it did; a policy that it never reaches is whole.
std::unique_ptr<Backend> broken_driver(Backend& driver, Breakage breakage, std::uint64_t* lost);

// The policy as a program uses it: a pass-through that loses what the breakage loses. `allocator`
// must outlive it.
std::unique_ptr<DeviceAllocator> broken_allocator(DeviceAllocator& allocator, Breakage breakage,
                                                  std::uint64_t* lost);

}  // namespace tenon
