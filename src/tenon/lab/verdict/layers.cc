#include "tenon/lab/verdict/layers.h"

#include <algorithm>
#include <string_view>

namespace tenon {
namespace {

constexpr std::uint32_t kLeastLayers = 4;
constexpr std::uint32_t kNearLines = 25;  // attention that is written out stands together

bool names(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The line of the program that a site stands for; none: frame 0.
struct Line {
  std::string_view function;
  std::string_view file;
  std::uint32_t number = 0;
};

Line line_of(const TraceFacts& facts, const CallSite& call) {
  const std::uint32_t frame = call.user != 0 ? call.user : call.library;
  if (frame == 0) return {};
  const SiteTable& table = *facts.trace.sites;
  const auto& at = table.frame(frame);
  return {table.text(at.function), table.text(at.file), at.line};
}

// One that the program calls: PyTorch's fused attention may have one inside, too.
bool is_softmax(const CallSite& call, const Line& line) {
  if (names(call.op, "scaled_dot_product_attention")) return false;
  return names(call.op, "softmax") || names(call.kernel, "softmax") ||
         names(line.function, "softmax");
}

// What stands between the products of queries and keys and of scores and values.
bool makes_scores(const CallSite& call) {
  constexpr std::string_view kOperators[] = {
      "softmax", "matmul", "bmm",  "einsum", "dropout", "masked_fill", "where", "exp", "amax",
      "div",     "mul",    "add",  "sub",    "to",      "_to_copy",    "float", "type"};
  return call.op.empty() || std::any_of(std::begin(kOperators), std::end(kOperators),
                                        [&](std::string_view name) {
                                          return names(call.op, name);
                                        });
}

// In one, two or four bytes for each number.
bool as_many_numbers(std::uint64_t a, std::uint64_t b) {
  return a == b || a == 2 * b || b == 2 * a || a == 4 * b || b == 4 * a;
}

}  // namespace

Layers find_layers(const TraceFacts& facts, std::size_t events) {
  Layers out;
  for (std::uint32_t block = 0; block < facts.trace.blocks; ++block) {
    const Lifetime& life = facts.lives[block];
    if (!life.live_after(events) || life.site == 0 ||
        facts.categories.blocks[block].category != Category::kActivations)
      continue;
    Layers::Site& site = out.sites[life.site];
    ++site.blocks;
    site.bytes += life.size_bytes;
  }
  std::erase_if(out.sites, [](const auto& entry) { return entry.second.blocks < kLeastLayers; });
  if (out.sites.empty()) return out;
  // Of equally frequent numbers, the larger bytes decide.
  std::map<std::uint32_t, std::pair<std::uint32_t, std::uint64_t>> depths;
  std::uint64_t largest = 0;
  for (const auto& [site, all] : out.sites) {
    ++depths[all.blocks].first;
    depths[all.blocks].second += all.bytes;
    largest = std::max(largest, all.each());
  }
  out.number = std::max_element(depths.begin(), depths.end(), [](const auto& a, const auto& b) {
                 return a.second < b.second;
               })->first;
  std::uint64_t input_bytes = ~std::uint64_t{0};
  for (const auto& [site, all] : out.sites) {
    if (all.blocks != out.number || all.each() * 8 < largest || all.each() >= input_bytes) continue;
    out.input = site;
    input_bytes = all.each();
  }
  return out;
}

std::set<std::uint32_t> find_scores(const TraceFacts& facts, const Layers& layers) {
  struct Softmax {
    Line line;
    std::uint64_t bytes = 0;
  };
  std::vector<Softmax> anchors;
  for (const auto& [site, all] : layers.sites) {
    const CallSite& call = facts.sites.call_site(site);
    const Line line = line_of(facts, call);
    if (is_softmax(call, line) && line.number != 0) anchors.push_back({line, all.each()});
  }
  std::set<std::uint32_t> out;
  for (const auto& [site, all] : layers.sites) {
    const CallSite& call = facts.sites.call_site(site);
    const Line line = line_of(facts, call);
    const std::uint64_t bytes = all.each();
    const bool beside = std::any_of(anchors.begin(), anchors.end(), [&](const Softmax& anchor) {
      if (!as_many_numbers(bytes, anchor.bytes)) return false;
      const std::uint32_t apart = std::max(line.number, anchor.line.number) -
                                  std::min(line.number, anchor.line.number);
      return (line.file == anchor.line.file && apart <= kNearLines) ||
             names(line.function, "attention") || names(line.function, "attn");
    });
    if (is_softmax(call, line) || (beside && makes_scores(call))) out.insert(site);
  }
  return out;
}

}  // namespace tenon
