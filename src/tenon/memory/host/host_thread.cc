#include "tenon/memory/host/host_thread.h"

#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "tenon/memory/host/host_allocator.h"

namespace tenon {
namespace {

// The allocators that live. Never destroyed: threads may end after static destructors began.
struct Directory {
  std::mutex mutex;  // taken before an allocator's own
  std::unordered_map<std::uint64_t, HostAllocator*> allocators;
  std::uint64_t next_id = 1;

  static Directory& instance() {
    static Directory& directory = *new Directory;
    return directory;
  }
};

}  // namespace

// What fork(2) calls, for all host allocators: theirs are the locks that a child may find held.
class HostThread::Forks {
 public:
  static void watch() {
    static const int registered = pthread_atfork(&before, &in_parent, &in_child);
    static_cast<void>(registered);
  }

 private:
  static void before() {
    Directory& directory = Directory::instance();
    directory.mutex.lock();
    for (const auto& [id, allocator] : directory.allocators) allocator->before_fork();
    for (Backend* backend : backends()) backend->before_fork();
  }
  static void in_parent() {
    for (Backend* backend : backends()) backend->after_fork();
    for (const auto& [id, allocator] : Directory::instance().allocators)
      allocator->after_fork_in_parent();
    Directory::instance().mutex.unlock();
  }
  static void in_child() {
    for (Backend* backend : backends()) backend->after_fork();
    for (const auto& [id, allocator] : Directory::instance().allocators)
      allocator->after_fork_in_child();
    Directory::instance().mutex.unlock();
  }
  // Each once: several allocators may share one.
  static std::set<Backend*> backends() {
    std::set<Backend*> all;
    for (const auto& [id, allocator] : Directory::instance().allocators)
      all.insert(&allocator->backend());
    return all;
  }
};

// The thread's heaps. At the thread's end they are abandoned.
class HostThread::Heaps {
 public:
  struct Entry {
    std::uint64_t allocator_id;
    std::uint32_t stream_key;
    host::LocalHeap* heap;
  };

  ~Heaps() {
    ended_ = true;
    last_ = {};
    own_ = {};
    Directory& directory = Directory::instance();
    const std::lock_guard lock(directory.mutex);
    for (const Entry& entry : entries) {
      const auto it = directory.allocators.find(entry.allocator_id);
      if (it != directory.allocators.end()) abandon(*it->second, *entry.heap);
    }
  }

  // Entries of allocators that are gone.
  void forget_the_dead() {
    Directory& directory = Directory::instance();
    const std::lock_guard lock(directory.mutex);
    std::erase_if(entries, [&](const Entry& entry) {
      return !directory.allocators.contains(entry.allocator_id);
    });
  }

  std::vector<Entry> entries;
};

HostThread::Heaps& HostThread::heaps() {
  static thread_local Heaps thread_heaps;
  return thread_heaps;
}

void HostThread::remember(std::uint64_t allocator_id, std::uint32_t stream_key,
                          host::LocalHeap& heap) {
  last_ = {allocator_id, stream_key, &heap};
  own_ = {};
  if (heap.lock.is_owner()) own_ = {key_of(allocator_id, stream_key), &heap};
}

host::LocalHeap* HostThread::find_slowly(std::uint64_t allocator_id, std::uint32_t stream_key) {
  if (ended_) return nullptr;
  for (const Heaps::Entry& entry : heaps().entries)
    if (entry.allocator_id == allocator_id && entry.stream_key == stream_key) {
      remember(allocator_id, stream_key, *entry.heap);
      return entry.heap;
    }
  return nullptr;
}

void HostThread::keep_heap(std::uint64_t allocator_id, std::uint32_t stream_key,
                           host::LocalHeap& heap) {
  if (ended_) return;
  heaps().forget_the_dead();
  heaps().entries.push_back({allocator_id, stream_key, &heap});
  remember(allocator_id, stream_key, heap);
}

void HostThread::abandon(HostAllocator& allocator, host::LocalHeap& heap) {
  allocator.heaps_.abandon(heap);
}

std::uint64_t HostThread::enrol(HostAllocator& allocator) {
  Forks::watch();
  Directory& directory = Directory::instance();
  const std::lock_guard lock(directory.mutex);
  directory.allocators[directory.next_id] = &allocator;
  return directory.next_id++;
}

void HostThread::withdraw(std::uint64_t allocator_id) {
  Directory& directory = Directory::instance();
  const std::lock_guard lock(directory.mutex);
  directory.allocators.erase(allocator_id);
}

}  // namespace tenon
