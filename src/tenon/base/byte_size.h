// Byte sizes as people write them, both ways. Thread-safe. O(length of the text).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tenon {

inline constexpr std::uint64_t kKiB = 1024;
inline constexpr std::uint64_t kMiB = 1024 * kKiB;
inline constexpr std::uint64_t kGiB = 1024 * kMiB;
inline constexpr std::uint64_t kTiB = 1024 * kGiB;

// The units that errors name.
inline constexpr std::string_view kByteUnits =
    "B, KiB, MiB, GiB, TiB, or powers of 10: kB, MB, GB, TB";

// "4096", "512MB" (10^6), "12GiB" (2^30), "1.5 GiB", "64k" (2^10, as in dd and df -h). Case does
// not matter. Throws InvalidArgument on anything else, and where the value exceeds 2^63 - 1.
std::uint64_t parse_byte_size(std::string_view text);

// "12 GiB", "1.50 MiB", "512 B": the largest binary unit that leaves at least 1, two decimals
// unless the value is exact.
std::string format_byte_size(std::uint64_t size_bytes);

}  // namespace tenon
