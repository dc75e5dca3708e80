#include "tenon/tensor/fallback.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <map>
#include <mutex>

#include "tenon/base/byte_size.h"
#include "tenon/base/environment.h"
#include "tenon/base/error.h"
#include "tenon/base/parallel.h"
#include "tenon/device/devices.h"
#include "tenon/memory/registry.h"
#include "tenon/tensor/host_access.h"
#include "tenon/tensor/kernels/vulkan/capturing.h"
#include "tenon/tensor/storage_impl.h"

namespace tenon {
namespace {

std::mutex mutex;

struct Count {
  std::uint64_t calls = 0;
  std::uint64_t copied_bytes = 0;
};

std::map<std::string, Count>& counts() {
  static auto& made = *new std::map<std::string, Count>();
  return made;
}

bool is_forbidden() {
  static const bool forbidden = environment_value("TENON_FALLBACK") == "error";
  return forbidden;
}

}  // namespace

std::vector<HostFallback> fallbacks() {
  std::vector<HostFallback> all;
  {
    const std::lock_guard lock(mutex);
    for (const auto& [name, of] : counts()) all.push_back({name, of.calls, of.copied_bytes});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const HostFallback& a, const HostFallback& b) { return a.calls > b.calls; });
  return all;
}

std::string to_string(const std::vector<HostFallback>& calls) {
  std::string text;
  std::uint64_t copied_bytes = 0;
  for (const HostFallback& each : calls) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", each.name, each.calls);
    copied_bytes += each.copied_bytes;
  }
  return copied_bytes == 0 ? text
                           : fmt::format("{}; {} copied", text, format_byte_size(copied_bytes));
}

// Copies of storages on the host, for one turn. Workers of parallel loops ask for them, too.
class detail::HostCopies {
 public:
  explicit HostCopies(const char* name) : name_(name) {}

  static HostCopies* of_thread() { return static_cast<HostCopies*>(shared_with_workers()); }

  void* address(StorageImpl& storage, bool writes) {
    const std::lock_guard lock(mutex_);
    Copy& copy = copy_of(storage);
    if (!copy.is_current) {
      wait_for_device(storage.device(), storage.data_.get());
      if ((storage.state() & StorageImpl::kUntouched) == 0)
        move_bytes(storage, copy.bytes.get(), storage.data_.get());
      copy.is_current = true;
    }
    copy.is_written |= writes;
    return copy.bytes.get();
  }

  void bring_to_device(StorageImpl& storage, bool writes) {
    const std::lock_guard lock(mutex_);
    Copy* const copy = find(storage);
    if (copy == nullptr) return;
    give_back(*copy);
    if (writes) copy->is_current = copy->is_written = false;
  }

  void give_back_all() {
    for (Copy& copy : all_) give_back(copy);
  }

 private:
  struct Copy {
    IntrusivePtr<StorageImpl> storage;
    std::size_t size_bytes;
    DataPtr bytes;
    bool is_current = false;
    bool is_written = false;  // since the device wrote: its pointer is out until the turn ends
  };

  Copy* find(const StorageImpl& storage) {
    for (Copy& copy : all_)
      if (copy.storage.get() == &storage) return &copy;
    return nullptr;
  }

  Copy& copy_of(StorageImpl& storage) {
    Copy* found = find(storage);
    if (found == nullptr)
      found = &all_.emplace_back(Copy{IntrusivePtr<StorageImpl>::retain_copy(&storage), 0, {}});
    if (found->bytes == nullptr || found->size_bytes != storage.nbytes()) {
      found->bytes = current_allocator(Device{})->allocate(storage.nbytes());
      found->size_bytes = storage.nbytes();
      found->is_current = false;
    }
    return *found;
  }

  void give_back(Copy& copy) {
    if (!copy.is_written) return;
    StorageImpl& storage = *copy.storage;
    move_bytes(storage, storage.data_.get(), copy.bytes.get());
    own_backend(storage.device())->synchronize();  // whichever stream uses it next
    storage.state_.fetch_and(static_cast<std::uint8_t>(~StorageImpl::kUntouched));
  }

  void move_bytes(const StorageImpl& storage, void* to, const void* from) {
    const Device device = storage.device();
    own_backend(device)->copy(to, from, storage.nbytes(), current_stream(device));
    const std::lock_guard lock(mutex);
    counts()[name_].copied_bytes += storage.nbytes();
  }

  const char* const name_;
  std::mutex mutex_;
  std::deque<Copy> all_;
};

void detail::DeleteHostCopies::operator()(HostCopies* copies) const noexcept { delete copies; }

void* detail::address_in_turn(StorageImpl& storage, bool writes) {
  HostCopies* const copies = HostCopies::of_thread();
  if (copies == nullptr)
    throw InvalidArgument(fmt::format("the host does not reach the memory of {}; copy the tensor "
                                      "to the cpu",
                                      to_string(storage.device())));
  return copies->address(storage, writes);
}

void detail::bring_to_device(StorageImpl& storage, bool writes) {
  if (HostCopies* const copies = HostCopies::of_thread()) copies->bring_to_device(storage, writes);
}

void HostTurn::take(const char* name, Device device) {
  vulkan::refuse_host_in_capture(device, name);
  if (!has_operators(device))
    throw InvalidArgument(fmt::format("{}: the host does not reach the memory of {}; copy the "
                                      "tensor to the cpu",
                                      name, to_string(device)));
  if (is_forbidden())
    throw DeviceError(fmt::format("{}: {} has no kernel for it, and TENON_FALLBACK=error forbids "
                                  "the host; unset it, or move the tensors to the cpu",
                                  name, to_string(device)));
  {
    const std::lock_guard lock(mutex);
    ++counts()[name].calls;
  }
  if (host_reaches(device) || detail::HostCopies::of_thread() != nullptr) return;
  copies_.reset(new detail::HostCopies(name));
  exceptions_ = std::uncaught_exceptions();
  detail::shared_with_workers() = copies_.get();
}

void HostTurn::give_back() {
  detail::shared_with_workers() = nullptr;
  try {
    copies_->give_back_all();
  } catch (...) {
    if (std::uncaught_exceptions() == exceptions_) throw;  // else the first one is the reason
  }
}

}  // namespace tenon
