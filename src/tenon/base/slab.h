// Nodes of one type, handed out one by one and never moved.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace tenon {

// Memory for a slab's nodes. From the size of a huge page on it is asked for in huge pages: among
// millions of nodes nearly every access would miss the TLB too.
class SlabChunk {
 public:
  static constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

  // Throws std::bad_alloc.
  SlabChunk(std::size_t bytes, std::size_t alignment);
  void* begin() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(void* memory) const;
  };
  std::unique_ptr<void, Free> memory_;
};

// A pool of `T` with stable addresses: O(1) create and destroy, no call of malloc once warm. The
// nodes that were freed last are handed out first, while they are still in the cache. Memory comes
// in chunks, each as large as all before it up to a huge page, and goes back only when the slab is
// destroyed. Not thread-safe.
// Requires: T is trivially destructible, so that a slab can drop its chunks without a walk.
template <typename T, std::size_t kFirstNodes = 256>
class Slab {
  static_assert(std::is_trivially_destructible_v<T>);

 public:
  Slab() = default;
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;
  // The nodes of both change hands, and stay where they are.
  Slab& operator=(Slab&& other) noexcept {
    std::swap(chunks_, other.chunks_);
    std::swap(capacity_bytes_, other.capacity_bytes_);
    std::swap(free_, other.free_);
    std::swap(fresh_, other.fresh_);
    std::swap(fresh_end_, other.fresh_end_);
    return *this;
  }

  template <typename... Args>
  T* create(Args&&... args) {
    if (free_ == nullptr) [[unlikely]] refill();
    Node* node = free_;
    free_ = node->next;
    return ::new (static_cast<void*>(node)) T{std::forward<Args>(args)...};
  }

  // After this the next `nodes` create() allocate nothing. Throws std::bad_alloc; then nothing has
  // changed. O(nodes).
  void reserve(std::size_t nodes) {
    for (;;) {
      std::size_t ready = 0;
      for (const Node* node = free_; node != nullptr && ready < nodes; node = node->next) ++ready;
      if (ready >= nodes) return;
      refill();
    }
  }

  void destroy(T* value) {
    Node* node = ::new (static_cast<void*>(value)) Node;
    node->next = free_;
    free_ = node;
  }

  std::size_t capacity_bytes() const { return capacity_bytes_; }

 private:
  union alignas(alignof(T)) Node {
    Node* next;
    alignas(alignof(T)) unsigned char storage[sizeof(T)];
  };
  // What is threaded into the free list at once: about a page, so that a chunk's end is not touched
  // before it is needed.
  static constexpr std::size_t kBatchNodes = std::max<std::size_t>(4096 / sizeof(Node), 1);

  [[gnu::noinline, gnu::cold]] void refill() {
    if (fresh_ == fresh_end_) add_chunk();
    Node* end = fresh_ + std::min<std::size_t>(kBatchNodes, fresh_end_ - fresh_);
    for (Node* node = end; node-- > fresh_;) {
      node->next = free_;
      free_ = node;
    }
    fresh_ = end;
  }

  void add_chunk() {
    constexpr std::size_t kMostNodes = SlabChunk::kHugePageBytes / sizeof(Node);
    const std::size_t nodes =
        std::max(kFirstNodes, std::min(capacity_bytes_ / sizeof(Node), kMostNodes));
    const std::size_t bytes = nodes * sizeof(Node);
    chunks_.emplace_back(bytes, alignof(Node));
    fresh_ = static_cast<Node*>(chunks_.back().begin());
    fresh_end_ = fresh_ + nodes;
    capacity_bytes_ += nodes * sizeof(Node);
  }

  std::vector<SlabChunk> chunks_;
  std::size_t capacity_bytes_ = 0;
  Node* free_ = nullptr;
  Node* fresh_ = nullptr;  // never handed out yet
  Node* fresh_end_ = nullptr;
};

}  // namespace tenon
