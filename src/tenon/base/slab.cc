#include "tenon/base/slab.h"

#include <sys/mman.h>

#include <cstdlib>

#include "tenon/base/align.h"

namespace tenon {

SlabChunk::SlabChunk(std::size_t bytes, std::size_t alignment) : bytes_(bytes) {
  const bool huge = bytes >= kHugePageBytes;
  const std::size_t boundary =
      huge ? kHugePageBytes : std::max(alignment, alignof(std::max_align_t));
  const std::size_t whole = align_up(bytes, boundary);
  memory_.reset(std::aligned_alloc(boundary, whole));
  if (memory_ == nullptr) throw std::bad_alloc();
  // Where the system has no huge pages to give, small ones serve.
  if (huge) ::madvise(memory_.get(), whole, MADV_HUGEPAGE);
}

void SlabChunk::Free::operator()(void* memory) const { std::free(memory); }

void SlabChunk::add_to(std::vector<SlabChunk>& chunks, std::size_t bytes, std::size_t alignment) {
  chunks.emplace_back(bytes, alignment);
}

}  // namespace tenon
