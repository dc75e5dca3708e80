#include "tenon/memory/observer.h"

#include <algorithm>
#include <array>

namespace tenon {

std::string_view memory_event_name(MemoryEvent event) {
  static constexpr std::array<std::string_view, 7> kNames = {
      "allocated", "recycled", "freed", "released", "mapped", "unmapped", "allocation_failed"};
  return kNames[static_cast<std::size_t>(event)];
}

void ObserverList::add(Observer* observer) {
  const std::lock_guard lock(*mutex_);
  observers_.push_back(observer);
  count_.store(static_cast<int>(observers_.size()), std::memory_order_relaxed);
}

void ObserverList::remove(Observer* observer) {
  const std::lock_guard lock(*mutex_);
  observers_.erase(std::remove(observers_.begin(), observers_.end(), observer), observers_.end());
  count_.store(static_cast<int>(observers_.size()), std::memory_order_relaxed);
}

void ObserverList::report_slow(const MemoryEventInfo& info) {
  const std::lock_guard lock(*mutex_);
  // By index: an observer may add or remove observers, itself included.
  for (std::size_t i = 0; i < observers_.size(); ++i) {
    try {
      observers_[i]->on_memory_event(info);
    } catch (...) {
      errors_.fetch_add(1, std::memory_order_relaxed);
    }
  }
}

}  // namespace tenon
