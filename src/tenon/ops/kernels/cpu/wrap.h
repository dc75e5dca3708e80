// Integers that wrap around.
#pragma once

#include <type_traits>

namespace tenon::ops::cpu {

// What arithmetic is done in, so that integers wrap: unsigned. Other types are themselves.
template <typename T>
using Wrap = typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>,
                                         std::type_identity<T>>::type;

}  // namespace tenon::ops::cpu
