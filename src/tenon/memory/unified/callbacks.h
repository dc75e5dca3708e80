// Callbacks on what every unified allocator does with its buffers, registered by class.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/memory/observer.h"

namespace tenon {

// Called at every buffer's changes, in every UnifiedAllocator of the process. One object per
// registered class, made at its registration.
//
// `event` is kAllocated, kRecycled, kFreed, kReleased (a heap went back to the driver) or
// kAllocationFailed (`data` is null). Called with no lock of the allocator held, so a callback may
// allocate and free. On kAllocationFailed it may release memory: the allocator tries again
// afterwards. An exception that leaves it is swallowed and counted. Must be thread-safe when
// several threads allocate.
class UnifiedAllocatorCallback {
 public:
  virtual ~UnifiedAllocatorCallback() = default;
  virtual void on_buffer_event(void* data, MemoryEvent event) = 0;
};

// The registered callbacks. Registration may happen before main; the registry outlives every
// static object. Thread-safe. A report allocates nothing and throws nothing, since frees make one;
// with nothing registered it is one relaxed load.
class UnifiedCallbackRegistry {
 public:
  static UnifiedCallbackRegistry& instance();

  // Throws InvalidArgument when the name is taken.
  void add(std::string_view name, std::unique_ptr<UnifiedAllocatorCallback> callback);
  void remove(std::string_view name);  // nothing happens when it is not there
  std::vector<std::string> names() const;

  bool empty() const { return count_.load(std::memory_order_relaxed) == 0; }
  // How many callbacks ran.
  int report(void* data, MemoryEvent event) { return empty() ? 0 : report_slow(data, event); }
  std::uint64_t errors() const { return errors_.load(std::memory_order_relaxed); }

 private:
  struct Entry {
    std::string name;
    std::shared_ptr<UnifiedAllocatorCallback> callback;
  };

  using Entries = std::vector<Entry>;

  int report_slow(void* data, MemoryEvent event) noexcept;

  mutable std::mutex mutex_;  // not held while callbacks run
  std::shared_ptr<const Entries> entries_ = std::make_shared<Entries>();  // replaced as a whole
  std::atomic<int> count_{0};
  std::atomic<std::uint64_t> errors_{0};
};

}  // namespace tenon

// At namespace scope of a source file: registers a class derived from UnifiedAllocatorCallback,
// with a default constructor, under `name` (an identifier) before main.
#define TENON_REGISTER_UNIFIED_CALLBACK(name, callback_class)                           \
  [[maybe_unused]] static const bool tenon_unified_callback_##name =                    \
      (::tenon::UnifiedCallbackRegistry::instance().add(                                \
           #name, std::make_unique<callback_class>()),                                  \
       true)
