// What functions that are no operators do with a default-constructed tensor. Thread-safe. O(1).
#pragma once

#include "tenon/tensor/tensor.h"

namespace tenon::detail {

// Throws InvalidArgument: the function `what` was given an undefined tensor.
[[noreturn]] void refuse_undefined(const char* what);

// The same unless all are defined.
template <typename... Tensors>
inline void check_defined(const char* what, const Tensors&... tensors) {
  if (!(tensors.defined() && ...)) [[unlikely]]
    refuse_undefined(what);
}

}  // namespace tenon::detail
