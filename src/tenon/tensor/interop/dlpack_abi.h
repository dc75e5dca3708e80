// The memory layout of DLPack's structures: an interchange format between array libraries
// (dmlc/dlpack, version 1.0; declared here because packaged headers are older). Names and values
// are the standard's.
#pragma once

#include <cstdint>

extern "C" {

// The standard's, version 1.0: dmlc.github.io/dlpack.
enum DLDeviceType : std::int32_t {
  kDLCPU = 1,
  kDLCUDA = 2,
  kDLCUDAHost = 3,
  kDLVulkan = 7,
  kDLMetal = 8,
  kDLCUDAManaged = 13,
};

// The standard's, version 1.0: dmlc.github.io/dlpack.
struct DLDevice {
  DLDeviceType device_type;
  std::int32_t device_id;
};

// The standard's, version 1.0: dmlc.github.io/dlpack.
enum DLDataTypeCode : std::uint8_t {
  kDLInt = 0,
  kDLUInt = 1,
  kDLFloat = 2,
  kDLBfloat = 4,
  kDLComplex = 5,
  kDLBool = 6,
  kDLFloat8_e4m3fn = 10,  // version 1.1
  kDLFloat8_e5m2 = 12,
};

// The standard's, version 1.0: dmlc.github.io/dlpack.
struct DLDataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

// The standard's, version 1.0: dmlc.github.io/dlpack.
struct DLTensor {
  void* data;
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; may be null on import: contiguous
  std::uint64_t byte_offset;
};

// The standard's, version 1.0: dmlc.github.io/dlpack.
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);  // may be null
};

// The standard's, version 1.0: dmlc.github.io/dlpack.
struct DLPackVersion {
  std::uint32_t major;
  std::uint32_t minor;
};

// The standard's, version 1.0: dmlc.github.io/dlpack.
struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  std::uint64_t flags;
  DLTensor dl_tensor;
};

}  // extern "C"

inline constexpr std::uint32_t kDLPackMajor = 1;
inline constexpr std::uint32_t kDLPackMinor = 0;
inline constexpr std::uint32_t kDLPackMinorOfFloat8 = 1;
inline constexpr std::uint64_t kDLFlagReadOnly = 1;
inline constexpr std::uint64_t kDLFlagCopied = 2;
inline constexpr std::uint64_t kDLFlagSubBytePadded = 4;
