#include "tenon/lab/explain/growth.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>

#include "tenon/base/hash.h"

namespace tenon {
namespace {

constexpr std::size_t kFewest = 4;    // iterations below which nothing is said
constexpr std::size_t kMost = 100;    // boundaries looked at, evenly chosen

// Ends of the phase that comes most often.
std::vector<std::size_t> by_phase(const Trace& trace, std::string& found_by) {
  std::map<std::uint32_t, std::vector<std::size_t>> ends;
  for (const TraceMark& mark : trace.marks)
    if (mark.kind == MarkKind::kPhaseEnd) ends[mark.text].push_back(mark.event);
  const std::vector<std::size_t>* best = nullptr;
  for (const auto& [text, places] : ends)
    if (places.size() >= kFewest && (best == nullptr || places.size() > best->size())) {
      best = &places;
      found_by = fmt::format("the ends of \"{}\"", trace.sites->text(text));
    }
  return best == nullptr ? std::vector<std::size_t>() : *best;
}

// How uneven the distances are: standard deviation over mean.
double unevenness(const std::vector<std::size_t>& places) {
  double sum = 0;
  double squares = 0;
  for (std::size_t i = 1; i < places.size(); ++i) {
    const auto distance = static_cast<double>(places[i] - places[i - 1]);
    sum += distance;
    squares += distance * distance;
  }
  const auto count = static_cast<double>(places.size() - 1);
  const double mean = sum / count;
  return std::sqrt(std::max(0.0, squares / count - mean * mean)) / mean;
}

// Allocations that recur evenly and fill the trace; of those the rarest, since an iteration may
// contain several alike.
std::vector<std::size_t> by_recurrence(const Trace& trace, std::string& found_by) {
  constexpr double kEven = 0.25;
  std::unordered_map<std::uint64_t, std::vector<std::size_t>> places;
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const TraceEvent& event = trace.events[i];
    if (event.op != TraceOp::kAlloc) continue;
    RunningHash key;
    key.add(event.size_bytes);
    key.add(event.stream);
    key.add(event.site);
    places[key.value()].push_back(i);
  }
  const std::vector<std::size_t>* best = nullptr;
  for (const auto& [key, all] : places) {
    if (all.size() < kFewest) continue;
    if (all.back() - all.front() < trace.events.size() / 2) continue;
    if (unevenness(all) > kEven) continue;
    const auto rank = [](const std::vector<std::size_t>& of) {
      return std::pair(of.size(), of.front());
    };
    if (best == nullptr || rank(all) < rank(*best)) best = &all;
  }
  if (best == nullptr) return {};
  const TraceEvent& event = trace.events[best->front()];
  found_by = fmt::format("an allocation of {} bytes that recurs evenly", event.size_bytes);
  return *best;
}

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

}  // namespace

Growth growth(const TraceFacts& facts) {
  const Trace& trace = facts.trace;
  Growth result;
  result.boundaries = by_phase(trace, result.found_by);
  if (result.boundaries.empty()) result.boundaries = by_recurrence(trace, result.found_by);
  if (result.boundaries.empty()) return result;
  const std::size_t iterations = result.boundaries.size();
  result.boundaries.erase(result.boundaries.begin());
  thin_out(result.boundaries);

  const std::size_t count = result.boundaries.size();
  std::vector<Series> sites(facts.sites.size());
  result.live_bytes.resize(count);
  std::vector<std::uint64_t> bytes(sites.size());
  std::vector<std::uint64_t> blocks(sites.size());
  std::size_t event = 0;
  for (std::size_t i = 0; i < count; ++i) {
    for (; event < result.boundaries[i]; ++event) {
      const TraceEvent& now = trace.events[event];
      const std::uint32_t group = facts.sites.group(facts.lives[now.block].site);
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
      sites[group].bytes.push_back(bytes[group]);
      sites[group].blocks.push_back(blocks[group]);
    }
  }
  for (std::uint32_t group = 0; group < sites.size(); ++group) {
    const Series& series = sites[group];
    if (!grows(series)) continue;
    result.suspects.push_back(
        {facts.sites.name(group), series.bytes.front(), series.bytes.back(),
         series.blocks.front(), series.blocks.back(),
         static_cast<double>(series.bytes.back() - series.bytes.front()) /
             static_cast<double>(std::max<std::size_t>(1, iterations - 2))});
  }
  std::stable_sort(result.suspects.begin(), result.suspects.end(),
                   [](const GrowingSite& a, const GrowingSite& b) {
                     return a.last_bytes - a.first_bytes > b.last_bytes - b.first_bytes;
                   });
  return result;
}

}  // namespace tenon
