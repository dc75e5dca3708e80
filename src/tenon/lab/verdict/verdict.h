// The answer in a few sentences: what fills the memory, what to change, and what that saves.
// Thread-safe: pure functions of their arguments. Throws Interrupted where the thread's work is
// asked to stop, and std::bad_alloc. A change that cannot be measured is left out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tenon/lab/explain/growth.h"
#include "tenon/lab/explain/live_set.h"
#include "tenon/lab/explain/out_of_memory.h"

namespace tenon {

// Something to change in the program, and what the trace would be with it.
struct Change {
  std::string what;              // "checkpoint the repeated layers"
  std::string how;               // "torch.utils.checkpoint; 2.1 GiB of activations ..."
  std::uint64_t saves_bytes = 0; // of the peak
  std::uint64_t peak_bytes = 0;  // then
  bool reserved = false;         // both figures are of reserved memory, not of live bytes
  bool lets_pass = false;        // the request that failed is served with it, by replay
  bool guess = false;            // most bytes are of blocks whose category is a guess
  std::string measured;          // "what-if: the trace without these bytes"
};

// The answer in sentences.
struct Verdict {
  // Whether an allocation failed, and why.
  enum class State : std::uint8_t {
    kPassed,        // no allocation failed
    kNoHistory,     // the recording does not say whether one failed
    kTooLarge,      // what was live did not fit
    kFragmented,    // it would have fitted in one piece
    kLimited,       // a limit stood before free memory
    kFailed,        // the recording does not say why
  };
  State state = State::kPassed;
  std::string moment;                  // "at the failure", "at the live peak"
  std::uint64_t peak_bytes = 0;        // live, with the request that failed
  std::vector<std::string> sentences;  // in order; the first says what happened
  std::vector<Change> changes;         // most first, at most four
  bool nothing_needed = false;
  std::string contradiction;             // the sentence that says so, also among `sentences`
  std::vector<std::string> cannot_tell;  // what the recording leaves open
};

// As the JSON has it.
constexpr const char* verdict_state_name(Verdict::State state) {
  constexpr const char* kNames[] = {"passed",     "no_history", "too_large",
                                    "fragmented", "limited",    "failed"};
  return kNames[static_cast<std::size_t>(state)];
}

// What the verdict is about, beside the trace's facts.
struct VerdictInput {
  const TraceFacts& facts;
  const LiveSet& at_peak;
  std::size_t peak_events = 0;
  const std::vector<OutOfMemoryReport>& failures;
  const Growth& growth;
  bool reserved_known = false;
  std::uint64_t reserved_peak_bytes = 0;
  std::string contradiction;  // a sentence: contradiction() in advice/recorded_settings.h
  std::size_t times_full = 0;  // times_full() in advice/recorded_settings.h
  std::string conf;         // the settings that the recording ran with
  bool replay = true;       // measure settings by replay
};

// Each figure of a change is measured: the trace is run again with the blocks in question smaller
// or gone, or replayed with another setting. O(events) for each of about ten changes.
Verdict verdict(const VerdictInput& input);

}  // namespace tenon
