// An allocator whose blocks keep it alive, for tensors: they know no Python object.
#pragma once

#include <memory>
#include <utility>

#include "tenon/memory/allocator.h"

namespace tenon::python {

// Each block holds `owner`, which keeps `inner` or what `inner` takes its memory from. Costs one
// heap allocation for each block. Thread-safe as `inner` is; must outlive no block.
class LastingAllocator final : public Allocator {
 public:
  LastingAllocator(Allocator& inner, std::shared_ptr<void> owner)
      : inner_(inner), owner_(std::move(owner)) {}

  DataPtr allocate(std::size_t size_bytes) override {
    if (size_bytes == 0) return inner_.allocate(0);
    auto held = std::make_unique<Held>(Held{owner_, DataPtr()});
    held->data = inner_.allocate(size_bytes);
    void* const data = held->data.get();
    const Device device = held->data.device();
    return DataPtr(data, held.release(), [](void* held) { delete static_cast<Held*>(held); },
                   device);
  }
  void copy_data(void* dest, const void* src, std::size_t size_bytes) const override {
    inner_.copy_data(dest, src, size_bytes);
  }

 private:
  struct Held {
    std::shared_ptr<void> owner;  // goes last
    DataPtr data;
  };

  Allocator& inner_;
  const std::shared_ptr<void> owner_;
};

}  // namespace tenon::python
