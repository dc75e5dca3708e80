// An allocator of one's own: it logs, and leaves the work to the one it wraps.
#include <cstdio>
#include <cstring>

#include "tenon/memory/host/cpu_allocator.h"

// The whole allocator.
class LoggingAllocator : public tenon::Allocator {
 public:
  explicit LoggingAllocator(tenon::Allocator* base) : base_(base) {}
  tenon::DataPtr allocate(std::size_t size_bytes) override {
    tenon::DataPtr block = base_->allocate(size_bytes);
    std::printf("allocated %zu bytes at %p\n", size_bytes, block.get());
    return block;
  }
  tenon::DeleterFn raw_deleter() const override { return base_->raw_deleter(); }
  void copy_data(void* dest, const void* src, std::size_t size_bytes) const override {
    std::printf("copying %zu bytes\n", size_bytes);
    base_->copy_data(dest, src, size_bytes);
  }

 private:
  tenon::Allocator* base_;
};

int main() {
  LoggingAllocator logging(tenon::get_cpu_allocator());
  const tenon::DataPtr block = logging.allocate(1024);
  std::memset(block.get(), 42, 1024);
  const tenon::DataPtr copy = logging.clone(block.get(), 1024);
  const bool same = std::memcmp(block.get(), copy.get(), 1024) == 0;

  // From here on, whoever asks for host memory gets it from there. The pointer must stay good for
  // as long as it is registered.
  tenon::set_cpu_allocator(&logging);
  void* raw = tenon::get_cpu_allocator()->raw_allocate(64);
  tenon::get_cpu_allocator()->raw_deallocate(raw);
  tenon::set_cpu_allocator(tenon::get_default_cpu_allocator());
  return same ? 0 : 1;
}
