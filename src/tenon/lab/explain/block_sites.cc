#include "tenon/lab/explain/block_sites.h"

namespace tenon {

std::uint32_t BlockSites::group(std::uint32_t block) {
  const std::uint32_t site = facts_.lives[block].site;
  const BlockCategory& own = facts_.categories.blocks[block];
  const std::uint64_t kind =
      static_cast<std::uint64_t>(own.category) * 2 + (block < facts_.trace.early_blocks ? 1 : 0);
  const auto [found, fresh] = known_.try_emplace(
      {std::uint64_t{site} << 32 | own.of_site, static_cast<std::uint32_t>(kind)}, 0u);
  if (fresh) {
    std::string name = name_of(block);
    const auto [same, first] =
        by_name_.try_emplace(name, static_cast<std::uint32_t>(names_.size()));
    if (first) names_.push_back(std::move(name));
    found->second = same->second;
  }
  return found->second;
}

std::string BlockSites::name_of(std::uint32_t block) const {
  const BlockCategory& own = facts_.categories.blocks[block];
  const std::uint32_t number = facts_.lives[block].site;
  const std::string& site = facts_.sites.name(facts_.sites.group(number));
  if (number == 0 && block < facts_.trace.early_blocks) return "from before the recording";
  if (own.category != Category::kGradients && own.category != Category::kTemporaries) return site;
  const CallSite& call = facts_.sites.call_site(number);
  if (own.of_site == 0 || call.has_python() || call.workspace) return site;
  const std::string& of = facts_.sites.name(facts_.sites.group(own.of_site));
  return (own.category == Category::kGradients ? "gradient of " : "temporary of the gradient of ") +
         of;
}

}  // namespace tenon
