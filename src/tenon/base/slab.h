// Nodes of one type, handed out one by one and never moved.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace tenon {

// A pool of `T` with stable addresses: O(1) create and destroy, no call of malloc once warm. The
// nodes that were freed last are handed out first, while they are still in the cache. Memory goes
// back only when the slab is destroyed. Not thread-safe.
// Requires: T is trivially destructible, so that a slab can drop its chunks without a walk.
template <typename T, std::size_t kChunkNodes = 256>
class Slab {
  static_assert(std::is_trivially_destructible_v<T>);

 public:
  Slab() = default;
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;

  template <typename... Args>
  T* create(Args&&... args) {
    if (free_ == nullptr) [[unlikely]] add_chunk();
    Node* node = free_;
    free_ = node->next;
    return ::new (static_cast<void*>(node)) T{std::forward<Args>(args)...};
  }

  void destroy(T* value) {
    Node* node = ::new (static_cast<void*>(value)) Node;
    node->next = free_;
    free_ = node;
  }

  std::size_t capacity_bytes() const { return chunks_.size() * kChunkNodes * sizeof(Node); }

 private:
  union alignas(alignof(T)) Node {
    Node* next;
    alignas(alignof(T)) unsigned char storage[sizeof(T)];
  };

  void add_chunk() {
    chunks_.push_back(std::unique_ptr<Node[]>(new Node[kChunkNodes]));
    Node* chunk = chunks_.back().get();
    for (std::size_t i = kChunkNodes; i-- > 0;) {
      chunk[i].next = free_;
      free_ = &chunk[i];
    }
  }

  std::vector<std::unique_ptr<Node[]>> chunks_;
  Node* free_ = nullptr;
};

}  // namespace tenon
