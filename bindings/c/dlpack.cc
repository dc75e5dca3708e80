// Blocks as DLPack tensors.
#include <fmt/format.h>

#include <memory>
#include <vector>

#include "objects.h"
#include "status.h"
#include "tenon/tensor/interop/dlpack_abi.h"

namespace tenon::c {
namespace {

// What a tensor that was handed out keeps.
struct Exported {
  DLManagedTensorVersioned managed{};
  AllocatorObject* allocator = nullptr;
  DataPtr block;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
};

void end_export(DLManagedTensorVersioned* self) {
  if (self == nullptr) return;
  const std::unique_ptr<Exported> exported(static_cast<Exported*>(self->manager_ctx));
  try {
    exported->block.clear();
  } catch (const std::exception&) {
    // DLPack has no way to report what a driver refused.
  }
  exported->allocator->exported_block_ended();
}

DLDevice dlpack_device(const Backend& backend) {
  const Device device = backend.device();
  if (device.type == DeviceType::kCpu) return {kDLCPU, 0};
  if (device.type == DeviceType::kCuda) return {kDLCUDA, device.index};
  if (backend.limits().unified) return {kDLCPU, 0};  // the host reads and writes its addresses
  throw std::invalid_argument(fmt::format(
      "DLPack has no number for devices of the kind {}, and the host cannot reach their memory",
      to_string(device)));
}

// Throws std::invalid_argument.
std::uint64_t size_of(const std::vector<std::int64_t>& shape, std::uint8_t bits) {
  std::uint64_t bytes = bits / 8;
  for (const std::int64_t length : shape) {
    if (length < 0) throw std::invalid_argument(fmt::format("shape has the length {}", length));
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(length), &bytes))
      throw std::invalid_argument("the shape has too many elements");
  }
  return bytes;
}

}  // namespace
}  // namespace tenon::c

using namespace tenon;
using namespace tenon::c;

tenon_status tenon_export_dlpack(tenon_allocator allocator, void* data, uint8_t code, uint8_t bits,
                                 const int64_t* shape, int32_t dimensions,
                                 DLManagedTensorVersioned** out) {
  return guarded("tenon_export_dlpack", [&] {
    require(out, "out");
    AllocatorObject& object = Handles::find<AllocatorObject>(allocator);
    if (code > kDLBool || bits == 0 || bits % 8 != 0)
      throw std::invalid_argument(
          fmt::format("the data type ({}, {} bits) is none of whole bytes that DLPack has", code,
                      bits));
    constexpr std::int32_t kMaxDimensions = 64;
    if (dimensions < 0 || dimensions > kMaxDimensions)
      throw std::invalid_argument(fmt::format("dimensions is {}: there may be 0 to {}", dimensions,
                                              kMaxDimensions));
    if (dimensions > 0) require(shape, "shape");
    auto exported = std::make_unique<Exported>();
    exported->shape.assign(shape, shape + dimensions);
    exported->strides.resize(exported->shape.size());
    const std::uint64_t bytes = size_of(exported->shape, bits);
    std::int64_t stride = 1;
    for (std::size_t i = exported->shape.size(); i-- > 0;) {
      exported->strides[i] = stride;
      if (bytes != 0) stride *= exported->shape[i];  // of no elements there is no stride
    }
    exported->allocator = &object;
    DLManagedTensorVersioned& managed = exported->managed;
    managed.version = {kDLPackMajor, kDLPackMinor};
    managed.manager_ctx = exported.get();
    managed.deleter = end_export;
    managed.dl_tensor.device = dlpack_device(object.allocator().backend());
    managed.dl_tensor.data = data;
    managed.dl_tensor.ndim = dimensions;
    managed.dl_tensor.dtype = {code, bits, 1};
    managed.dl_tensor.shape = exported->shape.data();
    managed.dl_tensor.strides = exported->strides.data();
    exported->block = object.export_block(data, bytes);
    *out = &exported.release()->managed;
  });
}
