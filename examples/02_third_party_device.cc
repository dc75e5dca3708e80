// A kind of device that Tenon has never heard of: a name, an allocator, one line to register it.
#include <array>
#include <cstdio>
#include <cstring>

#include "tenon/base/align.h"
#include "tenon/base/error.h"
#include "tenon/memory/registry.h"

namespace {

tenon::DeviceType scratchpad_type() {
  static const tenon::DeviceType type = tenon::register_device_type("scratchpad");
  return type;
}

// A chip with 64 KiB of memory and the simplest driver there is: addresses only go up, and start
// again when the last block has gone.
class ScratchpadAllocator : public tenon::Allocator {
 public:
  tenon::DataPtr allocate(std::size_t size_bytes) override {
    const tenon::Device device{scratchpad_type(), 0};
    if (size_bytes == 0) return tenon::DataPtr(device);
    if (size_bytes > memory_.size() - used_) throw_out_of_memory(size_bytes);
    unsigned char* data = memory_.data() + used_;
    used_ += tenon::align_up(size_bytes, kAlignment);
    ++blocks_;
    return tenon::DataPtr(data, this, &free_one, device);
  }
  void copy_data(void* dest, const void* src, std::size_t size_bytes) const override {
    default_copy_data(dest, src, size_bytes);
  }

 private:
  static constexpr std::size_t kAlignment = 64;

  static void free_one(void* context) {
    auto* self = static_cast<ScratchpadAllocator*>(context);
    if (--self->blocks_ == 0) self->used_ = 0;
  }

  [[noreturn]] void throw_out_of_memory(std::size_t size_bytes) const {
    tenon::OutOfMemoryDetails details;
    details.allocator = "scratchpad";
    details.device = tenon::to_string(tenon::Device{scratchpad_type(), 0});
    details.requested_bytes = size_bytes;
    details.allocated_bytes = used_;
    details.reserved_bytes = details.limit_bytes = memory_.size();
    details.largest_free_bytes = memory_.size() - used_;
    throw tenon::OutOfMemory(details);
  }

  alignas(kAlignment) std::array<unsigned char, 65536> memory_;
  std::size_t used_ = 0;
  int blocks_ = 0;
};

ScratchpadAllocator scratchpad;
TENON_REGISTER_ALLOCATOR(scratchpad_type(), &scratchpad);

}  // namespace

int main() {
  // Whoever has only the device's name finds its allocator.
  const tenon::Device device = tenon::parse_device("scratchpad:0");
  tenon::Allocator* allocator = tenon::current_allocator(device);

  const char text[] = "kept on a scratchpad";
  const tenon::DataPtr block = allocator->clone(text, sizeof(text));
  std::printf("%s: \"%s\"\n", tenon::to_string(block.device()).c_str(),
              static_cast<const char*>(block.get()));
  try {
    const tenon::DataPtr too_large = allocator->allocate(1 << 20);
  } catch (const std::bad_alloc& error) {
    std::printf("%s\n", error.what());
    return std::strcmp(static_cast<const char*>(block.get()), text) == 0 ? 0 : 1;
  }
  return 1;
}
