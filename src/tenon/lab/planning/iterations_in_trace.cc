#include "tenon/lab/planning/iterations_in_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <span>
#include <utility>

#include "tenon/base/hash.h"
#include "tenon/lab/planning/iterations.h"

namespace tenon {
namespace {

constexpr std::size_t kFewest = 2;

std::string lower_without_digits(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (!std::isdigit(static_cast<unsigned char>(c)))
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

bool names_a_step(std::string_view name) {
  return name.find("step") != std::string_view::npos ||
         name.find("iteration") != std::string_view::npos;
}

// ------------------------------------------------------------------------------------------------
// Stretches that the program named

TraceIterations by_marks(const Trace& trace) {
  std::map<std::string, std::vector<std::size_t>> ends;
  for (const TraceMark& mark : trace.marks)
    if (mark.kind == MarkKind::kPhaseEnd)
      ends[lower_without_digits(trace.sites->text(mark.text))].push_back(mark.event);
  TraceIterations found;
  const auto is_optimizer = [](const std::string& name) {
    return name.find("optimizer") != std::string::npos;
  };
  const std::string* chosen = nullptr;
  for (const auto& [name, places] : ends) {
    if (!names_a_step(name) || places.size() < kFewest) continue;
    const bool better =
        chosen == nullptr ||
        std::pair(is_optimizer(name), places.size()) >
            std::pair(is_optimizer(*chosen), ends.at(*chosen).size());
    if (better) chosen = &name;
  }
  if (chosen == nullptr) return found;
  found.ends = ends.at(*chosen);
  found.found_by = fmt::format("the ends of \"{}\"", *chosen);
  return found;
}

// ------------------------------------------------------------------------------------------------
// Steps of an optimizer in call stacks

bool is_of_optimizers(const SiteTable& sites, const Frame& frame) {
  const std::string file = lower_without_digits(sites.text(frame.file));
  if (file.find("lr_scheduler") != std::string::npos) return false;
  return file.find("/optim/") != std::string::npos || file.find("optimizer") != std::string::npos;
}

bool is_optimizer_step(const SiteTable& sites, const Frame& frame) {
  const std::string_view function = sites.text(frame.function);
  const bool steps = function == "step" || function.ends_with(".step") || function == "_step";
  return steps && is_of_optimizers(sites, frame);
}

// What a call stack tells of steps.
constexpr std::uint32_t kSilent = ~std::uint32_t{0};  // no frames of Python: backward's thread
constexpr std::uint32_t kNoStep = kSilent - 1;

// The program's line that called the outermost step of an optimizer, or one of the above.
std::uint32_t stepping_line(const SiteTable& sites, std::span<const std::uint32_t> frames) {
  bool python = false;
  for (std::size_t i = frames.size(); i-- > 0;) {
    const Frame& frame = sites.frame(frames[i]);
    python |= sites.text(frame.file).ends_with(".py");
    if (!is_optimizer_step(sites, frame)) continue;
    for (std::size_t caller = i + 1; caller < frames.size(); ++caller) {
      const Frame& outer = sites.frame(frames[caller]);  // not the optimizers' own wrappers
      if (sites.text(outer.file).ends_with(".py") && !is_of_optimizers(sites, outer))
        return frames[caller];
    }
    return frames[i];
  }
  return python ? kNoStep : kSilent;
}

std::vector<std::uint32_t> stepping_lines(const SiteTable& sites) {
  std::vector<std::uint32_t> by_stack;
  for (std::uint32_t stack = 0; stack < sites.stacks(); ++stack)
    by_stack.push_back(stepping_line(sites, sites.stack(stack)));
  std::vector<std::uint32_t> by_site;
  for (std::uint32_t site = 0; site < sites.sites(); ++site)
    by_site.push_back(by_stack.at(sites.site(site).stack));
  return by_site;
}

TraceIterations by_stacks(const Trace& trace) {
  const std::vector<std::uint32_t> lines = stepping_lines(*trace.sites);
  std::map<std::uint32_t, std::vector<std::size_t>> ends;  // by line
  std::uint32_t last = kNoStep;
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    if (trace.events[i].op != TraceOp::kAlloc) continue;
    const std::uint32_t line = lines[trace.events[i].site];
    if (line == kSilent) continue;
    if (line != kNoStep && line != last) ends[line].push_back(i + 1);
    if (line != kNoStep) ends[line].back() = i + 1;
    last = line;
  }
  TraceIterations found;
  std::uint32_t chosen = kNoStep;
  for (const auto& [line, places] : ends)
    if (chosen == kNoStep || places.size() > ends.at(chosen).size()) chosen = line;
  if (chosen == kNoStep || ends.at(chosen).size() < kFewest) return found;
  found.ends = ends.at(chosen);
  found.found_by = fmt::format("what the optimizer's step allocates, called from {}",
                               trace.sites->frame_label(chosen));
  return found;
}

// ------------------------------------------------------------------------------------------------
// Proof of periodicity

// A number for each event that is equal for events that are alike: see find_iterations_in.
std::vector<std::uint64_t> tokens_of(const Trace& trace) {
  std::vector<std::uint32_t> allocated_at(trace.blocks, 0);
  std::vector<std::uint64_t> tokens;
  tokens.reserve(trace.events.size());
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const TraceEvent& event = trace.events[i];
    RunningHash token;
    token.add(static_cast<std::uint64_t>(event.op));
    token.add(event.size_bytes);
    token.add(event.stream);
    if (event.op == TraceOp::kAlloc)
      allocated_at[event.block] = static_cast<std::uint32_t>(i);
    else
      token.add(i - allocated_at[event.block]);
    tokens.push_back(token.value());
  }
  return tokens;
}

// Whether the bytes of the last `period` events come and go: they may grow or shrink by a third of
// what is allocated.
bool returns(const Trace& trace, std::size_t period) {
  std::uint64_t allocated = 0;
  std::uint64_t freed = 0;
  for (std::size_t i = trace.events.size() - period; i < trace.events.size(); ++i) {
    const TraceEvent& event = trace.events[i];
    if (event.op == TraceOp::kAlloc) allocated += event.size_bytes;
    if (event.op == TraceOp::kFreeCompleted) freed += event.size_bytes;
  }
  const std::uint64_t change = std::max(allocated, freed) - std::min(allocated, freed);
  return allocated > 0 && change <= allocated / 3;
}

// The number of events after which the fewest bytes are live, in the run's last period.
std::size_t lowest_end(const Trace& trace, std::size_t period) {
  const std::size_t count = trace.events.size();
  std::int64_t live = 0;
  std::int64_t least = 0;
  std::size_t end = count;
  for (std::size_t i = count; i-- > count - period + 1;) {  // backwards from the end
    const TraceEvent& event = trace.events[i];
    if (event.op == TraceOp::kAlloc) live -= static_cast<std::int64_t>(event.size_bytes);
    if (event.op == TraceOp::kFreeCompleted) live += static_cast<std::int64_t>(event.size_bytes);
    if (live < least) {
      least = live;
      end = i;
    }
  }
  return end;
}

TraceIterations by_proof(const Trace& trace) {
  TraceIterations found;
  const std::size_t count = trace.events.size();
  const auto run = find_iterations(tokens_of(trace));
  const std::size_t recorded = count - trace.early_blocks;  // older blocks come first
  if (!run || 2 * (count - run->begin) < recorded || !returns(trace, run->period)) return found;
  for (std::size_t end = lowest_end(trace, run->period); end >= run->begin + run->period;
       end -= run->period)
    found.ends.push_back(end);
  std::reverse(found.ends.begin(), found.ends.end());
  found.found_by = fmt::format("a sequence of {} events that repeats itself to the end of the "
                               "recording, sizes, streams and lifetimes alike",
                               run->period);
  return found;
}

}  // namespace

TraceIterations find_iterations_in(const Trace& trace) {
  for (const auto finder : {&by_marks, &by_stacks, &by_proof})
    if (TraceIterations found = finder(trace); !found.ends.empty()) return found;
  return {};
}

}  // namespace tenon
