#include "tenon/lab/verdict/early_blocks.h"

#include <algorithm>
#include <unordered_set>

#include "tenon/lab/verdict/passes.h"
#include "tenon/lab/verdict/workspace_size.h"
#include "tenon/trace/profile.h"

namespace tenon {
namespace {


class EarlyBlocks {
 public:
  EarlyBlocks(const EarlyBlocksInput& input, Categories& out) : in_(input), out_(out) {
    for (std::uint32_t block = 0; block < in_.trace.early_blocks; ++block)
      if (freed(block) == Lifetime::kNever) ++staying_[in_.lives[block].size_bytes];
  }

  void categorize() {
    const bool no_history = has_no_history(in_.trace);
    std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> unknown;  // by size, to stay
    std::vector<std::uint32_t> untold;
    std::unordered_set<std::uint64_t> trained;  // sizes of weights' gradients and of their state
    for (std::uint32_t block = 0; block < in_.trace.early_blocks; ++block) {
      if (!by_stack(block))
        untold.push_back(block);
      else if (out_.blocks[block].category == Category::kOptimizerState ||
               out_.blocks[block].of_weights)
        trained.insert(in_.lives[block].size_bytes);
    }
    for (const std::uint32_t block : untold) {
      const std::uint64_t size = in_.lives[block].size_bytes;
      if (of_many(block))
        out_.blocks[block] = {Category::kUnknown, Confidence::kGuess};
      else if (freed(block) != Lifetime::kNever)
        out_.blocks[block] = freed_in_the_recording(block);
      else if (is_workspace_by_size(block))
        out_.blocks[block] = {Category::kWorkspaces, Confidence::kGuess};
      else if (no_history && !trained.contains(size))
        out_.blocks[block] = {Category::kUnknown, Confidence::kGuess};
      else
        unknown[size].push_back(block);
    }
    for (auto& [size, blocks] : unknown) share_out(size, blocks);
  }

 private:
  std::uint32_t freed(std::uint32_t block) const { return freed_at(in_.lives[block]); }

  // One block that stands for all memory of which a profile tells the sum alone.
  bool of_many(std::uint32_t block) const {
    const SiteTable& sites = *in_.trace.sites;
    return sites.text(sites.site(in_.lives[block].site).tag) == kUnseenBlocks;
  }

  bool is_workspace_by_size(std::uint32_t block) const {
    const std::uint64_t size = in_.lives[block].size_bytes;
    const auto staying = staying_.find(size);
    return freed(block) == Lifetime::kNever && has_workspace_size(size) &&
           staying->second <= kMostWorkspaces && !in_.gradient_sizes.contains(size);
  }

  bool by_stack(std::uint32_t block) {
    const std::uint32_t site = in_.lives[block].site;
    const CallSite& call = in_.sites.call_site(site);
    const StackHint& hint = in_.hints[in_.trace.sites->site(site).stack];
    const auto is = [&](Category category, Confidence confidence, bool of_weights = false) {
      out_.blocks[block] = {category, confidence, of_weights};
      return true;
    };
    if (call.workspace) return is(Category::kWorkspaces, Confidence::kCertain);
    if (hint.optimizer) return is(Category::kOptimizerState, Confidence::kCertain);
    if (hint.weights) return is(Category::kWeights, Confidence::kCertain);
    if (hint.cache) return is(Category::kCaches, Confidence::kLikely);
    // Backward leaves gradients of weights; it frees what else it makes before it returns.
    if (call.backward || hint.gradients)
      return is(Category::kGradients, Confidence::kLikely, /*of_weights=*/true);
    if (hint.loss) return is(Category::kLoss, Confidence::kLikely);
    if (in_.trace.sites->site(site).stack != 0 && is_workspace_by_size(block))
      return is(Category::kWorkspaces, Confidence::kLikely);
    if (hint.module) return is(Category::kActivations, Confidence::kLikely);
    if (hint.inputs) return is(Category::kInputs, Confidence::kLikely);
    return false;
  }

  // A step that computes its state anew frees the earlier one; gradients go in zero_grad(). The
  // stack of the free says so, or the time.
  BlockCategory freed_in_the_recording(std::uint32_t block) const {
    const std::uint32_t gone = freed(block);
    const std::uint64_t size = in_.lives[block].size_bytes;
    const Passes& passes = out_.passes;
    const StackHint& by = in_.hints[in_.trace.sites->site(in_.trace.events[gone].site).stack];
    if (by.gradients) return {Category::kGradients, Confidence::kLikely, true};
    if (by.optimizer) return {Category::kOptimizerState, Confidence::kLikely};
    if (const Stretch* step = stretch_at_or_after(passes.steps, gone);
        step != nullptr && gone >= step->begin && gone <= step->last)
      return {Category::kOptimizerState, Confidence::kGuess};
    const Stretch* run = stretch_at_or_after(passes.backward, gone);
    const bool in_backward = run != nullptr && gone >= run->begin && gone <= run->last;
    const bool trains = !passes.backward.empty() || !passes.steps.empty();
    if (trains && !in_backward && (in_.gradient_sizes.contains(size) || staying_.contains(size)))
      return {Category::kGradients, Confidence::kGuess, true};
    if (run != nullptr && gone >= run->begin) return {Category::kActivations, Confidence::kGuess};
    return {passes.backward.empty() ? Category::kActivations : Category::kInputs,
            Confidence::kGuess};
  }

  // Blocks of one size that stay. As many as there are gradients of that size are weights, the
  // first by address; an optimiser keeps the rest. Without gradients all are weights.
  void share_out(std::uint64_t size, std::vector<std::uint32_t>& blocks) {
    const auto gradients = in_.gradient_sizes.find(size);
    const std::uint64_t weights =
        gradients == in_.gradient_sizes.end() ? blocks.size() : gradients->second;
    const std::vector<std::uint64_t>& addresses = in_.trace.addresses;
    if (weights < blocks.size() && !addresses.empty())
      std::sort(blocks.begin(), blocks.end(), [&](std::uint32_t a, std::uint32_t b) {
        return addresses[a] > addresses[b];
      });
    for (std::size_t i = 0; i < blocks.size(); ++i)
      out_.blocks[blocks[i]] = {i < weights ? Category::kWeights : Category::kOptimizerState,
                                Confidence::kGuess};
  }

  const EarlyBlocksInput& in_;
  Categories& out_;
  std::unordered_map<std::uint64_t, std::uint64_t> staying_;  // sizes of blocks that are not freed
};

}  // namespace

bool has_no_history(const Trace& trace) { return trace.events.size() <= trace.early_blocks + 1u; }

void categorize_early_blocks(const EarlyBlocksInput& input, Categories& out) {
  EarlyBlocks(input, out).categorize();
}

}  // namespace tenon
