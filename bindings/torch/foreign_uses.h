// Uses of one device's blocks by other devices' streams.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "tenon/device/cuda/cuda_backend.h"

namespace tenon::torch {

// A policy orders blocks by its own device's streams alone, since an event and its stream must be
// of one context (cuEventRecord). So a block that another device's stream uses is kept from its
// policy at the free, until that device says that the work is over.
//
// Thread-safe. Throws what the driver throws.
class ForeignUses {
 public:
  // The block is used by work on a stream of the other device.
  void record(void* data, CudaBackend& other, Stream stream);
  // The block was freed: `give_back` is called once its uses are over. Requires: it has uses.
  void free(void* data, std::function<void()> give_back);
  // Whether freed blocks wait.
  bool any_waiting() const { return waiting_count_.load(std::memory_order_relaxed) != 0; }
  // Gives back the blocks whose uses are over; waits for all of them if told to.
  void give_back(bool wait);

 private:
  struct Use {
    CudaBackend* other;
    Stream stream;
    Event event;  // once the block is freed; id 0: it has not been recorded
  };
  struct Waiting {
    std::vector<Use> uses;
    std::function<void()> give_back;
  };
  static bool is_over(Use& use, bool wait);

  std::mutex mutex_;
  std::unordered_map<void*, std::vector<Use>> uses_;  // of blocks that PyTorch holds
  std::list<Waiting> waiting_;
  std::atomic<std::size_t> waiting_count_{0};
};

}  // namespace tenon::torch
