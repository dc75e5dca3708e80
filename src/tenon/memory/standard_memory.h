// Allocators for the standard library's containers, and its memory resources as allocators.
#pragma once

#include <cstddef>
#include <new>

#include "tenon/memory/allocator.h"

// std::pmr is optional: LLVM's C++ library has it from version 16 on.
#if __has_include(<memory_resource>)
#include <memory_resource>
#define TENON_HAS_MEMORY_RESOURCE 1
#endif

namespace tenon {

namespace detail {
// A block behind a header that frees it. Any alignment.
void* standard_allocate(Allocator& allocator, std::size_t size_bytes, std::size_t alignment);
void standard_deallocate(void* data);
Allocator& standard_default();
}  // namespace detail

#ifdef TENON_HAS_MEMORY_RESOURCE

// A standard memory resource over an allocator of the host, which is not owned and aligns to 64
// bytes at least, else std::bad_alloc. Thread-safe as the allocator is. Costs 64 bytes for each
// block, or its alignment where that is more.
class AllocatorResource final : public std::pmr::memory_resource {
 public:
  explicit AllocatorResource(Allocator& allocator) : allocator_(allocator) {}

 private:
  void* do_allocate(std::size_t size_bytes, std::size_t alignment) override {
    return detail::standard_allocate(allocator_, size_bytes, alignment);
  }
  void do_deallocate(void* data, std::size_t, std::size_t) override {
    detail::standard_deallocate(data);
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    const auto* same = dynamic_cast<const AllocatorResource*>(&other);
    return same != nullptr && &same->allocator_ == &allocator_;
  }

  Allocator& allocator_;
};

// The other way: an allocator of host memory over a standard memory resource, which is not owned.
// Blocks are aligned to 64 bytes. Failure: OutOfMemory where the resource throws std::bad_alloc.
// Thread-safe as the resource is. O(1) beside the resource, and a record for each block.
class ResourceAllocator final : public Allocator {
 public:
  explicit ResourceAllocator(std::pmr::memory_resource& resource) : resource_(resource) {}

  DataPtr allocate(std::size_t size_bytes) override;
  std::size_t alignment() const override { return 64; }
  DeleterFn raw_deleter() const override;
  void copy_data(void* dest, const void* src, std::size_t size_bytes) const override {
    default_copy_data(dest, src, size_bytes);
  }

 private:
  std::pmr::memory_resource& resource_;
};

#endif

// A standard allocator over one of Tenon's: std::vector<float, StandardAllocator<float>>. Copies
// share the allocator, which must outlive the containers. Without one: the registered CPU
// allocator, since a container may outlive a thread's guard.
template <typename T>
class StandardAllocator {
 public:
  // As the standard wants.
  using value_type = T;

  StandardAllocator() : allocator_(&detail::standard_default()) {}
  explicit StandardAllocator(Allocator& allocator) : allocator_(&allocator) {}
  template <typename U>
  StandardAllocator(const StandardAllocator<U>& other) : allocator_(other.allocator_) {}

  // Room for `count` elements. Throws std::bad_alloc.
  T* allocate(std::size_t count) {
    if (count > ~std::size_t{0} / sizeof(T)) throw std::bad_array_new_length();
    return static_cast<T*>(detail::standard_allocate(*allocator_, count * sizeof(T), alignof(T)));
  }
  // Takes it back.
  void deallocate(T* data, std::size_t) { detail::standard_deallocate(data); }
  // Whether either frees what the other allocated.
  template <typename U>
  bool operator==(const StandardAllocator<U>& other) const {
    return allocator_ == other.allocator_;
  }

 private:
  template <typename U>
  friend class StandardAllocator;

  Allocator* allocator_;
};

}  // namespace tenon
