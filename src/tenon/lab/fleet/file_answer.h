// What a report over many recordings needs of one of them. Thread-safe. O(events) for each replay.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tenon/lab/advice/torch_settings.h"

namespace tenon {

// How each recording is asked.
struct FileQuestion {
  double effort = 0.1;                // of the search for its best settings: AdviceOptions
  std::optional<TorchVersion> torch;  // none: what each file tells

  // The settings that are replayed over every file: the coarse list of tenon advise, PyTorch's
  // defaults first, for the version given, else for kAssumedTorch.
  std::vector<std::string> settings() const;
  // Different for questions whose answers differ.
  std::string text() const;
};

// One recording, explained and advised. Of several devices, what is explained is the one with the
// highest live peak, of those with a history if one has it. Figures of replays are sums over all.
struct FileAnswer {
  std::string error;  // why there is no answer; the rest is empty then

  std::uint64_t devices = 0;
  std::uint64_t events = 0;
  std::uint64_t live_peak_bytes = 0;
  std::optional<std::uint64_t> reserved_peak_bytes;  // as recorded
  std::string state;        // verdict_state_name()
  std::string verdict;      // its first sentence
  std::string contradiction;  // Verdict::contradiction
  std::string cause;        // of the peak or of the failure, in words that files have in common
  std::uint64_t cause_bytes = 0;
  std::map<std::string, std::uint64_t> categories;  // bytes live at the peak
  std::map<std::string, std::uint64_t> sites;       // the same: the largest call sites
  std::map<std::string, std::uint64_t> losses;      // reserved and not requested, at the end of
                                                    // the recording or at its reserved peak
  std::string change;       // what would save most
  std::uint64_t change_saves_bytes = 0;

  bool replayed = false;    // else there is nothing below
  std::string recorded_conf;
  std::uint64_t recorded_reserved_bytes = 0;  // replayed with the settings it ran with
  std::string best_conf;                      // as tenon advise has it; it may be the recorded one
  std::uint64_t best_reserved_bytes = 0;
  bool best_differs = false;
  // With each of FileQuestion::settings(); none: a request is refused, or that system's PyTorch
  // does not have the setting.
  std::vector<std::optional<std::uint64_t>> reserved_bytes;

  // Of `state`: whether the recording says what happened. Else all bytes are those of one moment.
  bool has_history() const;
};

// An answer that says why there is none.
inline FileAnswer no_answer(std::string reason) {
  FileAnswer answer;
  answer.error = std::move(reason);
  return answer;
}

// Reads, explains and advises on one thread. What is wrong with the file becomes `error`, which
// names it by `path`. Throws std::bad_alloc where memory is what is missing, and FileUnreadable.
FileAnswer answer_file(const std::string& path, const FileQuestion& question);

// As one object of JSON, and back; nothing where the text is none of an answer.
std::string file_answer_json(const FileAnswer& answer);
std::optional<FileAnswer> parse_file_answer(const std::string& json);

}  // namespace tenon
