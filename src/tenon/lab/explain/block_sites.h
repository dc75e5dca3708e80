// The call site that a block is counted under.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tenon/lab/explain/live_set.h"

namespace tenon {

// Numbers the call sites of blocks as they are asked for. What backward allocates has no line of
// the program on its stack: it is counted under the forward call whose gradient it is ("gradient of
// forward model.py:40: linear"). O(log groups) a block.
class BlockSites {
 public:
  explicit BlockSites(const TraceFacts& facts) : facts_(facts) {}

  std::uint32_t group(std::uint32_t block);
  const std::string& name(std::uint32_t group) const { return names_.at(group); }
  std::size_t size() const { return names_.size(); }

 private:
  std::string name_of(std::uint32_t block) const;

  const TraceFacts& facts_;
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::uint32_t> known_;
  std::map<std::string, std::uint32_t> by_name_;
  std::vector<std::string> names_;
};

}  // namespace tenon
