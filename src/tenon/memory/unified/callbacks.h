// Callbacks on what every unified allocator does with its buffers, registered by class.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {

// Called at every buffer's changes, in every UnifiedAllocator of the process. One object per
// registered class, made at its registration.
//
// Called with no lock of the allocator held, so a callback may allocate and free. On
// kAllocationFailed it may release memory: the allocator tries again afterwards. An exception that
// leaves it is swallowed and counted. Must be thread-safe when several threads allocate.
class UnifiedAllocatorCallback {
 public:
  enum class EventType : std::uint8_t {
    kAllocated,         // a buffer in memory fresh from the driver
    kRecycled,          // a buffer in memory that was held already
    kFreed,             // a buffer was freed
    kReleased,          // a heap went back to the driver
    kAllocationFailed,  // no memory for a request (null pointer)
  };

  virtual ~UnifiedAllocatorCallback() = default;
  virtual void on_buffer_event(void* data, EventType event) = 0;
};

// The registered callbacks. Registration may happen before main; the registry outlives every
// static object. Thread-safe; with nothing registered a report is one relaxed load.
class UnifiedCallbackRegistry {
 public:
  using Make = std::function<std::unique_ptr<UnifiedAllocatorCallback>()>;

  static UnifiedCallbackRegistry& instance();

  // Throws InvalidArgument when the name is taken.
  void add(std::string_view name, const Make& make);
  void remove(std::string_view name);  // nothing happens when it is not there
  std::vector<std::string> names() const;

  bool empty() const { return count_.load(std::memory_order_relaxed) == 0; }
  // How many callbacks ran.
  int report(void* data, UnifiedAllocatorCallback::EventType event) {
    return empty() ? 0 : report_slow(data, event);
  }
  std::uint64_t errors() const { return errors_.load(std::memory_order_relaxed); }

 private:
  struct Entry {
    std::string name;
    std::shared_ptr<UnifiedAllocatorCallback> callback;
  };

  int report_slow(void* data, UnifiedAllocatorCallback::EventType event);

  mutable std::mutex mutex_;  // not held while callbacks run
  std::vector<Entry> entries_;
  std::atomic<int> count_{0};
  std::atomic<std::uint64_t> errors_{0};
};

namespace detail {

struct UnifiedCallbackRegistration {
  UnifiedCallbackRegistration(std::string_view name, const UnifiedCallbackRegistry::Make& make) {
    UnifiedCallbackRegistry::instance().add(name, make);
  }
};

}  // namespace detail
}  // namespace tenon

// At namespace scope of a source file: registers a class derived from UnifiedAllocatorCallback,
// with a default constructor, under `name` (an identifier) before main.
#define TENON_REGISTER_UNIFIED_CALLBACK(name, callback_class)                               \
  static const ::tenon::detail::UnifiedCallbackRegistration tenon_unified_callback_##name( \
      #name, [] { return std::make_unique<callback_class>(); })
