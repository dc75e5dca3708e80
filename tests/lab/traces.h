// Traces that tests make by hand or at random.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tenon/base/random.h"
#include "tenon/trace/trace_builder.h"

namespace tenon::testing {

// A trace in short: alloc("a", ...) and free("a", ...).
class TraceMaker {
 public:
  explicit TraceMaker(std::string name = "made") : builder_(std::move(name)) {}

  TraceMaker& alloc(std::uint64_t id, std::int64_t time_us, std::uint64_t size_bytes,
                    std::uint64_t stream = 0) {
    builder_.alloc(id, time_us, size_bytes, stream);
    return *this;
  }
  TraceMaker& request(std::uint64_t id, std::int64_t time_us) {
    builder_.free(TraceOp::kFreeRequested, id, time_us);
    return *this;
  }
  TraceMaker& free(std::uint64_t id, std::int64_t time_us) {
    builder_.free(TraceOp::kFreeCompleted, id, time_us);
    return *this;
  }
  Trace make() { return builder_.finish(); }

 private:
  TraceBuilder builder_;
};

// Sizes from bytes to tens of MiB, `streams` streams, some blocks never freed.
inline Trace random_trace(std::uint64_t seed, int events, std::uint32_t streams = 1) {
  Random random(seed);
  TraceMaker maker("random" + std::to_string(seed));
  std::vector<std::uint64_t> live;
  for (int i = 0; i < events; ++i) {
    const auto id = static_cast<std::uint64_t>(i);
    if (live.size() > 40 || (!live.empty() && random.chance(0.45))) {
      const std::size_t at = random.below(live.size());
      maker.free(live[at], i * 10);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
    } else {
      maker.alloc(id, i * 10, random.below(std::uint64_t{1} << random.between(4, 25)),
                  random.below(streams));
      live.push_back(id);
    }
  }
  return maker.make();
}

}  // namespace tenon::testing
