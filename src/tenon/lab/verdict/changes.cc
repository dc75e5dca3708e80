#include "tenon/lab/verdict/changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "tenon/base/byte_size.h"
#include "tenon/lab/replayer.h"
#include "tenon/lab/verdict/early_blocks.h"
#include "tenon/lab/verdict/layers.h"
#include "tenon/lab/verdict/passes.h"
#include "tenon/lab/verdict/what_if.h"

namespace tenon {
namespace {

constexpr std::size_t kMostChanges = 4;
constexpr std::uint64_t kLeastShare = 50;  // one part in so many of the peak

class Finder {
 public:
  Finder(const VerdictInput& input, const OutOfMemoryReport* failure)
      : input_(input),
        trace_(input.facts.trace),
        lives_(input.facts.lives),
        blocks_(input.facts.categories.blocks),
        passes_(input.facts.categories.passes),
        live_(failure == nullptr ? input.at_peak : failure->live),
        failure_(failure),
        at_(failure == nullptr ? input.peak_events : failure->events),
        events_(failure == nullptr ? trace_.events.size() : failure->events),
        request_bytes_(failure == nullptr ? 0 : failure->request_bytes) {
    peak_ = live_peak_if(trace_, events_, request_bytes_,
                         [](std::uint32_t, std::uint64_t bytes) { return bytes; });
    trains_ = !passes_.backward.empty() || !passes_.steps.empty() || keeps_activations();
  }

  std::vector<Change> find() {
    layers_ = find_layers(input_.facts, at_);
    checkpoint();
    no_gradients();
    fused_attention();
    smaller_state();
    fused_step();
    stale_gradients();
    chunked_loss();
    caches();
    smaller_weights();
    half_batch();
    one_temporary();
    workspaces();
    if (failure_ == nullptr) setting();
    std::stable_sort(changes_.begin(), changes_.end(), [](const Change& a, const Change& b) {
      return a.saves_bytes > b.saves_bytes;
    });
    std::erase_if(changes_, [&](const Change& change) {
      return change.saves_bytes * kLeastShare < peak_ || change.saves_bytes == 0;
    });
    if (changes_.size() > kMostChanges) changes_.resize(kMostChanges);
    if (failure_ != nullptr) setting_at_failure();
    drop_what_grows();
    return std::move(changes_);
  }

 private:
  bool live(std::uint32_t block) const { return lives_[block].live_after(at_); }
  std::uint64_t bytes_of(Category category) const {
    for (const CategoryGroup& group : live_.by_category)
      if (group.category == category) return group.bytes;
    return 0;
  }
  // No backward was recorded, but the forward pass keeps what one would need: many blocks of the
  // same call site live at once.
  bool keeps_activations() const {
    std::map<std::uint32_t, std::uint32_t> sites;
    std::uint64_t bytes = 0;
    for (std::uint32_t block = 0; block < trace_.blocks; ++block)
      if (live(block) && is(block, Category::kActivations) && ++sites[lives_[block].site] >= 4)
        bytes += lives_[block].size_bytes;
    return bytes * 10 > peak_;
  }
  bool is(std::uint32_t block, Category category) const {
    return blocks_[block].category == category;
  }

  // Sizes with blocks of the category, from `least_bytes` on, so many times smaller.
  auto smaller(Category category, std::uint64_t times, std::uint64_t least_bytes = 0) const {
    return [=, this](std::uint32_t block, std::uint64_t bytes) {
      return is(block, category) && bytes >= least_bytes ? bytes / times : bytes;
    };
  }

  template <typename SizeOf>
  void add(std::string what, std::string how, SizeOf&& size_of) {
    Change change;
    change.peak_bytes = live_peak_if(trace_, events_, request_bytes_, size_of);
    change.saves_bytes = peak_ - std::min(peak_, change.peak_bytes);
    std::uint64_t saved = 0, guessed = 0;
    for (std::uint32_t block = 0; block < trace_.blocks; ++block) {
      if (!live(block)) continue;
      const std::uint64_t size = lives_[block].size_bytes;
      const std::uint64_t less = size - size_of(block, size);
      saved += less;
      if (blocks_[block].confidence == Confidence::kGuess) guessed += less;
    }
    change.guess = 2 * guessed > saved;
    change.what = std::move(what);
    change.how = std::move(how);
    change.measured = "what-if: the recorded events with these blocks smaller or gone";
    changes_.push_back(std::move(change));
  }

  // With checkpoints each layer keeps its input alone, and one layer at a time has the rest.
  void checkpoint() {
    if (!trains_ || layers_.sites.empty()) return;
    without_earlier_layers(
        "checkpoint the repeated layers",
        fmt::format("{} layers, {} call sites: torch.utils.checkpoint, or "
                    "gradient_checkpointing_enable(). The forward of each layer runs again in "
                    "backward; the what-if keeps each layer's input and one layer's activations",
                    layers_.number, layers_.sites.size()),
        [&](std::uint32_t site) { return site != layers_.input; });
  }

  // Programs that only run a model often let it keep what a backward pass would need.
  void no_gradients() {
    if (!passes_.backward.empty() || !passes_.steps.empty() || !trains_) return;
    if (failure_ != nullptr && input_.growth.iterations == 0) return;  // perhaps training's first
    std::vector<bool> gone = of_earlier_layers(input_.facts, events_, layers_,
                                               [](std::uint32_t) { return true; });
    for (std::uint32_t block = 0; block < trace_.early_blocks; ++block)
      if (is(block, Category::kActivations)) gone[block] = true;  // an earlier pass's
    add("run the model without gradients",
        "torch.no_grad() or torch.inference_mode(), if no backward follows: the recording has "
        "none. The what-if keeps the last layer's activations",
        [&](std::uint32_t block, std::uint64_t bytes) { return gone[block] ? 0 : bytes; });
  }

  void fused_attention() {
    if (!trains_) return;
    const std::set<std::uint32_t> scores = find_scores(input_.facts, layers_);
    if (scores.empty()) return;
    without_earlier_layers(
        "let one kernel compute the attention",
        "torch.nn.functional.scaled_dot_product_attention in place of softmax(q @ k.T) @ v "
        "(nn.MultiheadAttention: need_weights=False) keeps no scores for backward. The what-if "
        "leaves out results as large as the softmax's in all layers but one",
        [&](std::uint32_t site) { return scores.count(site) != 0; });
  }

  template <typename Pick>
  void without_earlier_layers(std::string what, std::string how, Pick&& of) {
    const std::vector<bool> gone = of_earlier_layers(input_.facts, events_, layers_, of);
    add(std::move(what), std::move(how),
        [&](std::uint32_t block, std::uint64_t bytes) { return gone[block] ? 0 : bytes; });
  }

  void smaller_state() {
    if (bytes_of(Category::kOptimizerState) * 20 < peak_) return;
    add("keep the optimizer's state in 8 bits",
        "bitsandbytes.optim.Adam8bit or torchao's, if the state has 32 bits now; the what-if makes "
        "state blocks of 16 KiB and more a quarter as large",
        smaller(Category::kOptimizerState, 4, 16 * kKiB));
  }

  void fused_step() {
    std::uint64_t scratch = 0;
    for (std::uint32_t block = 0; block < trace_.blocks; ++block)
      if (live(block) && is_step_scratch(block)) scratch += lives_[block].size_bytes;
    if (scratch * kLeastShare < peak_) return;
    add("let the optimizer update in one kernel",
        "fused=True (or foreach=False): the step then makes no lists of temporaries",
        [&](std::uint32_t block, std::uint64_t bytes) {
          return is_step_scratch(block) ? 0 : bytes;
        });
  }
  bool is_step_scratch(std::uint32_t block) const {
    return passes_.doing[block] == Doing::kStep && is(block, Category::kTemporaries);
  }

  // Gradients that outlive the step although the next backward makes them anew.
  void stale_gradients() {
    if (passes_.steps.empty()) return;
    const auto stale = [&](std::uint32_t block) {
      if (!is(block, Category::kGradients) || !blocks_[block].of_weights || !live(block))
        return false;
      const std::uint32_t made = lives_[block].alloc;
      for (const Stretch& step : passes_.steps)
        if (step.begin > made && step.end <= at_) return freed_at(lives_[block]) > step.end;
      return false;
    };
    std::vector<bool> gone(trace_.blocks, false);
    bool any = false;
    for (std::uint32_t block = 0; block < trace_.blocks; ++block)
      if (stale(block)) gone[block] = any = true;
    if (!any || doing_at_peak() != Doing::kForward) return;
    add("free the gradients before the next forward pass",
        "optimizer.zero_grad(set_to_none=True) right after optimizer.step()",
        [&](std::uint32_t block, std::uint64_t bytes) { return gone[block] ? 0 : bytes; });
  }
  Doing doing_at_peak() const {
    for (std::size_t i = at_; i-- > 0;)
      if (trace_.events[i].op == TraceOp::kAlloc) return passes_.doing[trace_.events[i].block];
    return Doing::kUnknown;
  }

  void chunked_loss() {
    if (bytes_of(Category::kLoss) * 20 < peak_) return;
    add("compute the loss in pieces",
        "a fused or chunked cross-entropy (Liger, torchtune's CEWithChunkedOutputLoss): logits "
        "never exist whole; the what-if leaves an eighth of the loss, the logits and their "
        "gradient",
        [&](std::uint32_t block, std::uint64_t bytes) {
          if (is(block, Category::kLoss)) return bytes / 8;
          const bool of_loss = is(block, Category::kGradients) && blocks_[block].of_site != 0 &&
                               bytes >= kMiB && loss_sites().contains(blocks_[block].of_site);
          return of_loss ? bytes / 8 : bytes;
        });
  }
  const std::set<std::uint32_t>& loss_sites() {
    if (loss_sites_.empty())
      for (std::uint32_t block = 0; block < trace_.blocks; ++block)
        if (is(block, Category::kLoss)) loss_sites_.insert(lives_[block].site);
    return loss_sites_;
  }

  void caches() {
    const std::uint64_t bytes = bytes_of(Category::kCaches);
    if (bytes * kLeastShare < peak_) return;
    if (trains_) {
      add("keep no keys and values while training", "use_cache=False in the model's call",
          [&](std::uint32_t block, std::uint64_t size) {
            return is(block, Category::kCaches) ? 0 : size;
          });
    } else {
      add("keep keys and values in half the bytes",
          "an 8-bit cache instead of 16 bits (kv_cache_dtype=fp8, QuantizedCache), or a page table",
          smaller(Category::kCaches, 2));
    }
  }

  void smaller_weights() {
    if (trains_ || bytes_of(Category::kWeights) * 3 < peak_) return;
    add("load the weights in half the bytes",
        "bfloat16 instead of float32, or 8 bits instead of 16 (load_in_8bit, torchao)",
        smaller(Category::kWeights, 2));
  }

  void half_batch() {
    const auto scales = [&](std::uint32_t block) {
      switch (blocks_[block].category) {
        case Category::kActivations:
        case Category::kInputs:
        case Category::kLoss:
        case Category::kCaches:
          return true;
        case Category::kTemporaries:
          return passes_.doing[block] != Doing::kStep;
        case Category::kGradients:
          return !blocks_[block].of_weights;
        default:
          return false;
      }
    };
    add("halve the batch",
        "half the samples at once, twice as many micro-batches; the what-if halves activations, "
        "inputs, losses and what is made of them",
        [&](std::uint32_t block, std::uint64_t bytes) {
          return scales(block) ? bytes / 2 : bytes;
        });
    if (failure_ != nullptr && failure_->request_bytes > 0 && doing_at_peak() != Doing::kStep)
      changes_.back().how += " (the failing request as it was)";
  }

  // What call sites that grow keep from iterations before the last. It comes first: other changes
  // only put off what growth leads to.
  void drop_what_grows() {
    if (!matters(input_.growth, peak_)) return;
    const auto& sites = input_.facts.sites;
    std::vector<bool> grows(sites.size());
    for (const GrowingSite& site : input_.growth.suspects)
      for (std::uint32_t group = 0; group < sites.size(); ++group)
        if (sites.name(group) == site.name) grows[group] = true;
    const auto& ends = input_.growth.boundaries;
    const auto outlives = [&](const Lifetime& life) {  // the iteration after its own
      const auto next = std::upper_bound(ends.begin(), ends.end(), life.alloc);
      return ends.end() - next >= 2 && life.completed > *(next + 1);
    };
    add(fmt::format("keep nothing of earlier iterations at {}",
                    input_.growth.suspects.front().name),
        "a list that tensors are appended to, or a loss that keeps its graph: store .item() or "
        ".detach().cpu() instead",
        [&](std::uint32_t block, std::uint64_t bytes) {
          const Lifetime& life = lives_[block];
          return grows[sites.group(life.site)] && outlives(life) ? 0 : bytes;
        });
    Change change = std::move(changes_.back());
    change.guess = false;  // whatever their category, they stay
    changes_.pop_back();
    changes_.insert(changes_.begin(), std::move(change));
  }

  // One large temporary at the peak.
  void one_temporary() {
    std::map<std::uint32_t, std::uint64_t> sites;
    for (std::uint32_t block = 0; block < trace_.blocks; ++block)
      if (live(block) && is(block, Category::kTemporaries) && !is_step_scratch(block))
        sites[lives_[block].site] += lives_[block].size_bytes;
    if (sites.empty()) return;
    const auto most =
        std::max_element(sites.begin(), sites.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    if (most->second * 20 < peak_) return;
    const std::uint32_t site = most->first;
    add(fmt::format("do without the temporary of {}",
                    input_.facts.sites.name(input_.facts.sites.group(site))),
        "in place, in pieces, or by a fused operator",
        [&](std::uint32_t block, std::uint64_t bytes) {
          return lives_[block].site == site && is(block, Category::kTemporaries) ? 0 : bytes;
        });
  }

  void workspaces() {
    if (bytes_of(Category::kWorkspaces) * 20 < peak_) return;
    add("make cuBLAS's workspaces smaller", "CUBLAS_WORKSPACE_CONFIG=:16:8 (products get slower)",
        smaller(Category::kWorkspaces, 64, kMiB));
  }

  bool ran_expandable() const {
    return input_.conf.find("expandable_segments:True") != std::string::npos;
  }

  // Whether a replay with the recorded settings, the defaults, serves the request that failed: it
  // then does not show what other settings change.
  bool defaults_serve() const {
    return input_.conf.empty() &&
           std::any_of(failure_->remedies.begin(), failure_->remedies.end(), [](const Remedy& r) {
             return r.helps && r.name.starts_with("PyTorch's default settings");
           });
  }

  // Expandable segments, where the request that failed is then served.
  void setting_at_failure() {
    if (ran_expandable() || defaults_serve()) return;
    for (const Remedy& remedy : failure_->remedies) {
      if (remedy.name != "expandable_segments:True" || !remedy.helps) continue;
      Change change;
      change.what = "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True";
      change.lets_pass = true;
      change.how = "no change to the program";
      change.measured = "replay: the events up to the failure, and the request that failed";
      changes_.insert(changes_.begin(), std::move(change));
    }
  }

  // Expandable segments, where PyTorch held much more than was live. Both figures are of replays,
  // so that what differs is the setting alone.
  void setting() {
    if (!input_.replay || ran_expandable() || !input_.reserved_known || has_no_history(trace_))
      return;
    const std::uint64_t live = input_.at_peak.bytes;
    if (input_.reserved_peak_bytes * 10 < live * 11) return;
    try {
      const Workload workload(trace_);
      ReplaySetup setup;
      setup.policy = "caching";
      setup.options.conf = input_.conf;
      const std::uint64_t before =
          std::min(replay(workload, setup).reserved_peak_bytes, input_.reserved_peak_bytes);
      setup.options.conf = "expandable_segments:True";
      Change change;
      change.what = "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True";
      change.reserved = true;
      change.how =
          "no change to the program; what is saved is memory that PyTorch holds and does "
          "not use";
      change.peak_bytes = replay(workload, setup).reserved_peak_bytes;
      change.saves_bytes = before - std::min(before, change.peak_bytes);
      change.measured = "replay: reserved memory, with the recorded settings and with this";
      if (change.saves_bytes * 100 > before) changes_.push_back(std::move(change));
    } catch (const std::bad_alloc&) {
      throw;  // this process has too little memory, and a figure left out would not say so
    } catch (const std::exception&) {
      // A recording that no policy can follow: no figure, no advice.
    }
  }

  const VerdictInput& input_;
  const Trace& trace_;
  const std::vector<Lifetime>& lives_;
  const std::vector<BlockCategory>& blocks_;
  const Passes& passes_;
  const LiveSet& live_;
  const OutOfMemoryReport* failure_;
  const std::size_t at_;      // events before the moment that counts
  const std::size_t events_;  // events that count
  const std::uint64_t request_bytes_;
  std::uint64_t peak_ = 0;
  bool trains_ = false;
  Layers layers_;
  std::set<std::uint32_t> loss_sites_;
  std::vector<Change> changes_;
};

}  // namespace

std::vector<Change> find_changes(const VerdictInput& input, const OutOfMemoryReport* failure) {
  return Finder(input, failure).find();
}

}  // namespace tenon
