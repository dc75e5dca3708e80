#include "tenon/memory/unified/callbacks.h"

#include <utility>

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
  auto entries = std::make_shared<Entries>(*entries_);
  for (const Entry& entry : *entries)
    if (entry.name == name)
      raise<InvalidArgument>("a unified allocator callback \"{}\" is registered already", name);
  entries->push_back({std::string(name), std::move(callback)});
  count_.store(static_cast<int>(entries->size()), std::memory_order_relaxed);
  entries_ = std::move(entries);
}

void UnifiedCallbackRegistry::remove(std::string_view name) {
  std::shared_ptr<const Entries> before;  // the callback ends without the lock
  const std::lock_guard lock(mutex_);
  auto entries = std::make_shared<Entries>(*entries_);
  std::erase_if(*entries, [&](const Entry& entry) { return entry.name == name; });
  count_.store(static_cast<int>(entries->size()), std::memory_order_relaxed);
  before = std::exchange(entries_, std::move(entries));
}

std::vector<std::string> UnifiedCallbackRegistry::names() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const Entry& entry : *entries_) names.push_back(entry.name);
  return names;
}

int UnifiedCallbackRegistry::report_slow(void* data, MemoryEvent event) noexcept {
  std::shared_ptr<const Entries> entries;
  {
    const std::lock_guard lock(mutex_);
    entries = entries_;
  }
  for (const Entry& entry : *entries) {
    try {
      entry.callback->on_buffer_event(data, event);
    } catch (...) {
      errors_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  return static_cast<int>(entries->size());
}

}  // namespace tenon
