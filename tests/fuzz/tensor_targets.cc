// Tensors from files and from other libraries.
#include <cstring>
#include <string>
#include <vector>

#include "target.h"
#include "tenon/base/error.h"
#include "tenon/base/gzip.h"
#include "tenon/nn/data/idx.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/interop/dlpack.h"
#include "tenon/tensor/interop/dlpack_abi.h"
#include "tenon/tensor/interop/npy.h"
#include "tenon/tensor/interop/safetensors.h"

namespace tenon::fuzz {
namespace {

// Looks at every byte.
void touch(const Tensor& t) {
  if (t.numel() == 0) return;
  const Tensor dense = contiguous(t);
  const std::string bytes(static_cast<const char*>(dense.const_data_ptr()), dense.nbytes());
  require(bytes.size() == dense.nbytes(), "all bytes are there");
}

bool npy(std::string_view bytes) {
  return accepts([&] { touch(parse_npy(bytes, "fuzz.npy")); });
}

bool safetensors(std::string_view bytes) {
  return accepts([&] {
    for (const auto& [name, tensor] : parse_safetensors(bytes, "fuzz.safetensors").tensors)
      touch(tensor);
  });
}

bool idx(std::string_view bytes) {
  return accepts([&] {
    const Tensor t = nn::parse_idx(bytes, "fuzz.idx");
    touch(t);
    require(nn::format_idx(t) == bytes, "what is read is written the same");
  });
}

bool gzip(std::string_view bytes) {
  return accepts([&] { inflate_gzip(bytes, "fuzz.gz"); });
}

// A producer's structure, drawn from the bytes.
class Producer : InputNumbers {
 public:
  explicit Producer(std::string_view bytes) : InputNumbers(bytes), memory_(kMemoryBytes) {
    DLTensor& dl = managed_.dl_tensor;
    managed_.version = {take<std::uint8_t>() < 250 ? kDLPackMajor : take<std::uint32_t>(), 0};
    managed_.flags = take<std::uint8_t>();
    managed_.manager_ctx = this;
    managed_.deleter = [](DLManagedTensorVersioned* self) {
      ++static_cast<Producer*>(self->manager_ctx)->deleted_;
    };
    dl.device = {static_cast<DLDeviceType>(take<std::uint8_t>() % 16), 0};
    dl.dtype.code = take<std::uint8_t>() % 8;
    dl.dtype.bits = take<std::uint8_t>();
    dl.dtype.lanes = take<std::uint8_t>() < 240 ? 1 : take<std::uint16_t>();
    dl.ndim = take<std::int8_t>();
    for (int i = 0; i < 64; ++i) sizes_.push_back(take_number());
    for (int i = 0; i < 64; ++i) strides_.push_back(take_number());
    dl.shape = take<std::uint8_t>() == 255 ? nullptr : sizes_.data();
    dl.strides = take<std::uint8_t>() % 2 == 0 ? nullptr : strides_.data();
    dl.data = take<std::uint8_t>() == 255 ? nullptr : memory_.data();
    dl.byte_offset = 0;
  }

  // Whether the memory that the structure describes is there. Sizes that no library could have are
  // left to the importer, which must refuse them.
  bool is_honest() const {
    const DLTensor& dl = managed_.dl_tensor;
    if (dl.ndim < 0 || dl.ndim > 64 || dl.shape == nullptr) return true;
    constexpr auto kMost = static_cast<__int128>(1) << 62;
    __int128 last = 0;
    __int128 elements = 1;
    for (std::size_t i = static_cast<std::size_t>(dl.ndim); i-- > 0;) {
      const __int128 stride = dl.strides == nullptr ? elements : strides_[i];
      if (sizes_[i] <= 0 || stride < 0) return true;
      last += (sizes_[i] - 1) * stride;
      elements *= sizes_[i];
      if (elements > kMost || last > kMost) return true;
    }
    return (last + 1) * 16 <= static_cast<__int128>(kMemoryBytes);
  }
  bool is_cpu() const { return managed_.dl_tensor.device.device_type == kDLCPU; }
  DLManagedTensorVersioned* managed() { return &managed_; }
  int deleted() const { return deleted_; }

 private:
  static constexpr std::size_t kMemoryBytes = std::size_t{1} << 16;

  // Small ones mostly.
  std::int64_t take_number() {
    const auto kind = take<std::uint8_t>();
    return kind < 240 ? kind % 16 : take<std::int64_t>();
  }

  std::vector<char> memory_;
  std::vector<std::int64_t> sizes_, strides_;
  DLManagedTensorVersioned managed_{};
  int deleted_ = 0;
};

bool dlpack(std::string_view bytes) {
  Producer producer(bytes);
  if (!producer.is_honest()) return false;
  bool taken = false;
  try {
    const Tensor t = from_dlpack(producer.managed());
    taken = true;
    if (t.device() == Device{} && producer.is_cpu() && t.numel() <= 1 << 20) touch(t);
  } catch (const InvalidArgument&) {
  } catch (const DeviceError&) {  // a GPU's tensor, where there is none
  }
  require(producer.deleted() == 1, "the deleter runs once");
  return taken;
}

const Registered kTensorTargets[] = {{"npy", npy},
                                     {"safetensors", safetensors},
                                     {"idx", idx},
                                     {"gzip", gzip},
                                     {"dlpack", dlpack}};

}  // namespace
}  // namespace tenon::fuzz
