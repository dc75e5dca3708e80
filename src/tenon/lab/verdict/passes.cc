#include "tenon/lab/verdict/passes.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <unordered_map>

#include "tenon/lab/verdict/early_blocks.h"

namespace tenon {
namespace {

struct Word {
  std::string_view text;
  Doing doing;
};
// The first that the text holds counts.
constexpr auto kWords = std::to_array<Word>({{"zero_grad", Doing::kUnknown},
                                             {"optimizer", Doing::kStep},
                                             {"optim_step", Doing::kStep},
                                             {"opt_step", Doing::kStep},
                                             {"opt.step", Doing::kStep},
                                             {"backward", Doing::kBackward},
                                             {"forward", Doing::kForward}});

// What each block's site says by itself.
class DoingOf {
 public:
  DoingOf(const Trace& trace, std::span<const std::uint32_t> phases, const CallSites& sites,
          std::span<const StackHint> hints)
      : trace_(trace), phases_(phases), sites_(sites), hints_(hints) {
    std::uint64_t with = 0;
    std::uint64_t all = 0;
    for (const TraceEvent& event : trace.events) {
      if (event.op != TraceOp::kAlloc || event.block < trace.early_blocks) continue;
      ++all;
      if (trace.sites->site(event.site).stack == 0) continue;
      ++with;
      const CallSite& call = sites.call_site(event.site);
      has_cpp_ |= !call.op.empty() || !call.node.empty();
    }
    by_stack = with * 20 >= all && with > 0;
  }

  bool by_stack = false;

  Doing operator()(const TraceEvent& event, std::uint32_t number) const {
    const Doing phase = of_text(phases_[number]);
    const Site& site = trace_.sites->site(event.site);
    const CallSite& call = sites_.call_site(event.site);
    const StackHint& hint = hints_[site.stack];
    if (hint.optimizer || hint.optimizer_scratch) return Doing::kStep;
    if (call.backward) return Doing::kBackward;
    // An optimiser may call the forward pass (a closure): its phase counts where no stack does.
    if (phase != Doing::kUnknown && (phase != Doing::kStep || site.stack == 0)) return phase;
    if (site.tag != 0)
      if (const Doing tag = of_text(site.tag); tag != Doing::kUnknown) return tag;
    if (site.stack != 0) return Doing::kForward;
    // Autograd's own thread has no Python stack.
    return by_stack && !has_cpp_ ? Doing::kBackward : Doing::kUnknown;
  }

 private:
  Doing of_text(std::uint32_t text) const {
    if (text == 0) return Doing::kUnknown;
    const auto [found, fresh] = texts_.try_emplace(text, Doing::kUnknown);
    if (fresh) found->second = doing_of_text(trace_.sites->text(text));
    return found->second;
  }

  const Trace& trace_;
  std::span<const std::uint32_t> phases_;
  const CallSites& sites_;
  std::span<const StackHint> hints_;
  bool has_cpp_ = false;  // C++ frames tell backward
  mutable std::unordered_map<std::uint32_t, Doing> texts_;
};

// Adds an event to the stretch that is open, or opens one.
class Stretches {
 public:
  explicit Stretches(std::vector<Stretch>& out) : out_(out) {}
  void in(std::uint32_t event) {
    if (!open_) out_.push_back({event, event + 1, event});
    out_.back().last = event;
    open_ = true;
  }
  void out(std::uint32_t event) {
    if (open_) out_.back().end = event;
    open_ = false;
  }

 private:
  std::vector<Stretch>& out_;
  bool open_ = false;
};

// Steps that annotations name, joined with those that requests show.
void add_annotated_steps(const Trace& trace, std::vector<Stretch>& steps) {
  std::vector<Stretch> found;
  std::unordered_map<std::uint32_t, std::uint32_t> open;  // text to event
  for (const TraceMark& mark : trace.marks) {
    if (mark.kind != MarkKind::kPhaseBegin && mark.kind != MarkKind::kPhaseEnd) continue;
    if (doing_of_text(trace.sites->text(mark.text)) != Doing::kStep) continue;
    if (mark.kind == MarkKind::kPhaseBegin) {
      open[mark.text] = mark.event;
    } else if (const auto begun = open.find(mark.text); begun != open.end()) {
      found.push_back({begun->second, mark.event, mark.event});
      open.erase(begun);
    }
  }
  for (const auto& [text, event] : open)  // the recording ends inside
    found.push_back({event, static_cast<std::uint32_t>(trace.events.size()),
                     static_cast<std::uint32_t>(trace.events.size())});
  steps.insert(steps.end(), found.begin(), found.end());
  std::sort(steps.begin(), steps.end(),
            [](const Stretch& a, const Stretch& b) { return a.begin < b.begin; });
  std::vector<Stretch> joined;
  for (const Stretch& step : steps) {
    if (!joined.empty() && step.begin <= joined.back().end)
      joined.back().end = std::max(joined.back().end, step.end);
    else
      joined.push_back(step);
  }
  steps = std::move(joined);
}

// A trace without stacks: each hump of what comes and goes is a forward pass up and a backward
// pass down.
void passes_by_shape(const Trace& trace, std::span<const Lifetime> lives, Passes& passes) {
  const std::size_t count = trace.events.size();
  std::vector<std::uint64_t> live(count, 0);
  std::uint64_t now = 0;
  std::uint64_t most = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const TraceEvent& event = trace.events[i];
    if (freed_at(lives[event.block]) != Lifetime::kNever) {
      if (event.op == TraceOp::kAlloc) now += event.size_bytes;
      if (i == freed_at(lives[event.block])) now -= event.size_bytes;
    }
    live[i] = now;
    most = std::max(most, now);
  }
  // From a top above 60 % of the highest down to the next valley below 40 %.
  const std::uint64_t high = most / 5 * 3;
  const std::uint64_t low = most / 5 * 2;
  std::size_t top = count;
  std::size_t valley = count;
  const auto close = [&] {
    if (top < count && valley < count)
      passes.backward.push_back({static_cast<std::uint32_t>(top + 1),
                                 static_cast<std::uint32_t>(valley + 1),
                                 static_cast<std::uint32_t>(valley)});
  };
  for (std::size_t i = 0; i < count; ++i) {
    if (live[i] >= high && valley < count) {
      close();
      top = valley = count;
    }
    if (live[i] >= high && (top == count || live[i] >= live[top])) top = i;
    if (top < count && live[i] <= low && (valley == count || live[i] < live[valley])) valley = i;
  }
  close();
  // Setting up ends with the first block that goes again.
  passes.setup_end = passes.backward.empty() ? 0 : passes.backward.front().begin;
  for (const Lifetime& life : lives)
    if (freed_at(life) != Lifetime::kNever)
      passes.setup_end = std::min(passes.setup_end, life.alloc);
  for (std::uint32_t block = 0; block < trace.blocks; ++block) {
    const std::uint32_t at = lives[block].alloc;
    const Stretch* run = stretch_at_or_after(passes.backward, at);
    if (block >= trace.early_blocks)
      passes.doing[block] =
          run != nullptr && at >= run->begin ? Doing::kBackward : Doing::kForward;
  }
}

// Annotations of steps count where there are no stacks.
void take_annotated_steps(const Trace& trace, std::span<const Lifetime> lives, Passes& passes) {
  add_annotated_steps(trace, passes.steps);
  std::size_t step = 0;
  for (std::uint32_t block = trace.early_blocks; block < trace.blocks; ++block) {
    const std::uint32_t at = lives[block].alloc;
    while (step < passes.steps.size() && passes.steps[step].end <= at) ++step;
    if (step < passes.steps.size() && passes.steps[step].begin <= at)
      passes.doing[block] = Doing::kStep;
  }
  for (Stretch& run : passes.backward)
    for (const Stretch& each : passes.steps)
      if (each.begin > run.begin && each.begin < run.end) {
        run.end = each.begin;
        run.last = std::min(run.last, run.end);
      }
}

}  // namespace

Doing doing_of_text(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const Word& word : kWords)
    if (lower.find(word.text) != std::string::npos) return word.doing;
  return Doing::kUnknown;
}

const Stretch* stretch_at_or_after(const std::vector<Stretch>& stretches, std::uint32_t event) {
  const auto found = std::upper_bound(
      stretches.begin(), stretches.end(), event,
      [](std::uint32_t number, const Stretch& stretch) { return number < stretch.end; });
  return found == stretches.end() ? nullptr : &*found;
}

Passes find_passes(const Trace& trace, std::span<const Lifetime> lives,
                   std::span<const std::uint32_t> phases, const CallSites& sites,
                   std::span<const StackHint> hints) {
  Passes passes;
  passes.doing.assign(trace.blocks, Doing::kUnknown);
  if (has_no_history(trace)) return passes;  // blocks without order: they show no pass
  const DoingOf doing_of(trace, phases, sites, hints);
  passes.by_stack = doing_of.by_stack;
  if (!passes.by_stack) {
    passes_by_shape(trace, lives, passes);
    take_annotated_steps(trace, lives, passes);
    return passes;
  }
  Stretches backward(passes.backward);
  Stretches steps(passes.steps);
  bool begun = false;
  std::uint32_t number = 0;
  for (const TraceEvent& event : trace.events) {
    const std::uint32_t at = number++;
    if (event.op != TraceOp::kAlloc || event.block < trace.early_blocks) continue;
    const Doing doing = doing_of(event, at);
    passes.doing[event.block] = doing;
    if (doing == Doing::kBackward) {
      backward.in(at);
      steps.out(at);
    } else if (doing == Doing::kStep) {
      steps.in(at);
      backward.out(at);
    } else if (doing == Doing::kForward) {
      backward.out(at);
      steps.out(at);
    }
    const StackHint& hint = hints[trace.sites->site(event.site).stack];
    if (!begun &&
        ((doing == Doing::kForward && hint.module && !hint.weights) || doing == Doing::kBackward)) {
      begun = true;
      passes.setup_end = at;
    }
  }
  backward.out(number);
  steps.out(number);
  if (!begun) passes.setup_end = number;
  add_annotated_steps(trace, passes.steps);
  return passes;
}

}  // namespace tenon
