// Tensors to and from other libraries, uncopied: O(dimensions). Thread-safe while none is written.
#pragma once

#include "tenon/tensor/tensor.h"

// DLPack's structures: of the other library's dlpack.h, or of tenon/tensor/interop/dlpack_abi.h.
struct DLManagedTensor;
struct DLManagedTensorVersioned;

namespace tenon {

// Sets DLPack's number for a kind of device that was registered at run time (register_device_type),
// such as 12 (kDLExtDev) or 16 (Hexagon). From then on its tensors can be exported and imported.
// The data pointer is handed on as it is. Throws InvalidArgument for a kind that Tenon knows
// itself, for a number that is one of theirs, and where either has another partner already.
// Thread-safe.
void set_dlpack_device_type(DeviceType type, std::int32_t dlpack_type);

// The tensor as a structure that owns a reference to its storage: the consumer calls the deleter
// once. Bytes that are shared copy-on-write are made the tensor's own first, since the consumer may
// write. Throws InvalidArgument for devices that DLPack does not know, for sparse layouts, and
// for tensors that require a gradient (detach them).
DLManagedTensor* to_dlpack(const Tensor& tensor);
DLManagedTensorVersioned* to_dlpack_versioned(const Tensor& tensor);

// Takes over what another library gave: its deleter runs with the last reference, or here if the
// structure is refused. Strides of any sign of zero or more; null strides mean contiguous. A
// read-only tensor is copied with its strides, byte for byte, so that writing cannot reach the
// producer's memory.
// Throws InvalidArgument for what Tenon cannot hold: lanes, sub-byte types, negative strides, other
// devices, sizes that overflow, host data that are not aligned for their dtype. Also for another
// major version, of which only the deleter is used.
Tensor from_dlpack(DLManagedTensor* managed);
Tensor from_dlpack(DLManagedTensorVersioned* managed);

}  // namespace tenon
