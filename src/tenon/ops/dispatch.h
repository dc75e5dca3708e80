// Operators, and how a call finds its kernel. A call adds O(arguments) to the kernel's work.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <climits>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tenon/base/error.h"
#include "tenon/tensor/defined.h"
#include "tenon/tensor/dim_labels.h"
#include "tenon/tensor/fallback.h"
#include "tenon/tensor/tensor.h"

namespace tenon::ops {

// Note [Dispatch]
//
// A call unites the key sets of its tensor arguments, adds the keys that the thread includes, and
// removes those it excludes. It runs the kernel of the highest key that has one.
//   - A device's key: a kernel for that device alone.
//   - No kernel for the device's key: the common kernel, which every operator of Tenon has. It
//     checks arguments, computes the result's shape and dtype, and allocates the result from the
//     current allocator. On the meta device it stops there. Otherwise it leaves the arithmetic to
//     the host's loops.
//     So each operator's shape rule is written once and serves all devices.
//   - kLabels is in tensors with names or symbolic sizes. Its kernel is the operator's label rule
//     (ops/labels.h) around the kernel below.
//   - kAutograd is in every tensor but inference ones. The autograd layer sets kernels for it,
//   which
//     record the call and call again with the key excluded.
//   - kSparse is in tensors of a sparse layout. Its kernels are asked before kAutograd's, which
//   follow the operators that they call on the values (ops/sparse.h).
//   - kTracer: for a program that wants to see every call; included for a thread by a guard.
// To add an operator: docs/extend/operator.md.
namespace detail {

struct ThreadKeys {
  DispatchKeySet excluded;
  DispatchKeySet included;
};
inline constinit thread_local ThreadKeys thread_keys;

template <typename T>
DispatchKeySet keys_of(const T&) {
  return {};
}
inline DispatchKeySet keys_of(const Tensor& tensor) {
  return tensor.defined() ? tensor.key_set() : DispatchKeySet();
}
inline DispatchKeySet keys_of(std::span<const Tensor> tensors) {
  DispatchKeySet keys;
  for (const Tensor& tensor : tensors) keys = keys | keys_of(tensor);
  return keys;
}

// One call of an operator on tensors with labels: the shapes it was given, and its result's labels.
// The rule gives those before anything is computed.
class LabelledCall {
 public:
  template <typename T>
  void add(const T&) {}
  void add(const Tensor& operand);
  void add(std::span<const Tensor> operands) {
    for (const Tensor& operand : operands) add(operand);
  }
  void set_result(Labels labels);
  // There is no rule: guards every symbol.
  void specialise();

  std::span<const SymSizes> shapes() const { return shapes_; }
  // Gives the labels to what the call returned.
  void label(const char* what, const Tensor& result, bool fresh) const;
  void label(const char* what, const std::pair<Tensor, Tensor>& results, bool fresh) const {
    label(what, results.first, fresh);
    label(what, results.second, fresh);
  }

 private:
  std::vector<SymSizes> shapes_;
  std::optional<Labels> result_;
};

}  // namespace detail

// Excludes and includes keys for the calls of this thread until the guard ends. Nests; a key that
// is both is excluded, so a kernel may exclude its own key and call on.
class KeyGuard {
 public:
  explicit KeyGuard(DispatchKeySet excluded, DispatchKeySet included = {})
      : previous_(detail::thread_keys) {
    detail::thread_keys.excluded = previous_.excluded | excluded;
    detail::thread_keys.included = previous_.included | included;
  }
  ~KeyGuard() { detail::thread_keys = previous_; }
  KeyGuard(const KeyGuard&) = delete;
  KeyGuard& operator=(const KeyGuard&) = delete;

 private:
  const detail::ThreadKeys previous_;
};

namespace detail {

// Whether an argument is, or has, an undefined tensor among the first `required`, counted down.
template <typename T>
bool lacks_tensor(int& required, const T& argument) {
  if constexpr (std::is_same_v<T, Tensor>)
    return required-- > 0 && !argument.defined();
  else if constexpr (std::is_same_v<T, std::span<const Tensor>>)
    return !std::all_of(argument.begin(), argument.end(),
                        [](const Tensor& t) { return t.defined(); });
  else
    return false;
}

}  // namespace detail

// See the specialisation.
template <typename Signature>
class Operator;

// One operator: a name, the common kernel, and a table of kernels by key. Constant-initialised, so
// it can be called from static initialisers. One object serves the whole program. Calling is
// thread-safe. A kernel may be set at any time, and calls that begin later find it.
template <typename Result, typename... Arguments>
class Operator<Result(Arguments...)> {
 public:
  // Has the operator's own signature.
  using Kernel = Result (*)(Arguments...);
  // The result's labels from those of the arguments: ops/labels.h. Throws InvalidArgument where
  // names do not go together.
  using LabelRule = Labels (*)(const char* name, Arguments...);

  // The name must outlive the operator. Without a rule, results have no labels and every symbol is
  // guarded. The first `required` tensors among the arguments must be defined; others are optional.
  constexpr Operator(const char* name, Kernel common, LabelRule rule = nullptr,
                     int required = INT_MAX)
      : name_(name), common_(common), rule_(rule), required_(required) {}
  Operator(const Operator&) = delete;
  Operator& operator=(const Operator&) = delete;

  // As errors have it.
  const char* name() const { return name_; }

  // Runs the kernel of the highest key, as Note [Dispatch] says. Throws what the kernel throws, and
  // InvalidArgument where a required tensor is undefined.
  Result operator()(Arguments... arguments) const {
    int required = required_;
    if ((false || ... || detail::lacks_tensor(required, arguments))) [[unlikely]]
      tenon::detail::refuse_undefined(name_);
    const DispatchKeySet keys = (DispatchKeySet() | ... | detail::keys_of(arguments));
    const detail::ThreadKeys& thread = detail::thread_keys;
    const std::uint32_t usable = ((keys | thread.included) - thread.excluded).bits() &
                                 present_.load(std::memory_order_acquire);
    if (usable == 0) [[likely]]
      return common_(static_cast<Arguments>(arguments)...);
    const int highest = 31 - std::countl_zero(usable);
    if (highest == static_cast<int>(DispatchKey::kLabels)) [[unlikely]]
      return call_labelled(usable, static_cast<Arguments>(arguments)...);
    return kernel_or_common(highest)(static_cast<Arguments>(arguments)...);
  }

  // Null takes a kernel away. Requires: not kLabels, which is the rule's.
  void set_kernel(DispatchKey key, Kernel function) {
    kernels_[static_cast<std::size_t>(key)].store(function, std::memory_order_release);
    const std::uint32_t bit = DispatchKeySet(key).bits();
    if (function != nullptr)
      present_.fetch_or(bit, std::memory_order_release);
    else
      present_.fetch_and(~bit, std::memory_order_release);
  }
  // The kernel of a key, or null. Thread-safe, as is set_kernel.
  Kernel kernel(DispatchKey key) const {
    return kernels_[static_cast<std::size_t>(key)].load(std::memory_order_acquire);
  }

 private:
  static constexpr std::uint32_t kLabelsBit = DispatchKeySet(DispatchKey::kLabels).bits();

  Kernel kernel_or_common(int key) const {
    const Kernel found = kernel(static_cast<DispatchKey>(key));
    return found != nullptr ? found : common_;  // taken away just now
  }

  [[gnu::noinline]] Result call_labelled(std::uint32_t usable, Arguments... arguments) const {
    detail::LabelledCall call;
    (call.add(arguments), ...);
    if (rule_ != nullptr)
      call.set_result(rule_(name_, static_cast<Arguments>(arguments)...));
    else
      call.specialise();
    const std::uint32_t below = usable & ~kLabelsBit;
    Result result = [&]() -> Result {
      const NoNames inside;
      const KnownShapes known(call.shapes());
      return kernel_or_common(below == 0 ? static_cast<int>(DispatchKey::kLabels)
                                         : 31 - std::countl_zero(below))(
          static_cast<Arguments>(arguments)...);
    }();
    call.label(name_, result, !std::is_reference_v<Result>);
    return result;
  }

  const char* const name_;
  const Kernel common_;
  const LabelRule rule_;
  const int required_;
  std::atomic<std::uint32_t> present_{kLabelsBit};
  std::array<std::atomic<Kernel>, kDispatchKeyCount> kernels_{};
};

namespace detail {

// What a common kernel does: arithmetic, or moves of elements alone.
enum class Work : std::uint8_t { kComputes, kMoves };
Device device_of_all(const char* what, std::span<const Tensor* const> tensors, Work work);

inline Device device_of_all_or_host(const char* what, std::span<const Tensor* const> tensors,
                                    Work work) {
  bool all_on_host = true;
  for (const Tensor* tensor : tensors)
    all_on_host &= !tensor->defined() ||
                   (tensor->impl()->is_computable() && tensor->device() == Device{});
  return all_on_host ? Device{} : device_of_all(what, tensors, work);
}
inline std::span<const Tensor* const> as_span(std::initializer_list<const Tensor*> tensors) {
  return {tensors.begin(), tensors.size()};
}

}  // namespace detail

// Throws InvalidArgument, naming the operator, unless all tensors are strided, of dtypes with
// arithmetic, and on one device (0-d ones on the host go with any). Common kernels must serve that
// device: the host, meta, or one for which the host computes (Note [Fallback]). Undefined ones are
// skipped. Returns that device; keep the turn until the arithmetic is done.
inline HostTurn common_device(const char* what, std::span<const Tensor* const> tensors) {
  return HostTurn(what, detail::device_of_all_or_host(what, tensors, detail::Work::kComputes));
}
// The same, for a list in braces.
inline HostTurn common_device(const char* what, std::initializer_list<const Tensor*> tensors) {
  return common_device(what, detail::as_span(tensors));
}
// The same for a kernel that offers its arithmetic to the device first: it notes by itself what the
// host computes (tensor/fallback.h).
inline Device device_to_offer(const char* what, std::initializer_list<const Tensor*> tensors) {
  return detail::device_of_all_or_host(what, detail::as_span(tensors), detail::Work::kComputes);
}
// The same for an operator that moves elements and computes nothing: dtypes for storage, too, but
// for quantised ones. It notes what the host moves, as above.
inline Device common_device_to_move(const char* what, std::span<const Tensor* const> tensors) {
  return detail::device_of_all(what, tensors, detail::Work::kMoves);
}

}  // namespace tenon::ops
