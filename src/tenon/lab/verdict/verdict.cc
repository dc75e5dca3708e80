#include "tenon/lab/verdict/verdict.h"

#include <fmt/format.h>

#include <algorithm>

#include "tenon/base/byte_size.h"
#include "tenon/lab/verdict/changes.h"
#include "tenon/lab/verdict/early_blocks.h"

namespace tenon {
namespace {

std::string percent(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return "0 %";
  const double share = 100.0 * static_cast<double>(part) / static_cast<double>(whole);
  return share < 1 ? "under 1 %" : fmt::format("{:.0f} %", share);
}

Verdict::State state_of(FailureReason reason) {
  switch (reason) {
    case FailureReason::kLiveTooLarge:
      return Verdict::State::kTooLarge;
    case FailureReason::kFragmented:
      return Verdict::State::kFragmented;
    case FailureReason::kLimited:
      return Verdict::State::kLimited;
    case FailureReason::kUnknown:
      break;
  }
  return Verdict::State::kFailed;
}

const char* doing_words(Doing doing) {
  static constexpr const char* kWords[] = {"", "in the forward pass", "in the backward pass",
                                           "in the optimizer's step"};
  return kWords[static_cast<std::size_t>(doing)];
}

// What asked for memory last before the moment.
Doing doing_at(const TraceFacts& facts, std::size_t events) {
  for (std::size_t i = events; i-- > 0;) {
    const TraceEvent& event = facts.trace.events[i];
    if (event.op == TraceOp::kAlloc) return facts.categories.passes.doing[event.block];
  }
  return Doing::kUnknown;
}

void say_failure(const OutOfMemoryReport& failure, Verdict& out) {
  const std::string site = failure.call_site.empty() ? ""
                           : failure.stack.empty()   ? " by a call that has no stack"
                                                     : " by " + failure.call_site;
  std::string why;
  switch (out.state) {
    case Verdict::State::kTooLarge:
      why = fmt::format(
          "The program itself needs {} more than the {} there are; no allocator "
          "setting changes that.",
          format_byte_size(failure.missing_bytes), format_byte_size(failure.capacity_bytes));
      break;
    case Verdict::State::kFragmented:
      why = fmt::format(
          "The request would have fitted into the {} there are: fragmentation failed it. {} were "
          "free, {} in the largest piece. With the request served, {} are left for what the "
          "program asks for next, which is not recorded.",
          format_byte_size(failure.capacity_bytes),
          format_byte_size(failure.fragmentation.free_bytes()),
          format_byte_size(failure.fragmentation.largest_free_bytes),
          format_byte_size(failure.capacity_bytes - out.peak_bytes));
      break;
    case Verdict::State::kLimited:
      why = fmt::format(
          "The driver still had {}: a limit (per_process_memory_fraction) or "
          "another process stood before it. A limit of {} would have let the request pass.",
          format_byte_size(failure.device_free_bytes.value_or(0)),
          format_byte_size(failure.reserved_bytes + failure.segment_bytes));
      break;
    default:
      why = failure.fragmentation.largest_free_bytes >= failure.request_bytes &&
                    failure.request_bytes > 0
                ? "The recording contradicts itself: a free piece was large enough."
                : "The recording does not say how much memory the device had left.";
      break;
  }
  out.sentences.push_back(
      fmt::format("Out of memory: {} were asked for{} while {} were live, {} together. {}",
                  format_byte_size(failure.request_bytes), site,
                  format_byte_size(failure.live_bytes), format_byte_size(out.peak_bytes), why));
}

void say_peak(const VerdictInput& input, std::size_t events, Verdict& out) {
  if (out.state == Verdict::State::kNoHistory) {
    out.sentences.push_back(fmt::format(
        "The recording holds no history: {} were live when it was taken. It does not say what came "
        "before, nor whether an allocation failed.",
        format_byte_size(out.peak_bytes)));
    return;
  }
  const char* when = doing_words(doing_at(input.facts, events));
  out.sentences.push_back(fmt::format("No allocation failed. The live peak is {}{}{}.",
                                      format_byte_size(out.peak_bytes), *when == '\0' ? "" : ", ",
                                      when));
}

void say_contents(const LiveSet& live, Verdict& out) {
  constexpr std::size_t kNamed = 4;
  if (live.bytes == 0) return;
  std::string list;
  for (std::size_t i = 0; i < live.by_category.size() && i < kNamed; ++i) {
    const CategoryGroup& group = live.by_category[i];
    if (i > 0 && group.bytes * 100 < live.bytes) break;
    const bool guess = group.category != Category::kUnknown &&
                       2 * group.confidence_bytes[static_cast<std::size_t>(Confidence::kGuess)] >
                           group.bytes;
    list += fmt::format("{}{} {} ({}{})", i == 0 ? "" : ", ", group.name,
                        percent(group.bytes, live.bytes), format_byte_size(group.bytes),
                        guess ? ", a guess" : "");
  }
  out.sentences.push_back(fmt::format("What was live: {}.", list));
  const CategoryGroup& first = live.by_category.front();
  if (!first.sites.empty() && first.sites.front().bytes < live.bytes)
    out.sentences.push_back(
        fmt::format("The most of the {}: {} in {} block{}, {}.", first.name,
                    format_byte_size(first.sites.front().bytes), first.sites.front().blocks,
                    first.sites.front().blocks == 1 ? "" : "s", first.sites.front().name));
}

// What rises from iteration to iteration, where it is a good part of what was live.
bool say_growth(const Growth& growth, Verdict& out) {
  if (!matters(growth, out.peak_bytes)) return false;
  const GrowingSite& most = growth.suspects.front();
  std::string older;
  if (most.older_bytes > 0)
    older = fmt::format(" Of these, {} are older than the recording, in blocks of the same sizes.",
                        format_byte_size(most.older_bytes));
  out.sentences.push_back(fmt::format(
      "Memory grows: {} held {} after its second iteration and {} after the last of {}, {} more "
      "each time.{} What an iteration leaves behind fills any card in the end.",
      most.name, format_byte_size(most.first_bytes), format_byte_size(most.last_bytes),
      growth.iterations, format_byte_size(static_cast<std::uint64_t>(most.bytes_per_iteration)),
      older));
  return true;
}

void say_reserved(const VerdictInput& input, Verdict& out) {
  const std::uint64_t live = input.at_peak.bytes;
  if (!input.reserved_known || input.reserved_peak_bytes <= live || live == 0) return;
  const std::uint64_t over = input.reserved_peak_bytes - live;
  const bool still = has_no_history(input.facts.trace);
  out.sentences.push_back(
      fmt::format("PyTorch held {}{}, {} ({}) more than was {}live{}.", still ? "" : "at most ",
                  format_byte_size(input.reserved_peak_bytes), format_byte_size(over),
                  percent(over, live), still ? "" : "ever ", still ? " then" : ""));
  if (input.times_full > 0)
    out.sentences.push_back(fmt::format(
        "{} time{} the device was full: PyTorch gave cached memory back to serve a request, which "
        "waits for the device. tenon advise searches settings with which less is lost.",
        input.times_full, input.times_full == 1 ? "" : "s"));
}

void say_what_is_open(const VerdictInput& input, Verdict& out) {
  const Trace& trace = input.facts.trace;
  std::uint64_t early = 0;
  for (std::uint32_t block = 0; block < trace.early_blocks; ++block)
    if (input.facts.lives[block].live_after(input.peak_events))
      early += input.facts.lives[block].size_bytes;
  if (has_no_history(trace)) {
    out.cannot_tell.emplace_back(
        "Without history the peaks, the lives of blocks and the iterations are not known. Reserved "
        "memory is as it was when the snapshot was taken. Only blocks with a call stack have a "
        "category. Call torch.cuda.memory._record_memory_history() before the model is "
        "built.");
  } else if (early * 20 > out.peak_bytes) {
    out.cannot_tell.push_back(
        fmt::format("{} of the peak are older than the recording. Those without a call stack have "
                    "a category that follows from their sizes. Begin to record before the model "
                    "is built, with a max_entries that holds all events.",
                    format_byte_size(early)));
  }
  if (!input.facts.categories.passes.by_stack && !has_no_history(trace))
    out.cannot_tell.emplace_back(
        "The recording has no call stacks: categories follow from sizes, order and lives alone.");
  if (!input.facts.has_times && !has_no_history(trace))
    out.cannot_tell.emplace_back(
        "The recording has no times (PyTorch before 2.2): ages count events.");
}

// Whether what a change leaves live is less than there is, where more than that was the reason.
std::string fits(const Change& change, const OutOfMemoryReport* failure) {
  if (failure == nullptr || failure->reason != FailureReason::kLiveTooLarge || change.reserved)
    return "";
  return change.peak_bytes <= failure->capacity_bytes ? ", which fits" : ", still too much";
}

// After a change of the settings: which settings were compared.
constexpr const char* kCompared =
    "Only this setting was compared with the recorded ones: tenon advise searches the others.";

// `grows`: the first change ends the growth, and the others put its end off.
void say_changes(const OutOfMemoryReport* failure, bool grows, Verdict& out) {
  for (const Change& change : out.changes) {
    const bool puts_off = grows && &change != &out.changes.front();
    if (change.lets_pass) {
      out.sentences.push_back(fmt::format("The request is served after: {} (by replay{}). {}",
                                          change.what, puts_off ? "; later ones are not" : "",
                                          kCompared));
      continue;
    }
    out.sentences.push_back(
        fmt::format("To save {}{}: {} (then {}{}{}{}).{}{}", format_byte_size(change.saves_bytes),
                    change.reserved ? " of reserved memory" : "", change.what,
                    format_byte_size(change.peak_bytes), change.reserved ? " reserved" : "",
                    puts_off ? ", until growth fills it" : fits(change, failure),
                    change.guess ? "; a guess, as the categories of these blocks are" : "",
                    change.reserved ? " " : "", change.reserved ? kCompared : ""));
  }
}

}  // namespace

Verdict verdict(const VerdictInput& input) {
  Verdict out;
  const OutOfMemoryReport* failure = input.failures.empty() ? nullptr : &input.failures.back();
  const std::size_t events = failure == nullptr ? input.peak_events : failure->events;
  const LiveSet& live = failure == nullptr ? input.at_peak : failure->live;
  out.moment = failure == nullptr ? "at the live peak" : "at the failure";
  out.peak_bytes = live.bytes + (failure == nullptr ? 0 : failure->request_bytes);
  if (failure != nullptr) {
    out.state = state_of(failure->reason);
    say_failure(*failure, out);
  } else {
    if (has_no_history(input.facts.trace)) out.state = Verdict::State::kNoHistory;
    say_peak(input, events, out);
  }
  out.contradiction = input.contradiction;
  if (!out.contradiction.empty()) out.sentences.push_back(out.contradiction);
  const bool grows = say_growth(input.growth, out);
  say_contents(live, out);
  say_reserved(input, out);
  out.changes = find_changes(input, failure);
  const std::uint64_t over =
      input.reserved_peak_bytes - std::min(input.reserved_peak_bytes, input.at_peak.bytes);
  const bool seen = !has_no_history(input.facts.trace) && out.contradiction.empty();
  const bool small_rest =
      !input.reserved_known || input.at_peak.bytes == 0 || over * 4 <= input.at_peak.bytes;
  out.nothing_needed = failure == nullptr && seen && small_rest && !grows;
  if (out.nothing_needed)
    out.sentences.emplace_back(
        "Nothing has to be changed for it to run. What would need less memory:");
  if (out.nothing_needed && out.changes.empty())
    out.sentences.back() = "Nothing has to be changed.";
  say_changes(failure, grows, out);
  say_what_is_open(input, out);
  return out;
}

}  // namespace tenon
