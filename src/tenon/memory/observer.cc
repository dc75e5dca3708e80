#include "tenon/memory/observer.h"

#include <algorithm>

namespace tenon {

// The lists of all allocators, and who watches all of them. Never destroyed: allocators that live
// until the program ends leave it late.
struct ObserverList::All {
  std::mutex mutex;
  std::vector<ObserverList*> lists;
  std::vector<Observer*> watchers;

  static All& instance() {
    static All& all = *new All;
    return all;
  }
  // Each once, though it may watch many lists. Allocates nothing.
  template <typename Visit>
  void for_each_observer(Visit&& visit) const {
    for (auto list = lists.begin(); list != lists.end(); ++list)
      for (Observer* observer : (*list)->observers_)
        if (std::none_of(lists.begin(), list, [&](const ObserverList* earlier) {
              const auto& observers = earlier->observers_;
              return std::find(observers.begin(), observers.end(), observer) != observers.end();
            }))
          visit(*observer);
  }
};

ObserverList::ObserverList() {
  All& all = All::instance();
  const std::lock_guard lock(all.mutex);
  all.lists.push_back(this);
  for (Observer* watcher : all.watchers) add(watcher);
}

ObserverList::~ObserverList() {
  All& all = All::instance();
  const std::lock_guard lock(all.mutex);
  std::erase(all.lists, this);
}

void ObserverList::share_lock(ObserverList& front) {
  All& all = All::instance();
  const std::lock_guard lock(all.mutex);
  for (Observer* watcher : all.watchers) remove(watcher);
  mutex_ = front.mutex_;
  in_front_ = false;
}

void ObserverList::add_to_all(Observer* observer) {
  All& all = All::instance();
  const std::lock_guard lock(all.mutex);
  all.watchers.push_back(observer);
  for (ObserverList* list : all.lists)
    if (list->in_front_) list->add(observer);
}

void ObserverList::remove_from_all(Observer* observer) {
  All& all = All::instance();
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
  std::erase(observers_, observer);
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

void observers_before_fork() {
  ObserverList::All& all = ObserverList::All::instance();
  all.mutex.lock();
  for (ObserverList* list : all.lists) list->mutex_->lock();
  all.for_each_observer([](Observer& observer) { observer.before_fork(); });
}

void observers_after_fork(bool in_child) {
  ObserverList::All& all = ObserverList::All::instance();
  all.for_each_observer([&](Observer& observer) { observer.after_fork(in_child); });
  for (ObserverList* list : all.lists)
    if (in_child)
      new (list->mutex_.get()) std::recursive_mutex;  // its owner is a thread of the parent
    else
      list->mutex_->unlock();
  all.mutex.unlock();
}

}  // namespace tenon
