// The policies by name: what the command's --policy means. Thread-safe: the table is constant. A
// search by name is O(policies).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/memory/device_allocator.h"

namespace tenon {

class Plan;

// What a policy may be made with. An option that is left at its default is not given.
struct PolicyOptions {
  // PyTorch's allocator settings, "key:value,key:value": for `caching`, `expandable`, `stitched`
  std::string conf = {};
  // Most bytes to hold from the driver; 0: as many as the device has. For all but `null`
  std::uint64_t limit_bytes = 0;
  const Plan* plan = nullptr;    // for `plan`; must outlive the allocator
  std::uint64_t page_bytes = 0;  // for `stitched`: memory against driver time; 0: its default
  // For `pool` and `unified`: they grow by shares of what they hold (growth_share.h), as on each
  // device without virtual memory, not by the sizes of their documents.
  bool grows_by_shares = false;
  // For `caching`: free blocks of one size are taken as PyTorch 2.13 does (pytorch_rules.h).
  bool oldest_segment_first = false;
};

// One policy: what it is called, and how to make it.
struct Policy {
  std::string name;
  std::string summary;     // one line for `tenon policies`
  std::string answers_to;  // what it stands in for elsewhere
  std::function<std::unique_ptr<DeviceAllocator>(Backend&, const PolicyOptions&)> make;
  // A capacity is tested by the allocator, in PyTorch's way (options.limit_bytes), not by the
  // driver.
  bool limits_itself = false;
  // Which options it uses; make_policy refuses the others.
  bool uses_conf = false;
  bool uses_limit = true;
  bool uses_page = false;
  bool uses_shares = false;
  bool uses_segment_order = false;
  bool needs_plan = false;  // options.plan must be given
};

// All policies, in the order that tables print them.
const std::vector<Policy>& policies();

// Throws InvalidArgument, listing the known names.
const Policy& find_policy(std::string_view name);

// Throws InvalidArgument where an option is given that the policy does not use.
void check_options(const Policy& policy, const PolicyOptions& options);

// `options` without those that the policy does not use: for a caller that has one set of options
// for several policies.
PolicyOptions options_for(const Policy& policy, const PolicyOptions& options);

// Makes the named policy over `backend`, which must outlive it. Throws InvalidArgument for an
// unknown name or setting and as check_options, OutOfMemory where even the start does not fit.
std::unique_ptr<DeviceAllocator> make_policy(std::string_view name, Backend& backend,
                                             const PolicyOptions& options = {});

}  // namespace tenon
