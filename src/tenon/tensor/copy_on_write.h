// Clones that share bytes until one of them is written.
#pragma once

#include "tenon/tensor/storage_impl.h"

namespace tenon {

// A storage with the same bytes as `source`, without copying: both become copy-on-write, and the
// first of them that is asked for mutable data copies; the last one left takes the bytes over as
// they are. The clone has a version counter of its own. Lazy bytes that were not touched are not
// brought: the clone is lazy, too. O(1).
//
// Bytes of a block that is larger than its storage says (set_nbytes, GrowableTensor) are copied at
// once, since the storage may grow into the rest where it is. O(bytes).
//
// Pointers that were handed out by `source` before stay valid, but writing through them would
// change the clone as well: ask for mutable data again.
IntrusivePtr<StorageImpl> copy_on_write_clone(StorageImpl& source);

namespace detail {

// Makes shared bytes the pointer's own: takes them over if no other clone holds them, else copies
// into memory from `allocator`. Requires: `data` is one that copy_on_write_clone made.
void own_bytes(DataPtr& data, std::size_t size_bytes, Allocator& allocator);

// How many bytes the storage had that was cloned first. Requires: as own_bytes.
std::size_t shared_size(const DataPtr& data);

// Whether set_nbytes said that a storage has fewer bytes than its block.
bool is_partly_used(const DataPtr& data);

}  // namespace detail
}  // namespace tenon
