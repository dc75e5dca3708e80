// Many recordings side by side: which are unlike the others, what they have in common, and the
// settings of PyTorch's allocator that serve all. Thread-safe: pure functions of their arguments.
// The only error is lack of memory (std::bad_alloc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tenon/lab/fleet/file_answer.h"
#include "tenon/lab/fleet/found_files.h"

namespace tenon {

// A file and its answer.
struct FleetFile {
  std::string path;
  std::uint64_t bytes = 0;
  FileAnswer answer;
};

// What memory is used for, over all files.
struct FleetCause {
  std::string name;
  std::size_t files = 0;    // that have it
  std::uint64_t bytes = 0;  // in all of them
};

// A file that is far from the others (OddRule) in a figure.
struct FleetOutlier {
  std::size_t file = 0;
  std::string figure;  // "live peak in bytes"
  double value = 0;
  double median = 0;   // over all files
};

// What the files would reserve with some settings, over the files that have a replay.
struct FleetSetting {
  std::string conf;               // empty: PyTorch's defaults
  std::uint64_t total_bytes = 0;  // the sum of the files' reserved peaks
  std::uint64_t most_bytes = 0;   // of one file
  std::size_t most_file = 0;
  std::size_t worse_files = 0;    // that reserve more than with the settings they ran with
  std::uint64_t most_worse_bytes = 0;
  std::size_t most_worse_file = 0;
};

// The files side by side.
struct FleetComparison {
  std::vector<std::size_t> read;        // files with an answer
  std::vector<std::size_t> no_history;  // of these, those that count in `states` alone
  std::vector<std::size_t> judged;      // of these, the others
  std::vector<std::size_t> unread;      // files without an answer
  std::vector<std::size_t> replayed;
  std::vector<FleetCause> states;      // verdict_state_name(); bytes are live peaks
  std::vector<FleetCause> causes;      // each file's main one; most files first, as all of these
  std::vector<FleetCause> categories;  // live at the peaks
  std::vector<FleetCause> sites;
  std::vector<FleetCause> losses;      // reserved and not requested
  std::vector<FleetCause> changes;     // what would save most in a file; bytes: saved
  std::vector<FleetOutlier> outliers;  // farthest first
  FleetSetting recorded;               // each file's own
  FleetSetting least_each;             // each file's least, with any setting that was tried
  std::vector<FleetSetting> settings;  // that all replayed files can use; least in all first
  std::size_t for_all = 0;             // in `settings`: the one that serves all
};

// Settings whose total is within this share of the least count as equal. Of those the one with
// fewest keys serves all, then the one with the least total, then the first by its text.
inline constexpr double kEqualTotals = 0.005;

// `settings`: FileQuestion::settings() of the answers. Figures do not depend on the order of work.
// O(files * (settings + log files)).
FleetComparison compare_fleet(const std::vector<FleetFile>& files,
                              const std::vector<std::string>& settings);

// All that is known of a folder.
struct FleetReport {
  std::vector<FleetFile> files;  // by path
  std::vector<LeftOutFile> left_out;
  FileQuestion question;
  FleetComparison comparison;    // of these
};

// As Markdown, names escaped, and as one object of JSON.
std::string fleet_text(const FleetReport& report);
std::string fleet_json(const FleetReport& report);

}  // namespace tenon
