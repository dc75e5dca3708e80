// The bytes of tensors on the meta device, counted: a program's memory before it runs, as a formula
// in its symbolic sizes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "tenon/memory/data_ptr.h"
#include "tenon/tensor/sym_int.h"

namespace tenon {

// What storages on the meta device would hold that the calling thread makes while the object lives:
//
//   const SymInt sizes[] = {SymInt::symbol("batch", 8), 784};
//   const MetaMemory memory;
//   model(empty_symbolic(sizes)) ... backward
//   memory.live()                       batch * 5360 + 2136
//   memory.peak({{"batch", 4096}})      in bytes
//
// Bytes are what tensors ask for: what an allocator adds (rounding, caches) and the host's
// workspaces are not counted. Formulas may be wrong for sizes for which the guards do not hold
// (SymGuards), and where plain sizes choose another branch than the hints did.
//
// Nests: the innermost object counts. Storages may outlive it and may be released by any thread.
// O(1) for each storage that comes or goes; the questions are O(storages so far).
class MetaMemory {
 public:
  MetaMemory();
  ~MetaMemory();
  MetaMemory(const MetaMemory&) = delete;
  MetaMemory& operator=(const MetaMemory&) = delete;

  // All bytes that were asked for; those of storages that live.
  SymInt allocated() const;
  SymInt live() const;
  // The most bytes that lived at once, with these sizes for the symbols. Throws InvalidArgument,
  // naming the symbol, when one is missing.
  std::int64_t peak(const std::map<std::string, std::int64_t>& sizes) const;

  struct Books;  // what came and went

 private:
  const std::shared_ptr<Books> books_;
  const std::shared_ptr<Books> outer_;
};

namespace detail {
// For a new storage on the meta device: no data, and a context while a MetaMemory counts.
DataPtr meta_block(const SymInt& size_bytes, Device device);
// The same storage has another size. Nothing for other blocks.
void meta_block_resized(const DataPtr& block, const SymInt& size_bytes);
}  // namespace detail

}  // namespace tenon
