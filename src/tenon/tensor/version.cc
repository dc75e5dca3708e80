#include "tenon/tensor/version.h"

#include "tenon/base/error.h"

namespace tenon {

std::uint32_t VariableVersion::current_version() const {
  if (!enabled())
    throw InvalidArgument(
        "an inference tensor has no version; clone it outside inference mode to track changes");
  return value_->load(std::memory_order_acquire);
}

void VariableVersion::bump() const {
  if (!enabled())
    throw InvalidArgument(
        "an inference tensor has no version; clone it outside inference mode to track changes");
  value_->fetch_add(1, std::memory_order_acq_rel);
}

}  // namespace tenon
