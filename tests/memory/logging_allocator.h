// The wrapper of the memory model's first example, which knows nothing of what it wraps.
#pragma once

#include <cstddef>
#include <ostream>

#include "tenon/memory/allocator.h"

namespace tenon {

class LoggingAllocator : public Allocator {
 public:
  LoggingAllocator(Allocator* base, std::ostream& log) : base_(base), log_(log) {}
  DataPtr allocate(std::size_t size_bytes) override {
    log_ << "allocate " << size_bytes << '\n';
    return base_->allocate(size_bytes);
  }
  DeleterFn raw_deleter() const override { return base_->raw_deleter(); }
  void copy_data(void* dest, const void* src, std::size_t size_bytes) const override {
    log_ << "copy " << size_bytes << '\n';
    base_->copy_data(dest, src, size_bytes);
  }

 private:
  Allocator* base_;
  std::ostream& log_;
};

}  // namespace tenon
