// Scratch memory for loops that run on several threads.
#pragma once

#include <algorithm>
#include <mutex>
#include <vector>

#include "tenon/base/align.h"
#include "tenon/base/parallel.h"
#include "tenon/tensor/factories.h"

namespace tenon::ops::cpu {

// One piece of memory for each thread that may work on a loop of `pieces` pieces, all of them from
// the current allocator, in one block. Take and give are thread-safe.
class Workspaces {
 public:
  Workspaces(std::size_t bytes, std::int64_t pieces)
      : count_(std::min<std::int64_t>(pieces, num_threads())),
        bytes_(align_up(std::max<std::size_t>(bytes, 64), 64)),
        memory_(empty({count_, static_cast<std::int64_t>(bytes_)}, DType::kU8)) {
    for (std::int64_t i = count_; i > 0; --i)
      free_.push_back(static_cast<char*>(memory_.data_ptr()) +
                      (i - 1) * static_cast<std::int64_t>(bytes_));
  }
  // Aligned to 64 bytes. Requires: no more at once than threads that work on the loop.
  char* take() {
    const std::lock_guard lock(mutex_);
    char* const taken = free_.back();
    free_.pop_back();
    return taken;
  }
  void give(char* room) {
    const std::lock_guard lock(mutex_);
    free_.push_back(room);
  }

 private:
  const std::int64_t count_;
  const std::size_t bytes_;
  const Tensor memory_;
  std::mutex mutex_;
  std::vector<char*> free_;
};

}  // namespace tenon::ops::cpu
