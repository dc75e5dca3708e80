#include "tenon/memory/unified/callbacks.h"

#include <algorithm>

#include "tenon/base/error.h"

namespace tenon {

UnifiedCallbackRegistry& UnifiedCallbackRegistry::instance() {
  // Never destroyed: static allocators may report until the very end.
  static UnifiedCallbackRegistry& registry = *new UnifiedCallbackRegistry;
  return registry;
}

void UnifiedCallbackRegistry::add(std::string_view name,
                                  std::unique_ptr<UnifiedAllocatorCallback> callback) {
  const std::lock_guard lock(mutex_);
  for (const Entry& entry : entries_)
    if (entry.name == name)
      raise<InvalidArgument>("a unified allocator callback \"{}\" is registered already", name);
  entries_.push_back({std::string(name), std::move(callback)});
  count_.store(static_cast<int>(entries_.size()), std::memory_order_relaxed);
}

void UnifiedCallbackRegistry::remove(std::string_view name) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const Entry& entry) { return entry.name == name; });
  count_.store(static_cast<int>(entries_.size()), std::memory_order_relaxed);
}

std::vector<std::string> UnifiedCallbackRegistry::names() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const Entry& entry : entries_) names.push_back(entry.name);
  return names;
}

int UnifiedCallbackRegistry::report_slow(void* data, MemoryEvent event) {
  std::vector<std::shared_ptr<UnifiedAllocatorCallback>> callbacks;
  {
    const std::lock_guard lock(mutex_);
    for (const Entry& entry : entries_) callbacks.push_back(entry.callback);
  }
  for (const auto& callback : callbacks) {
    try {
      callback->on_buffer_event(data, event);
    } catch (...) {
      errors_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  return static_cast<int>(callbacks.size());
}

}  // namespace tenon
