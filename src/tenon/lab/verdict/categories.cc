// Note [Categories]
// Stacks name the request (stack_hint.h); a block's life says the rest:
//
//   asked for in     gone before backward   while backward runs   later, or never
//   setting up       temporary              -                     weights, inputs
//   forward          temporary              activation            (grows: activation)
//   backward         -                      gradient              gradient of weights
//   the step         temporary              -                     optimiser state
//
// What the stack says for certain (a module is moved, a workspace) comes first. Where the recording
// ends before a block's life does, the other blocks of its site decide. What was live before the
// recording began: early_blocks.h.
#include "tenon/lab/verdict/categories.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>

#include "tenon/base/byte_size.h"
#include "tenon/lab/verdict/early_blocks.h"
#include "tenon/lab/verdict/passes.h"
#include "tenon/lab/verdict/workspace_size.h"

namespace tenon {
namespace {


class Categorizer {
 public:
  Categorizer(const Trace& trace, std::span<const Lifetime> lives,
              std::span<const std::uint32_t> phases, const CallSites& sites)
      : trace_(trace),
        lives_(lives),
        sites_(sites),
        hints_(stack_hints(*trace.sites, sites.table())) {
    out_.passes = find_passes(trace, lives, phases, sites, hints_);
    out_.blocks.resize(trace.blocks);
    open_.assign(trace.blocks, false);
    next_request_.assign(trace.blocks, Lifetime::kNever);
    next_node_.assign(trace.blocks, Lifetime::kNever);
  }

  Categories categorize() {
    find_next_requests();
    find_gradient_sizes();
    find_weight_sizes();
    for (std::uint32_t block = trace_.early_blocks; block < trace_.blocks; ++block)
      set(block, passes().by_stack ? by_stack(block) : by_shape(block));
    let_sites_decide();
    find_logits();
    categorize_early_blocks({trace_, lives_, sites_, hints_, gradient_sizes_}, out_);
    find_replaced_weights();
    return std::move(out_);
  }

 private:
  const Passes& passes() const { return out_.passes; }
  std::uint32_t freed(std::uint32_t block) const { return freed_at(lives_[block]); }
  void set(std::uint32_t block, const BlockCategory& category) { out_.blocks[block] = category; }

  // By block: the event of the next request that another site makes, and of the next that a step of
  // backward makes (not the forward pass that a checkpoint runs again).
  void find_next_requests() {
    std::uint32_t next = Lifetime::kNever;  // of another site than `site`
    std::uint32_t site = ~std::uint32_t{0};
    std::uint32_t last = Lifetime::kNever;
    std::uint32_t node = Lifetime::kNever;
    for (std::size_t i = trace_.events.size(); i-- > 0;) {
      const TraceEvent& event = trace_.events[i];
      if (event.op != TraceOp::kAlloc) continue;
      const CallSite& call = sites_.call_site(event.site);
      next_node_[event.block] = node;
      if (passes().doing[event.block] == Doing::kBackward && !call.recomputed)
        node = static_cast<std::uint32_t>(i);
      if (event.site != site) {
        next = last;
        site = event.site;
      }
      next_request_[event.block] = event.site == 0 ? last : next;
      last = static_cast<std::uint32_t>(i);
    }
  }

  // Gradients of weights are what backward makes and leaves: still there at its last request, and
  // not one of its last results, which go when backward returns.
  bool outlives(std::uint32_t block, const Stretch& run) const {
    const std::uint32_t gone = freed(block);
    return gone >= run.end || (gone > run.last && lives_[block].alloc + 8 < run.last);
  }

  // The sizes of weights' gradients, each with the most that one backward pass leaves.
  void find_gradient_sizes() {
    std::unordered_map<std::uint64_t, std::uint64_t> here;
    const Stretch* pass = nullptr;
    const auto close = [&] {
      for (const auto& [size, count] : here)
        gradient_sizes_[size] = std::max(gradient_sizes_[size], count);
      here.clear();
    };
    for (std::uint32_t block = trace_.early_blocks; block < trace_.blocks; ++block) {
      if (passes().doing[block] != Doing::kBackward) continue;
      if (sites_.call_site(lives_[block].site).workspace ||
          (freed(block) == Lifetime::kNever && has_workspace_size(lives_[block].size_bytes)))
        continue;
      const Stretch* run = stretch_at_or_after(passes().backward, lives_[block].alloc);
      if (run == nullptr || run->end >= trace_.events.size()) continue;
      if (run != pass) close();
      pass = run;
      if (outlives(block, *run)) ++here[lives_[block].size_bytes];
    }
    close();
  }
  bool is_gradient_size(std::uint64_t bytes) const { return gradient_sizes_.count(bytes) != 0; }

  // The sizes of what may be weights: there from the start, or made by a module, and kept.
  void find_weight_sizes() {
    for (std::uint32_t block = 0; block < trace_.blocks; ++block) {
      const Lifetime& life = lives_[block];
      const bool weights = hints_[trace_.sites->site(life.site).stack].weights;
      // A program that ends frees its weights.
      if ((freed(block) == Lifetime::kNever &&
           (weights || block < trace_.early_blocks || life.alloc < passes().setup_end)) ||
          (weights && freed(block) > end_of_passes()))
        weight_sizes_.insert(life.size_bytes);
    }
  }
  // The last request of a pass or a step.
  std::uint32_t end_of_passes() const {
    const Passes& found = passes();
    return std::max(found.backward.empty() ? found.setup_end : found.backward.back().last,
                    found.steps.empty() ? 0 : found.steps.back().last);
  }
  // Autocast halves a weight's bytes; it casts activations too.
  bool is_cast_of_weight(std::uint32_t block, const StackHint& hint) const {
    return hint.cast_of_weight && weight_sizes_.contains(2 * lives_[block].size_bytes);
  }

  BlockCategory by_stack(std::uint32_t block) {
    const Lifetime& life = lives_[block];
    const Site& site = trace_.sites->site(life.site);
    const CallSite& call = sites_.call_site(life.site);
    const StackHint& hint = hints_[site.stack];
    const bool stays = freed(block) == Lifetime::kNever;
    if (call.workspace) return {Category::kWorkspaces, Confidence::kCertain};
    if (stays && has_workspace_size(life.size_bytes) && !hint.weights && !hint.optimizer &&
        !hint.cache && is_lone(block))
      return {Category::kWorkspaces, Confidence::kLikely};
    switch (passes().doing[block]) {
      case Doing::kStep:
        return of_step(block, hint);
      case Doing::kBackward:
        return of_backward(block, call, hint);
      default:
        return of_forward(block, call, hint);
    }
  }

  // Whether the site makes other sizes as well: a workspace comes once, beside results.
  bool is_lone(std::uint32_t block) {
    if (lone_.empty()) {
      for (const TraceEvent& event : trace_.events)
        if (event.op == TraceOp::kAlloc && freed(event.block) == Lifetime::kNever &&
            has_workspace_size(event.size_bytes))
          ++lone_[key_of(event)];
    }
    const TraceEvent& event = trace_.events[lives_[block].alloc];
    return lone_[key_of(event)] <= kMostWorkspaces;
  }
  static std::uint64_t key_of(const TraceEvent& event) {
    return event.size_bytes * 64 + event.stream % 64;
  }

  BlockCategory of_step(std::uint32_t block, const StackHint& hint) {
    if (hint.optimizer_scratch) return {Category::kTemporaries, Confidence::kCertain};
    const Stretch* step = stretch_at_or_after(passes().steps, lives_[block].alloc);
    const std::uint32_t end = step == nullptr ? 0 : step->end;
    const bool cut = step == nullptr || end >= trace_.events.size();
    if (freed(block) != Lifetime::kNever && (cut || freed(block) < end))
      return {Category::kTemporaries, Confidence::kCertain};
    if (!cut || hint.optimizer_init)
      return {Category::kOptimizerState,
              hint.optimizer ? Confidence::kCertain : Confidence::kLikely};
    open_[block] = true;  // the recording ends in this step
    return {Category::kOptimizerState, Confidence::kLikely};
  }

  BlockCategory of_backward(std::uint32_t block, const CallSite& call, const StackHint& hint) {
    const Stretch* run = stretch_at_or_after(passes().backward, lives_[block].alloc);
    const bool cut = run == nullptr || run->end >= trace_.events.size();
    const std::uint32_t gone = freed(block);
    if (call.recomputed)
      return {gone < next_node_[block] ? Category::kTemporaries : Category::kActivations,
              Confidence::kCertain};
    if (hint.cast_of_weight) return {Category::kTemporaries, Confidence::kLikely};
    const bool known = !call.node.empty() || call.sums_gradients;
    const Confidence confidence = known ? Confidence::kCertain : Confidence::kLikely;
    if (gone != Lifetime::kNever && gone < next_request_[block] && known &&
        gone < end_of_work(block))
      return {Category::kTemporaries, Confidence::kLikely};
    BlockCategory category{Category::kGradients, confidence};
    category.of_weights = call.node == "AccumulateGrad" || (!cut && outlives(block, *run));
    return category;
  }
  // Before the next request of any kind.
  std::uint32_t end_of_work(std::uint32_t block) const {
    const std::uint32_t at = lives_[block].alloc;
    for (std::uint32_t i = at + 1; i < trace_.events.size() && i < at + 4; ++i)
      if (trace_.events[i].op == TraceOp::kAlloc) return i;
    return at + 4;
  }

  BlockCategory of_forward(std::uint32_t block, const CallSite& call, const StackHint& hint) {
    const Lifetime& life = lives_[block];
    const std::uint32_t gone = freed(block);
    const Stretch* run = stretch_at_or_after(passes().backward, life.alloc);
    const bool setting_up = life.alloc < passes().setup_end;
    const bool stays = run != nullptr && gone >= run->end;
    if (hint.gradients) return {Category::kGradients, Confidence::kLikely, true};
    if (hint.weights && (gone == Lifetime::kNever || stays || gone >= passes().setup_end))
      return {Category::kWeights, Confidence::kCertain};
    if (hint.weights) return {Category::kTemporaries, Confidence::kCertain};
    if (hint.cache) return {Category::kCaches, Confidence::kLikely};
    if (hint.loss) return {Category::kLoss, Confidence::kLikely};
    if (hint.inputs && !hint.module) return {Category::kInputs, Confidence::kLikely};
    // The state that an optimiser of one's own makes: as large as a weight, at the first step.
    if (!hint.module && !setting_up && is_gradient_size(life.size_bytes) && stays &&
        !passes().backward.empty() && life.alloc > passes().backward.front().begin)
      return {Category::kOptimizerState, Confidence::kLikely};
    if (setting_up) return of_setup(block, call, hint);
    if (!hint.module && is_input(block, call)) return {Category::kInputs, Confidence::kLikely};
    if (is_cast_of_weight(block, hint)) return {Category::kWeights, Confidence::kLikely};
    return of_pass(block, hint, run);
  }

  BlockCategory of_setup(std::uint32_t block, const CallSite& call, const StackHint& hint) {
    const Lifetime& life = lives_[block];
    const std::uint32_t gone = freed(block);
    const Stretch* run = passes().backward.empty() ? nullptr : &passes().backward.front();
    if (gone < passes().setup_end) return {Category::kTemporaries, Confidence::kLikely};
    // Weights get gradients.
    if (is_gradient_size(life.size_bytes) && (run == nullptr || gone >= run->end))
      return {Category::kWeights, Confidence::kLikely};
    if (hint.makes_or_moves ||
        (call.user != 0 && call.library == 0 && call.torch == 0 && call.op.empty()))
      return {in_constructor(call) ? Category::kWeights : Category::kInputs, Confidence::kGuess};
    if (run != nullptr && gone < run->end) return {Category::kActivations, Confidence::kLikely};
    return {Category::kWeights, Confidence::kGuess};
  }
  bool in_constructor(const CallSite& call) const {
    if (call.user == 0) return false;
    const std::string_view name = trace_.sites->text(trace_.sites->frame(call.user).function);
    return name == "__init__" || name.find("build") != std::string_view::npos ||
           name.find("init") != std::string_view::npos ||
           name.find("model") != std::string_view::npos;
  }

  // A batch is moved or made by the program's own loop before the first module of the pass runs.
  bool is_input(std::uint32_t block, const CallSite& call) const {
    const StackHint& hint = hints_[trace_.sites->site(lives_[block].site).stack];
    if (!call.op.empty() && !hint.makes_or_moves) return false;
    if (call.op.empty() && (call.library != 0 || call.torch != 0)) return false;
    // Before the pass's first module, or by an operator that only moves.
    const std::uint32_t at = lives_[block].alloc;
    for (std::uint32_t i = at; i-- > 0;) {
      const TraceEvent& event = trace_.events[i];
      if (event.op != TraceOp::kAlloc) continue;
      if (event.block < trace_.early_blocks) return true;
      if (passes().doing[event.block] != Doing::kForward) return true;
      const StackHint& before = hints_[trace_.sites->site(event.site).stack];
      if (before.module && !before.weights) return hint.makes_or_moves && !call.op.empty();
      if (at - i > 4096) return false;
    }
    return true;
  }

  // A forward pass's own block.
  BlockCategory of_pass(std::uint32_t block, const StackHint& hint, const Stretch* run) {
    const std::uint32_t gone = freed(block);
    const std::uint32_t next = next_request_[block];
    if (run == nullptr) {  // no backward follows: inference, or the recording ends
      open_[block] = gone == Lifetime::kNever && !passes().backward.empty();
      if (gone < next || (gone != Lifetime::kNever && !passes().backward.empty()))
        return {Category::kTemporaries, Confidence::kLikely};
      if (is_grown_out_of(block)) return {Category::kCaches, Confidence::kGuess};
      return {Category::kActivations,
              gone == Lifetime::kNever ? Confidence::kGuess : Confidence::kLikely};
    }
    if (hint.convolution && gone < next && gone < run->begin)
      return {Category::kWorkspaces, Confidence::kLikely};
    if (gone < run->begin) return {Category::kTemporaries, Confidence::kLikely};
    if (gone < run->end || gone == Lifetime::kNever)
      return {Category::kActivations, Confidence::kLikely};
    return {Category::kActivations, Confidence::kLikely};
  }

  // Without backward: whether a larger block of the same site takes this one's place, as when keys
  // and values are joined with those of one more token.
  bool is_grown_out_of(std::uint32_t block) {
    if (!passes().backward.empty() || freed(block) == Lifetime::kNever) return false;
    if (same_site_.empty())
      for (const TraceEvent& event : trace_.events)
        if (event.op == TraceOp::kAlloc)
          same_site_[event.site].push_back(static_cast<std::uint32_t>(event.block));
    const auto& blocks = same_site_[lives_[block].site];
    const auto later = std::partition_point(
        blocks.begin(), blocks.end(),
        [&](std::uint32_t other) { return lives_[other].alloc < freed(block); });
    const Lifetime& last = lives_[*(later - 1)];  // at the earliest the block itself
    constexpr std::uint32_t kAtOnce = 8;          // events
    return last.size_bytes > lives_[block].size_bytes &&
           last.size_bytes <= 2 * lives_[block].size_bytes &&
           freed(block) - last.alloc <= kAtOnce;
  }

  // Blocks whose life the recording cut: as most others of their site. Temporaries of the site
  // count only for a block that is not yet older than the longest of them became.
  void let_sites_decide() {
    struct Site {
      std::array<std::uint64_t, kCategories> votes{};
      std::uint32_t longest_temporary = 0;  // events
    };
    constexpr auto kTemporary = static_cast<std::size_t>(Category::kTemporaries);
    const auto end = static_cast<std::uint32_t>(trace_.events.size());
    std::unordered_map<std::uint32_t, Site> sites;
    for (std::uint32_t block = trace_.early_blocks; block < trace_.blocks; ++block) {
      if (open_[block]) continue;
      Site& site = sites[lives_[block].site];
      const auto category = static_cast<std::size_t>(out_.blocks[block].category);
      ++site.votes[category];
      if (category == kTemporary)
        site.longest_temporary = std::max(
            site.longest_temporary, std::min(freed(block), end) - lives_[block].alloc);
    }
    for (std::uint32_t block = trace_.early_blocks; block < trace_.blocks; ++block) {
      const auto found = sites.find(lives_[block].site);
      if (!open_[block] || found == sites.end()) continue;
      auto votes = found->second.votes;
      if (end - lives_[block].alloc > found->second.longest_temporary) votes[kTemporary] = 0;
      const auto best = std::max_element(votes.begin(), votes.end());
      if (*best == 0) continue;
      out_.blocks[block].category = static_cast<Category>(best - votes.begin());
      out_.blocks[block].confidence = Confidence::kLikely;
    }
  }

  // An optimiser may make each weight anew ("p.data = p.data - ..."): then no weight stays, and the
  // line that makes the step's last result, and frees the weight before, is the one. PyTorch's own
  // optimisers, whose state is certain, change weights in place.
  void find_replaced_weights() {
    std::uint64_t weights = 0;
    std::uint64_t gradients = 0;
    for (const auto& [size, count] : gradient_sizes_) gradients += size * count;
    std::uint32_t line = 0;  // the frame
    for (std::uint32_t block = 0; block < trace_.blocks; ++block) {
      const Category category = out_.blocks[block].category;
      if (category == Category::kWeights && freed(block) == Lifetime::kNever &&
          is_gradient_size(lives_[block].size_bytes))
        weights += lives_[block].size_bytes;
      if (is_doubtful_state(block) && passes().doing[block] == Doing::kStep &&
          is_gradient_size(lives_[block].size_bytes))
        line = sites_.call_site(lives_[block].site).user;
    }
    if (line == 0 || weights * 10 > gradients) return;
    for (std::uint32_t block = 0; block < trace_.blocks; ++block) {
      if (!is_doubtful_state(block)) continue;
      const std::uint32_t site = block >= trace_.early_blocks ? lives_[block].site
                                 : freed(block) == Lifetime::kNever     ? 0
                                                          : trace_.events[freed(block)].site;
      if (sites_.call_site(site).user == line)
        set(block, {Category::kWeights, Confidence::kLikely});
    }
  }

  bool is_doubtful_state(std::uint32_t block) const {
    return out_.blocks[block].category == Category::kOptimizerState &&
           out_.blocks[block].confidence != Confidence::kCertain;
  }

  // The last result of the model before the loss, of about the loss's own size.
  void find_logits() {
    constexpr std::size_t kLookBack = 8;
    std::vector<std::uint32_t> recent;
    for (const TraceEvent& event : trace_.events) {
      if (event.op != TraceOp::kAlloc || event.block < trace_.early_blocks) continue;
      const BlockCategory& own = out_.blocks[event.block];
      if (own.category == Category::kLoss && passes().doing[event.block] == Doing::kForward &&
          event.size_bytes >= 4 * kKiB) {
        for (std::size_t i = recent.size(); i-- > 0 && recent.size() - i <= kLookBack;) {
          const std::uint64_t size = lives_[recent[i]].size_bytes;
          BlockCategory& before = out_.blocks[recent[i]];
          if ((before.category == Category::kActivations ||
               before.category == Category::kTemporaries) &&
              is_near(size, event.size_bytes) && freed(recent[i]) > lives_[event.block].alloc) {
            before = {Category::kLoss, Confidence::kLikely};
            break;
          }
        }
      } else if (passes().doing[event.block] == Doing::kForward) {
        recent.push_back(event.block);
        if (recent.size() > 4 * kLookBack)
          recent.erase(recent.begin(), recent.begin() + 2 * kLookBack);
      } else {
        recent.clear();
      }
    }
  }
  // Equal, or half or twice as large (another element type), but for a row at the end.
  static bool is_near(std::uint64_t a, std::uint64_t b) {
    for (const std::uint64_t other : {b, 2 * b, b / 2}) {
      const std::uint64_t difference = a > other ? a - other : other - a;
      if (difference * 50 <= other) return true;
    }
    return false;
  }

  // No stacks at all: order and life.
  BlockCategory by_shape(std::uint32_t block) {
    const Lifetime& life = lives_[block];
    const std::uint32_t gone = freed(block);
    if (passes().doing[block] == Doing::kStep) return of_step(block, {});
    if (passes().backward.empty())
      return {gone == Lifetime::kNever ? Category::kWeights : Category::kActivations,
              Confidence::kGuess};
    const Stretch& first = passes().backward.front();
    if (life.alloc < passes().setup_end) {
      if (gone < passes().setup_end) return {Category::kTemporaries, Confidence::kGuess};
      return {gone >= first.end ? Category::kWeights : Category::kInputs, Confidence::kGuess};
    }
    if (gone == Lifetime::kNever && has_workspace_size(life.size_bytes) && is_lone(block))
      return {Category::kWorkspaces, Confidence::kGuess};
    const Stretch* run = stretch_at_or_after(passes().backward, life.alloc);
    if (passes().doing[block] == Doing::kBackward) {
      if (gone == Lifetime::kNever) return {Category::kOptimizerState, Confidence::kGuess};
      BlockCategory category{Category::kGradients, Confidence::kGuess};
      category.of_weights = run != nullptr && gone >= run->end;
      return category;
    }
    if (gone == Lifetime::kNever && life.alloc >= first.begin)
      return {
          is_gradient_size(life.size_bytes) ? Category::kOptimizerState : Category::kActivations,
          Confidence::kGuess};
    if (run != nullptr && gone < run->begin) return {Category::kTemporaries, Confidence::kGuess};
    return {Category::kActivations, Confidence::kGuess};
  }

  const Trace& trace_;
  std::span<const Lifetime> lives_;
  const CallSites& sites_;
  std::vector<StackHint> hints_;  // by stack
  Categories out_;
  std::vector<bool> open_;                   // by block: the recording cut its life
  std::vector<std::uint32_t> next_request_;  // by block
  std::vector<std::uint32_t> next_node_;     // by block
  std::unordered_map<std::uint64_t, std::uint64_t> gradient_sizes_;  // to how many weights have it
  std::unordered_set<std::uint64_t> weight_sizes_;
  std::unordered_map<std::uint64_t, std::uint32_t> lone_;
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> same_site_;
};

}  // namespace

Categories categorize(const Trace& trace, std::span<const Lifetime> lives,
                      std::span<const std::uint32_t> phases, const CallSites& sites) {
  return Categorizer(trace, lives, phases, sites).categorize();
}

}  // namespace tenon
