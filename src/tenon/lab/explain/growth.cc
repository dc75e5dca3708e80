#include "tenon/lab/explain/growth.h"

#include <algorithm>
#include <set>
#include <utility>

#include "tenon/lab/planning/iterations_in_trace.h"

namespace tenon {
namespace {

constexpr std::size_t kMost = 100;    // boundaries looked at, evenly chosen

void thin_out(std::vector<std::size_t>& boundaries) {
  if (boundaries.size() <= kMost) return;
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < kMost; ++i)
    chosen.push_back(boundaries[i * (boundaries.size() - 1) / (kMost - 1)]);
  boundaries = std::move(chosen);
}

struct Series {
  std::vector<std::uint64_t> bytes;  // by boundary
  std::vector<std::uint64_t> blocks;
};

bool grows(const Series& series) {
  std::size_t rises = 0;
  for (std::size_t i = 1; i < series.bytes.size(); ++i) {
    if (series.bytes[i] < series.bytes[i - 1]) return false;
    rises += series.bytes[i] > series.bytes[i - 1] ? 1 : 0;
  }
  return rises >= 3 && 2 * rises >= series.bytes.size() - 1;
}

// By group: bytes of early blocks that are live at the end of the last iteration, of sizes that the
// iterations after the first boundary leave at the same call site.
std::vector<std::uint64_t> older_bytes(const Trace& trace, const std::vector<Lifetime>& lives,
                                       const CallSites& sites,
                                       const std::vector<std::size_t>& boundaries) {
  std::vector<std::uint64_t> older(sites.size());
  std::set<std::pair<std::uint32_t, std::uint64_t>> left;  // group, size of a block
  for (std::uint32_t block = trace.blocks; block-- > 0;) {
    const Lifetime& life = lives[block];
    if (!life.live_after(boundaries.back())) continue;
    const std::pair kind(sites.group(life.site), life.size_bytes);
    if (block < trace.early_blocks) {
      if (left.contains(kind)) older[kind.first] += life.size_bytes;
    } else if (life.alloc >= boundaries.front()) {
      left.insert(kind);
    }
  }
  return older;
}

}  // namespace

bool matters(const Growth& growth, std::uint64_t bytes) {
  std::uint64_t grown = 0;
  for (const GrowingSite& site : growth.suspects) grown += site.grown_bytes();
  return grown > 0 && grown * 10 >= bytes;
}

Growth growth(const Trace& trace, const std::vector<Lifetime>& lives, const CallSites& sites) {
  Growth result;
  TraceIterations found = find_iterations_in(trace);
  result.found_by = std::move(found.found_by);
  result.iterations = found.ends.size();
  if (result.iterations < Growth::kFewest) return result;
  const std::size_t iterations = result.iterations;
  result.boundaries = std::move(found.ends);
  result.boundaries.erase(result.boundaries.begin());
  thin_out(result.boundaries);

  const std::size_t count = result.boundaries.size();
  std::vector<Series> series_of(sites.size());
  result.live_bytes.resize(count);
  std::vector<std::uint64_t> bytes(sites.size());
  std::vector<std::uint64_t> blocks(sites.size());
  std::size_t event = 0;
  for (std::size_t i = 0; i < count; ++i) {
    for (; event < result.boundaries[i]; ++event) {
      const TraceEvent& now = trace.events[event];
      const std::uint32_t group = sites.group(lives[now.block].site);
      if (now.op == TraceOp::kAlloc) {
        bytes[group] += now.size_bytes;
        ++blocks[group];
        result.live_bytes[i] += now.size_bytes;
      } else if (now.op == TraceOp::kFreeCompleted) {
        bytes[group] -= now.size_bytes;
        --blocks[group];
        result.live_bytes[i] -= now.size_bytes;
      }
    }
    if (i + 1 < count) result.live_bytes[i + 1] = result.live_bytes[i];
    for (std::size_t group = 0; group < sites.size(); ++group) {
      series_of[group].bytes.push_back(bytes[group]);
      series_of[group].blocks.push_back(blocks[group]);
    }
  }
  const std::vector<std::uint64_t> older =
      older_bytes(trace, lives, sites, result.boundaries);
  for (std::uint32_t group = 0; group < sites.size(); ++group) {
    const Series& series = series_of[group];
    if (!grows(series)) continue;
    result.suspects.push_back(
        {sites.name(group), series.bytes.front(), series.bytes.back(), older[group],
         series.blocks.front(), series.blocks.back(),
         static_cast<double>(series.bytes.back() - series.bytes.front()) /
             static_cast<double>(std::max<std::size_t>(1, iterations - 2))});
  }
  std::stable_sort(result.suspects.begin(), result.suspects.end(),
                   [](const GrowingSite& a, const GrowingSite& b) {
                     return a.grown_bytes() > b.grown_bytes();
                   });
  return result;
}

}  // namespace tenon
