// Structures of programs that were built with an earlier header of this soname: those are shorter,
// since a structure grows only at its end.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>

#include "status.h"
#include "tenon/tenon.h"

namespace tenon::c {

// The sizes that earlier headers gave T: add the present one before T grows. A new field begins
// behind the earlier structure's padding, which holds anything.
template <typename T>
inline constexpr std::array<std::size_t, 0> kEarlierBytes{};
template <>
inline constexpr std::array kEarlierBytes<tenon_replay_options>{
    offsetof(tenon_replay_options, plan_file)};
template <>
inline constexpr std::array kEarlierBytes<tenon_trace_summary>{
    offsetof(tenon_trace_summary, traced_peak_bytes)};

template <typename T>
void check_structure(const T& given, const char* name) {
  for (const std::size_t earlier : kEarlierBytes<T>)
    if (given.struct_bytes == earlier) return;
  check_struct_bytes(given.struct_bytes, sizeof(T), name);
}

// What the caller gave; fields that its header does not have are 0. Throws std::invalid_argument for
// a size that no version has.
template <typename T>
T complete(const T& given, const char* name) {
  check_structure(given, name);
  T whole{};
  std::memcpy(static_cast<void*>(&whole), static_cast<const void*>(&given), given.struct_bytes);
  return whole;
}

// The same where null stands for a structure of zeros.
template <typename T>
T complete_or_zero(const T* given, const char* name) {
  return given == nullptr ? T{} : complete(*given, name);
}

// Writes the fields that the caller's header has. Requires: check_structure(out).
template <typename T>
void hand_over(T made, T& out) {
  made.struct_bytes = out.struct_bytes;
  std::memcpy(static_cast<void*>(&out), static_cast<const void*>(&made), out.struct_bytes);
}

}  // namespace tenon::c
