#include "tenon/lab/ranks/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "tenon/base/byte_size.h"
#include "tenon/lab/odd_values.h"

namespace tenon {
namespace {

// Two ranks belong together when one holds at least this share of its peak for kinds of blocks that
// the other holds too. Ranks of one program reach 0.9; stages of a pipeline have layers in common.
constexpr double kCommonShare = 0.3;
// What is named as a difference: at least this share of the rank's peak.
constexpr double kWorthNaming = 0.02;
constexpr std::size_t kMostCauses = 40;

std::uint64_t peak_of(const Rank& rank) { return rank.needed_bytes; }

// The share of a's bytes that are of a kind that b holds too.
double common_share(const Rank& a, const Rank& b) {
  std::uint64_t all = 0;
  std::uint64_t common = 0;
  auto other = b.signature.begin();
  for (const SignatureEntry& entry : a.signature) {
    all += entry.bytes;
    while (other != b.signature.end() && other->key < entry.key) ++other;
    if (other != b.signature.end() && other->key == entry.key) common += entry.bytes;
  }
  return all == 0 ? 0 : static_cast<double>(common) / static_cast<double>(all);
}

// The largest set of ranks that are connected by common memory; of equal ones the first.
std::vector<std::size_t> largest_group(const std::vector<Rank>& ranks) {
  std::vector<std::size_t> group(ranks.size());
  std::iota(group.begin(), group.end(), 0);
  const auto root = [&](std::size_t i) {
    while (group[i] != i) i = group[i] = group[group[i]];
    return i;
  };
  for (std::size_t a = 0; a < ranks.size(); ++a)
    for (std::size_t b = a + 1; b < ranks.size(); ++b)
      if (root(a) != root(b) && std::max(common_share(ranks[a], ranks[b]),
                                         common_share(ranks[b], ranks[a])) >= kCommonShare)
        group[std::max(root(a), root(b))] = std::min(root(a), root(b));
  std::map<std::size_t, std::vector<std::size_t>> members;
  for (std::size_t i = 0; i < ranks.size(); ++i) members[root(i)].push_back(i);
  return std::max_element(
             members.begin(), members.end(),
             [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); })
      ->second;
}

using Bytes = std::map<std::string, std::uint64_t>;

Bytes categories_of(const Rank& rank) {
  Bytes bytes;
  for (const CategoryGroup& group : rank.device.at_peak.by_category)
    bytes[group.name] += group.bytes;
  return bytes;
}
Bytes sites_of(const Rank& rank) {
  Bytes bytes;
  for (const LiveGroup& group : rank.device.at_peak.by_site) bytes[group.name] += group.bytes;
  return bytes;
}

std::uint64_t of(const Bytes& bytes, const std::string& name) {
  const auto found = bytes.find(name);
  return found == bytes.end() ? 0 : found->second;
}

std::uint64_t middle_of(std::vector<std::uint64_t> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::vector<CommonCause> common_causes(const std::vector<Bytes>& by_rank) {
  std::map<std::string, std::vector<std::uint64_t>> all;
  for (const Bytes& rank : by_rank)
    for (const auto& [name, bytes] : rank) all[name].push_back(bytes);
  std::vector<CommonCause> causes;
  for (const auto& [name, bytes] : all)
    causes.push_back({name, bytes.size(), *std::min_element(bytes.begin(), bytes.end()),
                      middle_of(bytes), *std::max_element(bytes.begin(), bytes.end())});
  // What many ranks hold counts for each of them.
  std::stable_sort(causes.begin(), causes.end(), [](const CommonCause& a, const CommonCause& b) {
    return static_cast<double>(a.median_bytes) * static_cast<double>(a.ranks) >
           static_cast<double>(b.median_bytes) * static_cast<double>(b.ranks);
  });
  if (causes.size() > kMostCauses) causes.resize(kMostCauses);
  return causes;
}

struct Difference {
  std::string name;
  std::int64_t bytes = 0;
};

// Where two ranks differ most.
Difference largest_difference(const Bytes& one, const Bytes& other) {
  Bytes names = one;
  names.insert(other.begin(), other.end());
  Difference most;
  for (const auto& [name, ignored] : names) {
    const auto bytes =
        static_cast<std::int64_t>(of(one, name)) - static_cast<std::int64_t>(of(other, name));
    if (std::abs(bytes) > std::abs(most.bytes)) most = {name, bytes};
  }
  return most;
}

std::string difference(const char* what, const Difference& most) {
  return fmt::format("{} {}: {} {}", what, most.name,
                     format_byte_size(static_cast<std::uint64_t>(std::abs(most.bytes))),
                     most.bytes > 0 ? "more" : "less");
}

class Comparer {
 public:
  explicit Comparer(const std::vector<Rank>& ranks) : ranks_(ranks) {
    out_.compared = largest_group(ranks);
    for (const std::size_t i : out_.compared) {
      categories_.push_back(categories_of(ranks[i]));
      sites_.push_back(sites_of(ranks[i]));
    }
  }

  RankComparison compare() {
    name_apart();
    order_by_peak();
    out_.categories = common_causes(categories_);
    out_.sites = common_causes(sites_);
    find_odd();
    say();
    return std::move(out_);
  }

 private:
  bool is_compared(std::size_t rank) const {
    return std::find(out_.compared.begin(), out_.compared.end(), rank) != out_.compared.end();
  }

  void name_apart() {
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (is_compared(i)) continue;
      double most = 0;
      for (const std::size_t other : out_.compared)
        most = std::max(most, common_share(ranks_[i], ranks_[other]));
      out_.apart.push_back(fmt::format(
          "{} does not belong to the others: {:.0f} % of its peak is at {} that they have too. It "
          "is left out of the comparison.",
          ranks_[i].name, 100 * most, ranks_[i].has_stacks ? "call sites" : "block sizes"));
    }
  }

  void order_by_peak() {
    std::vector<std::size_t> order = out_.compared;
    const auto needs_less = [&](std::size_t a, std::size_t b) {
      return peak_of(ranks_[a]) < peak_of(ranks_[b]);
    };
    std::stable_sort(order.begin(), order.end(), needs_less);
    out_.lowest = order.front();
    out_.highest = order.back();
    out_.median = order[order.size() / 2];
    for (std::size_t i = 0; i < ranks_.size(); ++i)
      if (ranks_[i].failed()) out_.failed.push_back(i);
    out_.first =
        out_.failed.empty()
            ? out_.highest
            : *std::max_element(out_.failed.begin(), out_.failed.end(), needs_less);
  }

  void find_odd() {
    if (out_.compared.size() < 3) return;
    std::vector<double> peaks;
    for (const std::size_t i : out_.compared)
      peaks.push_back(static_cast<double>(peak_of(ranks_[i])));
    const OddRule rule(peaks);
    std::size_t typical = 0;  // among those compared
    while (out_.compared[typical] != out_.median) ++typical;
    for (std::size_t at = 0; at < out_.compared.size(); ++at) {
      const std::size_t i = out_.compared[at];
      OddRank odd{i, {}};
      const double more = peaks[at] - rule.median;
      if (rule.is_odd(peaks[at])) {
        odd.why.push_back(fmt::format("its peak is {:.1f} % {} than the median's",
                                      100 * std::abs(more) / rule.median,
                                      more > 0 ? "higher" : "lower"));
        if (const std::uint64_t live = ranks_[i].device.at_peak.bytes; peak_of(ranks_[i]) > live)
          odd.why.push_back(fmt::format("{} of it are for the request that failed",
                                        format_byte_size(peak_of(ranks_[i]) - live)));
        say_difference(at, typical, odd);
      }
      say_alone(at, odd);
      if (!odd.why.empty()) out_.odd.push_back(std::move(odd));
    }
  }

  void say_difference(std::size_t at, std::size_t typical, OddRank& odd) const {
    const Difference category = largest_difference(categories_[at], categories_[typical]);
    if (category.bytes != 0)
      odd.why.push_back(difference("largest difference by category,", category));
    const Difference site = largest_difference(sites_[at], sites_[typical]);
    if (site.bytes != 0) odd.why.push_back(difference("by call site,", site));
  }

  // Call sites that no other rank has.
  void say_alone(std::size_t at, OddRank& odd) const {
    for (const auto& [name, bytes] : sites_[at]) {
      if (static_cast<double>(bytes) <
          kWorthNaming * static_cast<double>(peak_of(ranks_[out_.compared[at]])))
        continue;
      std::size_t others = 0;
      for (std::size_t other = 0; other < sites_.size(); ++other)
        if (other != at && sites_[other].count(name) > 0) ++others;
      if (others == 0)
        odd.why.push_back(fmt::format("it alone holds {} for {}", format_byte_size(bytes), name));
    }
  }

  // How many ranks failed, and which.
  void say_failed() {
    if (out_.failed.empty()) return;
    constexpr std::size_t kNamed = 8;
    std::string names;
    for (std::size_t i = 0; i < std::min(out_.failed.size(), kNamed); ++i)
      names += (i == 0 ? "" : ", ") + ranks_[out_.failed[i]].name;
    if (out_.failed.size() > kNamed) names += ", ...";
    const bool one = out_.failed.size() == 1;
    out_.sentences.push_back(fmt::format(
        "An allocation failed on {} of {} ranks: {}. {} the request that failed.",
        out_.failed.size(), ranks_.size(), names,
        one ? "Its live peak counts" : "Their live peaks count"));
  }

  void say() {
    say_failed();
    const std::size_t n = out_.compared.size();
    const Rank& high = ranks_[out_.highest];
    const Rank& low = ranks_[out_.lowest];
    if (n < 2) return;
    const double imbalance = out_.imbalance(ranks_);
    out_.sentences.push_back(
        fmt::format("{} ranks: the live peak is {} on {} and {} on {}, {} in the median; the "
                    "highest is {:.1f} % "
                    "above the median{}.",
                    n, format_byte_size(peak_of(high)), high.name, format_byte_size(peak_of(low)),
                    low.name, format_byte_size(peak_of(ranks_[out_.median])), 100 * imbalance,
                    imbalance < OddRule::kShare ? ", so the ranks are even" : ""));
    for (const OddRank& odd : out_.odd) {
      std::string why;
      for (const std::string& reason : odd.why) why += (why.empty() ? "" : "; ") + reason;
      out_.sentences.push_back(
          fmt::format("{} is not like the others: {}.", ranks_[odd.rank].name, why));
      if (out_.sentences.size() >= 8) break;
    }
    if (!out_.sites.empty() && out_.sites[0].ranks > 1)
      out_.sentences.push_back(fmt::format("Most memory in common: {} on {} of {} ranks, for {}.",
                                           format_byte_size(out_.sites[0].median_bytes),
                                           out_.sites[0].ranks, n, out_.sites[0].name));
  }

  const std::vector<Rank>& ranks_;
  RankComparison out_;
  std::vector<Bytes> categories_;  // by place in `compared`
  std::vector<Bytes> sites_;
};

}  // namespace

double RankComparison::imbalance(const std::vector<Rank>& ranks) const {
  const auto median_bytes = static_cast<double>(std::max<std::uint64_t>(peak_of(ranks[median]), 1));
  return static_cast<double>(peak_of(ranks[highest])) / median_bytes - 1;
}

RankComparison compare_ranks(const std::vector<Rank>& ranks) { return Comparer(ranks).compare(); }

}  // namespace tenon
