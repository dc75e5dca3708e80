#include "tenon/tensor/interop/dlpack.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <limits>
#include <memory>
#include <mutex>

#include "tenon/base/error.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/defined.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/host_access.h"
#include "tenon/tensor/interop/dlpack_abi.h"

namespace tenon {
namespace {

DLDataType to_dl_dtype(DType dtype) {
  if (dtype == DType::kQI8)
    throw InvalidArgument(
        "to_dlpack: DLPack knows no qint8; take its int_repr() or dequantize() it");
  const auto bits = static_cast<std::uint8_t>(8 * item_size(dtype));
  if (dtype == DType::kBool) return {kDLBool, bits, 1};
  if (dtype == DType::kU8 || is_wide_unsigned(dtype)) return {kDLUInt, bits, 1};
  if (dtype == DType::kF8E4M3) return {kDLFloat8_e4m3fn, bits, 1};
  if (dtype == DType::kF8E5M2) return {kDLFloat8_e5m2, bits, 1};
  if (is_integral(dtype)) return {kDLInt, bits, 1};
  if (dtype == DType::kBF16) return {kDLBfloat, bits, 1};
  return {is_complex(dtype) ? kDLComplex : kDLFloat, bits, 1};
}

DType from_dl_dtype(DLDataType type) {
  if (type.lanes == 1)
    for (int i = 0; i < kDTypeCount; ++i) {
      if (static_cast<DType>(i) == DType::kQI8) continue;
      const DLDataType known = to_dl_dtype(static_cast<DType>(i));
      if (known.code == type.code && known.bits == type.bits) return static_cast<DType>(i);
    }
  throw InvalidArgument(fmt::format("from_dlpack: code {}, {} bits, {} lanes is no dtype of Tenon",
                                    type.code, type.bits, type.lanes));
}

constexpr bool is_tenons(std::int32_t type) {
  return type == kDLCPU || type == kDLCUDA || type == kDLCUDAHost || type == kDLVulkan ||
         type == kDLMetal || type == kDLCUDAManaged;
}

// By device type; 0: none.
std::array<std::atomic<std::int32_t>, kMaxDeviceTypes>& registered_types() {
  static std::array<std::atomic<std::int32_t>, kMaxDeviceTypes> types{};
  return types;
}

DLDevice to_dl_device(Device device) {
  const auto as = [&](DLDeviceType type) { return DLDevice{type, device.index}; };
  switch (device.type) {
    case DeviceType::kCpu:
      return as(kDLCPU);
    case DeviceType::kCuda:
      return as(kDLCUDA);
    case DeviceType::kVulkan:
      return as(kDLVulkan);
    case DeviceType::kMetal:
      return as(kDLMetal);
    default:
      break;
  }
  const auto type = static_cast<std::size_t>(device.type);
  const std::int32_t known = type < kMaxDeviceTypes ? registered_types()[type].load() : 0;
  if (known != 0) return as(static_cast<DLDeviceType>(known));
  throw InvalidArgument(fmt::format(
      "to_dlpack: DLPack does not know {}; give its kind a number with set_dlpack_device_type, or "
      "copy to the cpu",
      to_string(device)));
}

Device from_dl_device(DLDevice device) {
  const auto as = [&](DeviceType type) {
    if (device.device_id < 0 || device.device_id > std::numeric_limits<std::int16_t>::max())
      throw InvalidArgument(fmt::format("from_dlpack: index {} of {}; it is from 0 to {}",
                                        device.device_id, device_type_name(type),
                                        std::numeric_limits<std::int16_t>::max()));
    return Device{type, static_cast<std::int16_t>(device.device_id)};
  };
  switch (device.device_type) {
    case kDLCPU:
    case kDLCUDAHost:
      return Device{};
    case kDLCUDA:
    case kDLCUDAManaged:
      return as(DeviceType::kCuda);
    case kDLVulkan:
      return as(DeviceType::kVulkan);
    case kDLMetal:
      return as(DeviceType::kMetal);
    default:
      break;
  }
  const auto asked = static_cast<std::int32_t>(device.device_type);
  for (std::size_t type = 0; asked != 0 && type < kMaxDeviceTypes; ++type)
    if (registered_types()[type].load() == asked)
      return as(static_cast<DeviceType>(type));
  throw InvalidArgument(fmt::format("from_dlpack: device type {} is not known to Tenon",
                                    static_cast<int>(device.device_type)));
}

// The structure with what it points to, in one piece.
template <typename Managed>
struct Exported {
  Managed managed{};
  Tensor tensor;
  DimVector sizes, strides;
};

template <typename Managed>
Managed* export_tensor(const Tensor& tensor) {
  detail::check_defined("to_dlpack", tensor);
  if (tensor.layout() != Layout::kStrided)
    throw InvalidArgument(
        fmt::format("to_dlpack: a {} tensor; make it dense first", layout_name(tensor.layout())));
  if (tensor.requires_grad())
    throw InvalidArgument("to_dlpack: the tensor requires a gradient; export its detach()");
  auto exported = std::make_unique<Exported<Managed>>();
  exported->tensor = tensor.detach();
  exported->sizes = tensor.sizes().to_vector();
  exported->strides = tensor.strides().to_vector();
  DLTensor& dl = exported->managed.dl_tensor;
  dl.device = to_dl_device(tensor.device());
  dl.data = tensor.data_ptr();
  dl.ndim = static_cast<std::int32_t>(tensor.dim());
  dl.dtype = to_dl_dtype(tensor.dtype());
  dl.shape = exported->sizes.data();
  dl.strides = exported->strides.data();
  dl.byte_offset = 0;
  exported->managed.manager_ctx = exported.get();
  exported->managed.deleter = [](Managed* self) {
    delete static_cast<Exported<Managed>*>(self->manager_ctx);
  };
  return &exported.release()->managed;
}

// Calls the deleter when it goes.
template <typename Managed>
struct Delete {
  void operator()(Managed* managed) const {
    if (managed->deleter != nullptr) managed->deleter(managed);
  }
};
template <typename Managed>
using Owner = std::unique_ptr<Managed, Delete<Managed>>;

void check_shape(const DLTensor& dl) {
  if (dl.ndim < 0 || dl.ndim > static_cast<std::int32_t>(kMaxDims) ||
      (dl.ndim > 0 && dl.shape == nullptr))
    throw InvalidArgument(fmt::format("from_dlpack: {} dimensions{}; there may be 0 to {}", dl.ndim,
                                      dl.shape == nullptr ? " without a shape" : "", kMaxDims));
}

// Kernels of the host read and write whole elements.
void check_alignment(const void* data, DType dtype, Device device) {
  const auto alignment = visit_any_dtype(dtype, []<typename T>() { return alignof(T); });
  if (host_reaches(device) && reinterpret_cast<std::uintptr_t>(data) % alignment != 0)
    throw InvalidArgument(fmt::format(
        "from_dlpack: the data at {} are not aligned to the {} bytes of {}; copy them first", data,
        alignment, dtype_name(dtype)));
}

template <typename Managed>
Tensor import_tensor(Owner<Managed> owner, bool read_only) {
  const DLTensor& dl = owner->dl_tensor;
  check_shape(dl);
  const DType dtype = from_dl_dtype(dl.dtype);
  const Device device = from_dl_device(dl.device);
  const IntList sizes(dl.shape, static_cast<std::size_t>(dl.ndim));
  const std::int64_t numel = checked_numel(sizes);
  const DimVector strides =
      dl.strides == nullptr ? strides_for(sizes) : DimVector(dl.strides, sizes.size());
  const std::int64_t elements = numel == 0 ? 0 : storage_elements(sizes, strides, 0);
  if (elements < 0 || (elements > 0 && dl.data == nullptr))
    throw InvalidArgument(fmt::format("from_dlpack: shape {} with strides {}{}", to_string(sizes),
                                      to_string(strides),
                                      dl.data == nullptr ? " and no data" : ""));
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<std::size_t>(elements), item_size(dtype), &bytes) ||
      bytes > static_cast<std::size_t>(INT64_MAX))
    throw InvalidArgument(fmt::format("from_dlpack: shape {} is too large", to_string(sizes)));
  void* data = dl.data == nullptr ? nullptr : static_cast<char*>(dl.data) + dl.byte_offset;
  check_alignment(data, dtype, device);
  const DimVector own_sizes = sizes.to_vector();  // the structure may go before the tensor is made
  Managed* raw = owner.release();
  DataPtr held(
      data, raw, [](void* context) { Delete<Managed>()(static_cast<Managed*>(context)); }, device);
  if (!read_only) return from_blob(std::move(held), bytes, own_sizes, strides, dtype);
  // The bytes that there are, not the elements: a broadcast tensor names each many times.
  const Tensor flat = clone(from_blob(std::move(held), bytes, {elements}, {1}, dtype));
  return flat.as_strided(own_sizes, strides, 0);
}

}  // namespace

void set_dlpack_device_type(DeviceType type, std::int32_t dlpack_type) {
  const auto refuse = [&](const char* why) {
    throw InvalidArgument(fmt::format("set_dlpack_device_type({}, {}): {}",
                                      device_type_name(type), dlpack_type, why));
  };
  if (type < DeviceType::kFirstRegistered) refuse("Tenon's own kinds have theirs");
  if (dlpack_type <= 0 || is_tenons(dlpack_type)) refuse("the number means another kind of device");
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  auto& types = registered_types();
  for (std::size_t other = 0; other < kMaxDeviceTypes; ++other)
    if (other != static_cast<std::size_t>(type) && types[other] == dlpack_type)
      refuse("another registered kind has this number");
  std::atomic<std::int32_t>& mine = types[static_cast<std::size_t>(type)];
  if (mine != 0 && mine != dlpack_type) refuse("the kind has another number already");
  mine = dlpack_type;
}

DLManagedTensor* to_dlpack(const Tensor& tensor) { return export_tensor<DLManagedTensor>(tensor); }

DLManagedTensorVersioned* to_dlpack_versioned(const Tensor& tensor) {
  auto* managed = export_tensor<DLManagedTensorVersioned>(tensor);
  const bool is_float8 = tensor.dtype() == DType::kF8E4M3 || tensor.dtype() == DType::kF8E5M2;
  managed->version = {kDLPackMajor, is_float8 ? kDLPackMinorOfFloat8 : kDLPackMinor};
  managed->flags = 0;
  return managed;
}

Tensor from_dlpack(DLManagedTensor* managed) {
  if (managed == nullptr) throw InvalidArgument("from_dlpack: the tensor is null");
  return import_tensor(Owner<DLManagedTensor>(managed), false);
}

Tensor from_dlpack(DLManagedTensorVersioned* managed) {
  if (managed == nullptr) throw InvalidArgument("from_dlpack: the tensor is null");
  Owner<DLManagedTensorVersioned> owner(managed);
  if (managed->version.major != kDLPackMajor)
    throw InvalidArgument(fmt::format("from_dlpack: version {}.{}; Tenon reads version {}",
                                      managed->version.major, managed->version.minor,
                                      kDLPackMajor));
  if ((managed->flags & kDLFlagSubBytePadded) != 0)
    throw InvalidArgument("from_dlpack: types below a byte are not known to Tenon");
  return import_tensor(std::move(owner), (managed->flags & kDLFlagReadOnly) != 0);
}

}  // namespace tenon
