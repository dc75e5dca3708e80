#include "tenon/lab/ranks/rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <set>

#include "tenon/base/hash.h"
#include "tenon/lab/failed_requests.h"

namespace tenon {
namespace {

bool has_stacks(const Trace& trace) {
  return std::any_of(trace.events.begin(), trace.events.end(), [&](const TraceEvent& event) {
    return event.op == TraceOp::kAlloc && trace.sites->site(event.site).stack != 0;
  });
}

std::vector<SignatureEntry> signature_of(const TraceFacts& facts, const DeviceExplanation& device,
                                         bool by_site) {
  std::map<std::uint64_t, std::uint64_t> bytes;
  for (std::uint32_t block = 0; block < facts.trace.blocks; ++block) {
    const Lifetime& life = facts.lives[block];
    if (!life.live_after(device.live_peak.events)) continue;
    const std::uint32_t group = facts.sites.group(life.site);
    if (by_site && group == 0) continue;  // blocks without a stack say nothing
    bytes[by_site ? hash_of_text(facts.sites.name(group)) : life.size_bytes] += life.size_bytes;
  }
  std::vector<SignatureEntry> signature;
  for (const auto& [key, sum] : bytes) signature.push_back({key, sum});
  return signature;
}

// The text around numbers, and the numbers: "rank_12.pickle" is {"rank_", ".pickle"} and {12}.
struct Numbered {
  std::vector<std::string> texts;
  std::vector<std::string> numbers;
};

Numbered numbers_in(const std::string& path) {
  Numbered out{{""}, {}};
  for (std::size_t i = 0; i < path.size();) {
    if (!std::isdigit(static_cast<unsigned char>(path[i]))) {
      out.texts.back() += path[i++];
      continue;
    }
    std::size_t end = i;
    while (end < path.size() && std::isdigit(static_cast<unsigned char>(path[end]))) ++end;
    out.numbers.push_back(path.substr(i, end - i));
    out.texts.emplace_back();
    i = end;
  }
  return out;
}

// Of each path the number in which they differ, all different; none where there is no such number.
std::vector<std::uint64_t> rank_numbers(const std::vector<Rank>& ranks) {
  std::vector<Numbered> paths;
  for (const Rank& rank : ranks) paths.push_back(numbers_in(rank.path));
  std::optional<std::size_t> place;
  for (const Numbered& path : paths) {
    if (path.texts != paths[0].texts) return {};
    for (std::size_t i = 0; i < path.numbers.size(); ++i) {
      if (path.numbers[i] == paths[0].numbers[i]) continue;
      if (place && *place != i) return {};
      place = i;
    }
  }
  if (!place) return {};
  std::vector<std::uint64_t> numbers;
  for (const Numbered& path : paths) {
    if (path.numbers[*place].size() > 9) return {};
    numbers.push_back(std::stoull(path.numbers[*place]));
  }
  if (std::set(numbers.begin(), numbers.end()).size() != numbers.size()) return {};
  return numbers;
}

std::string file_name(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

}  // namespace

std::vector<Rank> ranks_of(const Snapshot& snapshot, const std::string& path,
                           const ExplainOptions& options) {
  std::vector<Rank> ranks;
  for (const Trace& trace : snapshot.traces) {
    const TraceFacts facts(trace);
    Rank rank;
    rank.path = path;
    rank.name = snapshot.traces.size() == 1
                    ? file_name(path)
                    : fmt::format("{}, device {}", file_name(path), trace.device);
    rank.device = explain_device(facts, snapshot, options);
    rank.needed_bytes = rank.device.at_peak.bytes;
    if (rank.failed())
      rank.needed_bytes =
          std::max(rank.needed_bytes, with_failed_requests(trace).live_peak_bytes());
    rank.picture = memory_picture(facts);
    rank.has_stacks = has_stacks(trace);
    rank.signature = signature_of(facts, rank.device, rank.has_stacks);
    rank.start_us = trace.events.empty() ? 0 : trace.events.front().time_us;
    ranks.push_back(std::move(rank));
  }
  return ranks;
}

void name_ranks(std::vector<Rank>& ranks) {
  if (ranks.size() < 2) return;
  const std::vector<std::uint64_t> numbers = rank_numbers(ranks);
  if (numbers.empty()) {
    // Files of one name in different folders need the folder too.
    std::map<std::string, int> times;
    for (const Rank& rank : ranks) ++times[rank.name];
    for (Rank& rank : ranks)
      if (times[rank.name] > 1) rank.name = rank.path;
    return;
  }
  std::vector<std::size_t> order(ranks.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return numbers[a] < numbers[b]; });
  std::vector<Rank> sorted;
  for (const std::size_t i : order) {
    sorted.push_back(std::move(ranks[i]));
    sorted.back().name = fmt::format("rank {}", numbers[i]);
  }
  ranks = std::move(sorted);
}

}  // namespace tenon
