// Numbers as launches take them. Private to the sources beside it.
#pragma once

#include <cstdint>

namespace tenon::vulkan {

inline constexpr std::int64_t kMostGroups = 65535;  // in a dimension, on every device

inline std::uint32_t groups_for(std::int64_t size, std::int64_t tile) {
  return static_cast<std::uint32_t>((size + tile - 1) / tile);
}
inline std::int32_t word(std::int64_t number) { return static_cast<std::int32_t>(number); }

}  // namespace tenon::vulkan
