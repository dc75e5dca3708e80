#include "tenon/ops/into.h"

#include <fmt/format.h>

#include <atomic>

#include "tenon/tensor/copy.h"
#include "tenon/tensor/host_access.h"

namespace tenon::ops::detail {
namespace {

// A tensor's memory, lent to one block at a time. Outlives its allocator when a block does.
struct Lease : IntrusiveTarget {
  explicit Lease(Storage lent) : storage(std::move(lent)) {}
  const Storage storage;
  std::atomic<bool> taken{false};
};

void give_back(void* context) {
  auto* lease = static_cast<IntrusivePtr<Lease>*>(context);
  (*lease)->taken.store(false, std::memory_order_release);
  delete lease;
}

}  // namespace

class OutputMemory::Lender final : public Allocator {
 public:
  explicit Lender(const Tensor& out)
      : upstream_(*current_allocator(out.device())),
        lease_(make_intrusive<Lease>(out.storage())),
        device_(out.device()),
        data_(out.data_ptr()),
        bytes_(out.nbytes()) {}

  DataPtr allocate(std::size_t size_bytes) override {
    if (size_bytes != bytes_ || lease_->taken.exchange(true, std::memory_order_acquire))
      return upstream_.allocate(size_bytes);
    return DataPtr(data_, new IntrusivePtr<Lease>(lease_), &give_back, device_);
  }
  void copy_data(void* dest, const void* src, std::size_t size_bytes) const override {
    upstream_.copy_data(dest, src, size_bytes);
  }

 private:
  Allocator& upstream_;
  const IntrusivePtr<Lease> lease_;
  const Device device_;
  void* const data_;
  const std::size_t bytes_;
};

OutputMemory::OutputMemory(const Tensor& out, bool may_lend) : out_(out) {
  if (!may_lend || out.layout() != Layout::kStrided || !out.is_contiguous() || out.numel() == 0 ||
      out.is_meta() || !host_reaches(out.device()))
    return;
  lender_ = std::make_unique<Lender>(out);
  guard_ = std::make_unique<AllocatorGuard>(out.device(), *lender_);
}

OutputMemory::~OutputMemory() = default;

void OutputMemory::finish(const char* what, const Tensor& result) {
  guard_.reset();
  if (result.sizes() != out_.sizes() || result.dtype() != out_.dtype() ||
      result.device() != out_.device())
    throw InvalidArgument(fmt::format(
        "{}: the result is {} of shape {} on {}; the given tensor is {} of shape {} on {}", what,
        dtype_name(result.dtype()), to_string(result.sizes()), to_string(result.device()),
        dtype_name(out_.dtype()), to_string(out_.sizes()), to_string(out_.device())));
  if (result.requires_grad() || out_.requires_grad())
    throw InvalidArgument(fmt::format(
        "{}: a result in a given tensor has no gradient; give tensors that need none, or compute "
        "without into()",
        what));
  const bool has_lent_memory =
      lender_ != nullptr && result.storage().data_ptr().get() == out_.const_data_ptr();
  if (has_lent_memory && result.is_contiguous())
    out_.impl()->bump_version();
  else  // in another order, the result would be overwritten while it is read
    copy_(out_, has_lent_memory ? clone(result.detach()) : result.detach());
  AutogradMetaInterface* meta = out_.impl()->autograd_meta();
  if (meta == nullptr) meta = result.impl()->autograd_meta();
  if (meta == nullptr) [[likely]]
    return;
  Tensor written = out_;
  meta->written(written, result);  // its tangents
}

}  // namespace tenon::ops::detail
