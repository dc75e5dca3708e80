// One GPU's memory, as PyTorch asks for it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "event_log.h"
#include "foreign_uses.h"
#include "tenon/base/pointer_map.h"
#include "tenon/base/slab.h"
#include "tenon/base/spin_lock.h"
#include "tenon/device/cuda/cuda_backend.h"
#include "tenon/memory/policies.h"
#include "tenon/memory/gpu/private_pool.h"
#include "tenon/trace/recorder.h"

namespace tenon::torch {

struct Settings {
  std::string policy = "stitched";
  std::string conf;                // PyTorch's allocator settings
  bool shareable_pools = false;    // private pools can be exported by cudaIpcGetMemHandle
  std::uint64_t limit_bytes = 0;   // of each device; 0: none
};

using PoolId = std::pair<unsigned long long, unsigned long long>;  // PyTorch's MempoolId_t
using StreamFilter = std::function<bool(cu::Stream)>;

// The policy over one device, the private pools beside it, and the blocks that PyTorch holds, by
// their addresses: that is all that it gives back.
//
// A request goes to the youngest open pool whose filter takes its stream (a capture's filter takes
// the streams that it captures), else to the policy.
// Thread-safe. Throws what the policy throws.
class DeviceMemory {
 public:
  DeviceMemory(CudaBackend& backend, const Settings& settings);

  void* allocate(std::uint64_t size_bytes, cu::Stream stream);
  // False: nothing is held there. Requires: no forked child, where a lock may be held for ever.
  bool free(void* data);
  // False: nothing is held there. The stream may be another device's. A null stream is the default
  // one of some device, and PyTorch does not say of which: the block waits for all of them.
  bool record_stream(void* data, cu::Stream stream,
                     const std::vector<DeviceMemory*>& all_devices);
  // The segment that the address lies in, and its size; null when it is none of ours.
  void* base_of(void* data, std::size_t* size_bytes) const;

  // While a pool is open, a graph may be under capture, on a stream that no request has come from
  // yet. So nothing waits for the whole device then, and what cannot be given back without that is
  // left alone until the last pool is closed.
  void empty_cache();
  void set_fraction(double fraction);  // 0: no request is served
  double fraction() const;
  // The limit in force, or what the device has.
  std::uint64_t most_bytes() const { return backend_.memory().total_bytes; }

  // Pools count their users: as many releases as begins and retains end one, once its blocks are
  // gone. Throws InvalidArgument for a pool that is open already, or not open, or not in use.
  void retain_pool(PoolId id);
  void begin_pool(PoolId id, StreamFilter filter);
  void end_pool(PoolId id);
  void release_pool(PoolId id);
  int pool_users(PoolId id) const;  // 0: there is no such pool

  // --- Accounts.
  nlohmann::json stats() const;
  nlohmann::json snapshot() const;  // "segments" and "trace"
  void reset_peaks();
  void log_events(std::size_t max_entries);  // 0: no more
  void start_recording(const std::string& name);
  Trace stop_recording();

  CudaBackend& backend() const { return backend_; }

 private:
  struct Pool {
    PoolId id{0, 0};
    std::unique_ptr<PrivatePool> memory;
    StreamFilter filter;   // null: closed
    int users = 0;
    std::atomic<std::uint64_t> blocks{0};  // that PyTorch holds
  };
  struct Held {  // a DataPtr in parts, since a slab's nodes have no destructor
    void* data = nullptr;
    void* context = nullptr;
    DeleterFn deleter = nullptr;
    Pool* pool = nullptr;  // null: the policy's
    bool has_foreign_uses = false;
  };

  Stream number_of(cu::Stream stream);
  DataPtr allocate_or_wait(DeviceAllocator& allocator, std::uint64_t size_bytes, Stream stream);
  void give_back(const Held& held);
  void note_foreign_use(void* data, CudaBackend& other, cu::Stream stream);
  DataPtr allocate_from(DeviceAllocator& allocator, std::uint64_t size_bytes, Stream stream);
  std::shared_ptr<Pool> pool_for(cu::Stream stream) const;
  std::shared_ptr<Pool> find_pool(PoolId id) const;
  std::shared_ptr<Pool> use_pool(PoolId id);
  void watch(DeviceAllocator& allocator);
  void unwatch(DeviceAllocator& allocator);
  void drop_if_over(Pool* pool);
  void drop_pools_that_are_over();
  std::vector<DeviceAllocator*> allocators() const;
  void add_segments(nlohmann::json& out, const DeviceAllocator& allocator, PoolId id) const;

  CudaBackend& backend_;
  const Settings settings_;
  const std::unique_ptr<DeviceAllocator> allocator_;

  mutable SpinLock held_lock_;
  PointerMap<Held> held_;
  Slab<Held> slab_;
  ForeignUses foreign_uses_;

  double fraction_ = 1;  // under pools_mutex_
  std::atomic<int> open_pools_{0};
  mutable std::recursive_mutex pools_mutex_;   // pools and observers
  std::list<std::shared_ptr<Pool>> pools_;     // youngest first
  std::unique_ptr<EventLog> log_;
  std::unique_ptr<Recorder> recorder_;
};

}  // namespace tenon::torch
