#include "tenon/memory/observer.h"

#include <algorithm>

namespace tenon {

namespace {

// The lists of all allocators, and who watches all of them. Never destroyed: allocators that live
// until the program ends leave it late.
struct AllLists {
  std::mutex mutex;
  std::vector<ObserverList*> lists;
  std::vector<Observer*> watchers;

  static AllLists& instance() {
    static AllLists& all = *new AllLists;
    return all;
  }
};

}  // namespace

ObserverList::ObserverList() {
  AllLists& all = AllLists::instance();
  const std::lock_guard lock(all.mutex);
  all.lists.push_back(this);
  for (Observer* watcher : all.watchers) add(watcher);
}

ObserverList::~ObserverList() {
  AllLists& all = AllLists::instance();
  const std::lock_guard lock(all.mutex);
  std::erase(all.lists, this);
}

void ObserverList::share_lock(ObserverList& front) {
  AllLists& all = AllLists::instance();
  const std::lock_guard lock(all.mutex);
  for (Observer* watcher : all.watchers) remove(watcher);
  mutex_ = front.mutex_;
  in_front_ = false;
}

void ObserverList::add_to_all(Observer* observer) {
  AllLists& all = AllLists::instance();
  const std::lock_guard lock(all.mutex);
  all.watchers.push_back(observer);
  for (ObserverList* list : all.lists)
    if (list->in_front_) list->add(observer);
}

void ObserverList::remove_from_all(Observer* observer) {
  AllLists& all = AllLists::instance();
  const std::lock_guard lock(all.mutex);
  std::erase(all.watchers, observer);
  for (ObserverList* list : all.lists) list->remove(observer);
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
