// Blocks on their way from one thread to another.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <utility>

#include "tenon/base/spin_lock.h"
#include "tenon/memory/data_ptr.h"

namespace tenon {

struct HeldBlock {
  DataPtr data;
  std::uint64_t size_bytes = 0;
  std::uint64_t number = 0;  // its owner's thread and count
};

// Boxes that hold a block each: whoever puts one in takes out what lay there. Thread-safe.
class Exchange {
 public:
  static constexpr std::size_t kBoxes = 64;

  HeldBlock swap(std::size_t box, HeldBlock block) {
    Box& at = boxes_[box % kBoxes];
    const std::lock_guard lock(at.lock);
    std::swap(at.block, block);
    return block;
  }

 private:
  struct Box {
    SpinLock lock;
    HeldBlock block;
  };
  std::array<Box, kBoxes> boxes_;
};

}  // namespace tenon
