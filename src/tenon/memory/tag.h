// What the calling thread is doing, for observers of its allocations. Each thread has a tag of its
// own. Nothing here throws.
#pragma once

namespace tenon {

// Both strings must outlive every observer that may see them: string literals, or interned.
struct Tag {
  const char* phase = nullptr;      // "forward", "optimiser"
  const char* call_site = nullptr;  // "conv2d"
};

// The innermost guard's; nulls without one. O(1).
Tag current_tag();

// Sets the thread's tag until the guard ends; a null field keeps the outer one. Guards nest.
class TagGuard {
 public:
  explicit TagGuard(Tag tag);
  ~TagGuard();
  TagGuard(const TagGuard&) = delete;
  TagGuard& operator=(const TagGuard&) = delete;

 private:
  Tag previous_;
};

}  // namespace tenon
