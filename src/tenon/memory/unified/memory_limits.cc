#include "tenon/memory/unified/memory_limits.h"

#include <fmt/format.h>

#include <algorithm>

#include "tenon/base/byte_size.h"
#include "tenon/base/error.h"

namespace tenon::unified {
namespace {

// MLX's default: one and a half working sets, but where host and device share one memory some of it
// is left to the host.
std::uint64_t default_memory_limit(const Backend& backend) {
  const std::uint64_t recommended = backend.limits().recommended_working_set_bytes;
  const std::uint64_t total = backend.memory().total_bytes;
  const std::uint64_t usable = backend.limits().unified ? total - total / 20 : total;
  return recommended == 0 ? usable : std::min(recommended + recommended / 2, usable);
}

}  // namespace

MemoryLimits::MemoryLimits(const Backend& backend, std::uint64_t policy_limit_bytes)
    : policy_limit_(policy_limit_bytes == 0 ? kNoLimit : policy_limit_bytes),
      watermarks_(backend.limits().recommended_working_set_bytes),
      memory_limit_(default_memory_limit(backend)) {}

std::uint64_t MemoryLimits::set_wired_limit(std::uint64_t bytes) {
  const std::uint64_t most = watermarks_.recommended_bytes();
  if (bytes > most)
    raise<InvalidArgument>("wired limit {} exceeds the recommended working set {}",
                           format_byte_size(bytes), format_byte_size(most));
  return wired_limit_.exchange(bytes);
}

std::uint64_t MemoryLimits::soft_limit_bytes() const {
  return std::max(std::min(watermarks_.low_limit_bytes(), memory_limit()), wired_limit());
}

std::uint64_t MemoryLimits::hard_limit_bytes() const {
  return std::min(watermarks_.high_limit_bytes(), policy_limit_);
}

std::string MemoryLimits::advice(std::uint64_t wanted_bytes, std::uint64_t held_bytes) const {
  const std::uint64_t hard = hard_limit_bytes();
  const bool fits = hard >= held_bytes && wanted_bytes <= hard - held_bytes;
  if (hard == kNoLimit || fits)
    return "the device has no more memory; free tensors or use smaller ones";
  if (hard == policy_limit_) return "free tensors or raise the allocator's limit";
  return fmt::format(
      "free tensors, or raise the high watermark ratio ({} now, 0 turns it off)",
      watermarks_.high_ratio());
}

}  // namespace tenon::unified
