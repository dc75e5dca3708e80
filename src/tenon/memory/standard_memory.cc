#include "tenon/memory/standard_memory.h"

#include <algorithm>
#include <utility>

#include "tenon/base/align.h"
#include "tenon/base/error.h"
#include "tenon/memory/raw_blocks.h"
#include "tenon/memory/registry.h"

namespace tenon {
namespace {

constexpr std::size_t kAlignment = 64;

// Right in front of each block: what frees it.
struct alignas(kAlignment) Header {
  DataPtr data;
};
static_assert(sizeof(Header) == kAlignment);

}  // namespace

void* detail::standard_allocate(Allocator& allocator, std::size_t size_bytes,
                                std::size_t alignment) {
  if (alignment > kMaxRequestBytes || size_bytes > kMaxRequestBytes) throw std::bad_alloc();
  alignment = std::max(alignment, alignof(Header));
  DataPtr data = allocator.allocate(alignment + size_bytes);
  const auto base = reinterpret_cast<std::uintptr_t>(data.get());
  if (!is_aligned(base, alignof(Header))) throw std::bad_alloc();
  const std::uintptr_t begin = align_up(base + sizeof(Header), alignment);
  ::new (reinterpret_cast<void*>(begin - sizeof(Header))) Header{std::move(data)};
  return reinterpret_cast<void*>(begin);
}

void detail::standard_deallocate(void* data) {
  auto* header = reinterpret_cast<Header*>(static_cast<char*>(data) - sizeof(Header));
  const DataPtr last = std::move(header->data);  // frees the header with the block
}

#ifdef TENON_HAS_MEMORY_RESOURCE

DataPtr ResourceAllocator::allocate(std::size_t size_bytes) {
  if (size_bytes == 0) return DataPtr(Device{});
  check_size(size_bytes);
  void* data = nullptr;
  try {
    data = resource_.allocate(size_bytes, kAlignment);
  } catch (const OutOfMemory&) {
    throw;
  } catch (const std::bad_alloc&) {
    refuse_memory("a memory resource", Device{}, size_bytes, "");
  }
  return DataPtr::with_deleter(
      data,
      [&resource = resource_, size_bytes](void* freed) {
        resource.deallocate(freed, size_bytes, kAlignment);
      },
      Device{});
}

DeleterFn ResourceAllocator::raw_deleter() const { return &free_raw; }

#endif

Allocator& detail::standard_default() { return *get_allocator(DeviceType::kCpu); }

}  // namespace tenon
