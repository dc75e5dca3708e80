#include "tenon/memory/host/host_thread.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "tenon/memory/host/host_allocator.h"
#include "tenon/memory/observer.h"
#include "tenon/memory/raw_blocks.h"
#include "tenon/memory/reclaim.h"

namespace tenon {
namespace {

// The allocators that live. Never destroyed: threads may end after static destructors began.
struct Directory {
  std::mutex mutex;  // taken before an allocator's own
  std::unordered_map<std::uint64_t, HostAllocator*> allocators;

  static Directory& instance() {
    static Directory& directory = *new Directory;
    return directory;
  }
};

}  // namespace

// What fork(2) calls, for all locks that a child may find held. Observers may allocate while theirs
// are held, so these are taken first.
class HostThread::Forks {
 public:
  using Process = host::HeapDirectory::Process;
  static void before() {
    observers_before_fork();
    reclaimers_before_fork();
    raw_holders_before_fork();
    Directory& directory = Directory::instance();
    directory.mutex.lock();
    for (const auto& [id, allocator] : directory.allocators) allocator->before_fork();
    for_each_backend([](Backend& backend) { backend.before_fork(); });
  }
  template <Process kProcess>
  static void after() {
    for_each_backend([](Backend& backend) { backend.after_fork(); });
    Directory& directory = Directory::instance();
    for (const auto& [id, allocator] : directory.allocators) allocator->after_fork(kProcess);
    directory.mutex.unlock();
    raw_holders_after_fork();
    reclaimers_after_fork(kProcess == Process::kChild);
    observers_after_fork(kProcess == Process::kChild);
  }

 private:
  // Each once: several allocators may share one. Allocates nothing, since their locks are held.
  template <typename Visit>
  static void for_each_backend(Visit&& visit) {
    const auto& all = Directory::instance().allocators;
    for (auto it = all.begin(); it != all.end(); ++it) {
      Backend& backend = it->second->backend();
      if (std::none_of(all.begin(), it, [&](const auto& earlier) {
            return &earlier.second->backend() == &backend;
          }))
        visit(backend);
    }
  }
};

// The thread's heaps. At the thread's end they are abandoned.
class HostThread::Heaps {
 public:
  ~Heaps() {
    ended_ = true;
    last_ = {};
    own_ = {};
    Directory& directory = Directory::instance();
    const std::lock_guard lock(directory.mutex);
    for (const host::ThreadHeap& entry : entries) {
      const auto it = directory.allocators.find(entry.key >> 32);
      if (it != directory.allocators.end()) it->second->heaps_.abandon(*entry.heap);
    }
  }

  // Entries of allocators that are gone.
  void forget_the_dead() {
    Directory& directory = Directory::instance();
    const std::lock_guard lock(directory.mutex);
    std::erase_if(entries, [&living = directory.allocators](const host::ThreadHeap& entry) {
      return !living.contains(entry.key >> 32);
    });
  }

  std::vector<host::ThreadHeap> entries;
};

HostThread::Heaps& HostThread::heaps() {
  static thread_local Heaps thread_heaps;
  return thread_heaps;
}

void HostThread::remember(const host::ThreadHeap& heap) {
  last_ = heap;
  own_ = heap.heap->lock.is_owner() ? heap : host::ThreadHeap();
}

host::LocalHeap* HostThread::find_slowly(std::uint64_t key) {
  if (ended_) return nullptr;
  for (const host::ThreadHeap& entry : heaps().entries)
    if (entry.key == key) {
      remember(entry);
      return entry.heap;
    }
  return nullptr;
}

void HostThread::keep_heap(std::uint64_t allocator_id, std::uint32_t stream_key,
                           host::LocalHeap& heap) {
  if (ended_) return;
  heaps().forget_the_dead();
  heaps().entries.push_back({key_of(allocator_id, stream_key), &heap});
  remember(heaps().entries.back());
}

std::uint64_t HostThread::new_id() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

void HostThread::watch_forks() {
  using enum host::HeapDirectory::Process;
  static const int registered =
      pthread_atfork(&Forks::before, &Forks::after<kParent>, &Forks::after<kChild>);
  static_cast<void>(registered);
}

void HostThread::enrol(std::uint64_t allocator_id, HostAllocator& allocator) {
  watch_forks();
  Directory& directory = Directory::instance();
  const std::lock_guard lock(directory.mutex);
  directory.allocators[allocator_id] = &allocator;
}

void HostThread::withdraw(std::uint64_t allocator_id) {
  Directory& directory = Directory::instance();
  const std::lock_guard lock(directory.mutex);
  directory.allocators.erase(allocator_id);
}

}  // namespace tenon
