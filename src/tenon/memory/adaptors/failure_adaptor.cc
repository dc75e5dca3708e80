#include "tenon/memory/adaptors/failure_adaptor.h"

#include <fmt/format.h>

namespace tenon {

template <typename Base>
void FailureAdaptor<Base>::set_plan(const FailurePlan& plan) {
  const std::lock_guard guard(lock_);
  plan_ = plan;
  random_ = Random(plan.seed);
  requests_ = 0;
}

template <typename Base>
std::uint64_t FailureAdaptor<Base>::requests() const {
  const std::lock_guard guard(lock_);
  return requests_;
}

template <typename Base>
std::uint64_t FailureAdaptor<Base>::failures() const {
  const std::lock_guard guard(lock_);
  return failures_;
}

template <typename Base>
bool FailureAdaptor<Base>::strikes(std::size_t size_bytes, std::uint64_t& number) {
  const std::lock_guard guard(lock_);
  number = ++requests_;
  const bool struck = number == plan_.nth || (plan_.every != 0 && number % plan_.every == 0) ||
                      size_bytes > plan_.above_bytes ||
                      (plan_.rate > 0 && random_.chance(plan_.rate));
  failures_ += struck ? 1 : 0;
  return struck;
}

template <typename Base>
DataPtr FailureAdaptor<Base>::serve(std::size_t size_bytes, Stream stream) {
  std::uint64_t number = 0;
  if (size_bytes > 0 && strikes(size_bytes, number)) {
    OutOfMemoryDetails details;
    details.advice = fmt::format("the failure of request {} was asked for", number);
    this->refuse(size_bytes, stream, std::move(details));
  }
  return this->wrap(this->from_upstream(size_bytes, stream), size_bytes, stream);
}

template class FailureAdaptor<Allocator>;
template class FailureAdaptor<DeviceAllocator>;

}  // namespace tenon
