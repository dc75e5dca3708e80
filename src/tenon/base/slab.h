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
  // One more; not inline, since every type of node has a slab.
  [[gnu::cold]] static void add_to(std::vector<SlabChunk>& chunks, std::size_t bytes,
                                   std::size_t alignment);
  void* begin() const { return memory_.get(); }
  std::size_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(void* memory) const;
  };
  std::unique_ptr<void, Free> memory_;
  std::size_t bytes_;
};

// A pool of `T` with stable addresses: O(1) create and destroy, no call of malloc once warm. The
// nodes that were freed last are handed out first, while they are still in the cache. Memory comes
// in chunks, each as large as all before it up to a huge page, and goes back only when the slab is
// destroyed. create throws std::bad_alloc with nothing changed, and not at all for as many nodes as
// it was made to grow to. Not thread-safe.
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
    std::swap(next_chunk_, other.next_chunk_);
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

  // From now on there are so many nodes, those in use included. Memory that is reserved is not
  // touched before it is needed.
  void grow_to(std::size_t nodes) {
    if (nodes > capacity()) add_chunk(nodes - capacity());
  }
  // Whether the next create must ask for memory.
  bool is_full() const {
    return free_ == nullptr && fresh_ == fresh_end_ && next_chunk_ == chunks_.size();
  }
  // Whether so many can be created without.
  bool has(std::size_t nodes) const {
    std::size_t found = static_cast<std::size_t>(fresh_end_ - fresh_);
    for (std::size_t i = next_chunk_; i < chunks_.size(); ++i)
      found += chunks_[i].bytes() / sizeof(Node);
    for (const Node* node = free_; node != nullptr && found < nodes; node = node->next) ++found;
    return found >= nodes;
  }
  // Nodes that there will be once a full slab has created another.
  std::size_t next_capacity() const { return capacity() + nodes_to_add(); }
  std::size_t capacity() const { return capacity_bytes_ / sizeof(Node); }
  std::size_t capacity_bytes() const { return capacity_bytes_; }

 private:
  union Node {
    Node* next;
    alignas(alignof(T)) unsigned char storage[sizeof(T)];
  };
  // What is threaded into the free list at once: about a page, so that a chunk's end is not touched
  // before it is needed.
  static constexpr std::size_t kBatchNodes = std::max<std::size_t>(4096 / sizeof(Node), 1);

  [[gnu::noinline, gnu::cold]] void refill() {
    if (fresh_ == fresh_end_) {
      if (next_chunk_ == chunks_.size()) add_chunk(nodes_to_add());
      const SlabChunk& chunk = chunks_[next_chunk_++];
      fresh_ = static_cast<Node*>(chunk.begin());
      fresh_end_ = fresh_ + chunk.bytes() / sizeof(Node);
    }
    Node* end = fresh_ + std::min(kBatchNodes, static_cast<std::size_t>(fresh_end_ - fresh_));
    for (Node* node = end; node-- > fresh_;) {
      node->next = free_;
      free_ = node;
    }
    fresh_ = end;
  }

  std::size_t nodes_to_add() const {
    constexpr std::size_t kMostNodes = SlabChunk::kHugePageBytes / sizeof(Node);
    return std::max(kFirstNodes, std::min(capacity(), kMostNodes));
  }
  void add_chunk(std::size_t nodes) {
    SlabChunk::add_to(chunks_, nodes * sizeof(Node), alignof(Node));
    capacity_bytes_ += nodes * sizeof(Node);
  }

  std::vector<SlabChunk> chunks_;
  std::size_t next_chunk_ = 0;  // the first that nothing was handed out of
  std::size_t capacity_bytes_ = 0;
  Node* free_ = nullptr;
  Node* fresh_ = nullptr;  // never handed out yet
  Node* fresh_end_ = nullptr;
};

}  // namespace tenon
