// Any operator's out= form. Thread-safe unless a thread writes an argument. Complexity: the call's.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include "tenon/memory/registry.h"
#include "tenon/ops/dispatch.h"

namespace tenon::ops {
namespace detail {

// While it lives, requests of this thread for exactly as many bytes as `out` has are served by
// out's memory, one at a time. The allocator that was current before serves all others.
class OutputMemory {
 public:
  // With `may_lend` false it only remembers `out`.
  OutputMemory(const Tensor& out, bool may_lend);
  ~OutputMemory();
  OutputMemory(const OutputMemory&) = delete;
  OutputMemory& operator=(const OutputMemory&) = delete;

  // Ends the lending and sees to it that `out` has the values of `result`, which it checks.
  void finish(const char* what, const Tensor& result);

 private:
  class Lender;

  const Tensor& out_;
  std::unique_ptr<Lender> lender_;
  std::unique_ptr<AllocatorGuard> guard_;
};

// Whether out's memory is needed beside the result's: an argument shares it, or may have a tangent,
// of which the result gets one that lasts.
inline bool needs_memory(const Tensor& out, const Tensor& input) {
  if (!input.defined()) return false;
  const AutogradMetaInterface* const meta = input.impl()->autograd_meta();
  return (meta != nullptr && meta->may_have_tangent()) ||
         (input.layout() == Layout::kStrided && out.is_alias_of(input));
}
inline bool needs_memory(const Tensor& out, std::span<const Tensor> inputs) {
  for (const Tensor& input : inputs)
    if (needs_memory(out, input)) return true;
  return false;
}
template <typename T>
bool needs_memory(const Tensor&, const T&) {
  return false;
}

}  // namespace detail

// Computes op(arguments...) into `out` and returns it:
//
//   ops::into(out, ops::op::matmul, a, b);
//   ops::into(out, ops::op::softmax, scores, -1);
//
// `out` has the result's shape, dtype and device, or InvalidArgument says what they should be.
// Where `out` and the result are contiguous and no argument shares out's memory, the operator's
// kernel writes straight into it. Else the result is copied. Its version is bumped. After an error
// its values are unspecified. No gradient is recorded: throws InvalidArgument where one would be
// needed. Tangents of forward mode go along.
template <typename Result, typename... Parameters, typename... Arguments>
const Tensor& into(const Tensor& out, const Operator<Result(Parameters...)>& op,
                   Arguments&&... arguments) {
  static_assert(std::is_same_v<Result, Tensor>, "into() is for operators with one fresh result");
  tenon::detail::check_defined("into", out);
  const auto call = [&](Parameters... all) -> const Tensor& {
    detail::OutputMemory memory(out, !(false || ... || detail::needs_memory(out, all)));
    memory.finish(op.name(), op(static_cast<Parameters>(all)...));
    return out;
  };
  return call(std::forward<Arguments>(arguments)...);
}

}  // namespace tenon::ops
