// Blocks of one size for small objects that come and go often, cached for each thread.
#pragma once

#include <cstddef>
#include <mutex>
#include <new>
#include <vector>

namespace tenon {

// Memory for objects of kBlockBytes, without a header: what an object costs is its size. A cached
// pair is a few instructions on the thread's own list; blocks may be freed on any thread. Surplus
// goes to a shared list in whole batches, so a thread that only frees feeds one that only
// allocates. Memory stays with the program. When a thread ends, its blocks go to the shared list.
//
//   thread:  current (<= kBatch) | spare (0 or kBatch)   <--batch-->   shared batches, chunks
//
// Under AddressSanitizer every block is a heap block of its own, so that use after free is found.
// Thread-safe. allocate throws std::bad_alloc.
template <std::size_t kBlockBytes>
class BlockCache {
  static_assert(kBlockBytes >= 2 * sizeof(void*) && kBlockBytes % alignof(void*) == 0);

 public:
#if defined(__SANITIZE_ADDRESS__)
  static void* allocate() { return ::operator new(kBlockBytes); }
  static void deallocate(void* block) noexcept { ::operator delete(block); }
#else
  static void* allocate() {
    Node* node = local_.current;
    if (node == nullptr) [[unlikely]]
      return allocate_slowly();
    local_.current = node->next;
    --local_.count;
    return node;
  }
  static void deallocate(void* block) noexcept {
    if (local_.count >= kBatch) [[unlikely]]
      make_room();
    Node* node = static_cast<Node*>(block);
    node->next = local_.current;
    local_.current = node;
    ++local_.count;
  }
#endif

 private:
  static constexpr std::size_t kBatch = 64;

  struct Node {
    Node* next;
    Node* next_batch;  // of a batch's first node, in the shared list
  };
  // Constant initialisation and no destructor: reading it costs no guard.
  struct Local {
    Node* current = nullptr;
    Node* spare = nullptr;
    std::size_t count = 0;  // nodes in `current`
    bool has_exit_hook = false;
    bool ended = false;
  };
  struct Shared {
    std::mutex mutex;
    Node* batches = nullptr;  // of any length, linked by next_batch
  };
  struct ExitHook {
    ~ExitHook() {
      give_back(local_.current);
      give_back(local_.spare);
      local_ = Local{.has_exit_hook = true, .ended = true};
    }
  };

  static Shared& shared() {
    static Shared& instance = *new Shared;  // never destroyed: static destructors free, too
    return instance;
  }
  static void give_back(Node* batch) noexcept {
    if (batch == nullptr) return;
    const std::lock_guard lock(shared().mutex);
    batch->next_batch = shared().batches;
    shared().batches = batch;
  }

  static void* allocate_slowly() {
    if (!local_.has_exit_hook) {
      local_.has_exit_hook = true;
      thread_local ExitHook hook;
      static_cast<void>(hook);
    }
    Node* batch = local_.spare;
    local_.spare = nullptr;
    if (batch == nullptr) {
      const std::lock_guard lock(shared().mutex);
      batch = shared().batches;
      if (batch != nullptr) shared().batches = batch->next_batch;
    }
    if (batch == nullptr) batch = new_chunk();
    local_.count = 0;
    for (Node* node = batch->next; node != nullptr; node = node->next) ++local_.count;
    local_.current = batch->next;
    if (local_.ended) {  // no list will be given back again: keep none
      give_back(local_.current);
      local_.current = nullptr;
      local_.count = 0;
    }
    return batch;
  }

  static void make_room() noexcept {
    give_back(local_.spare);
    local_.spare = local_.current;
    local_.current = nullptr;
    local_.count = 0;
  }

  static Node* new_chunk() {
    char* chunk = static_cast<char*>(::operator new(kBlockBytes* kBatch));
    Node* first = nullptr;
    for (std::size_t i = kBatch; i-- > 0;) {
      Node* node = reinterpret_cast<Node*>(chunk + i * kBlockBytes);
      node->next = first;
      first = node;
    }
    return first;
  }

  static inline constinit thread_local Local local_;
};

}  // namespace tenon
