// Records everything that a program allocates, by a scope or by the environment. O(events).
#pragma once

#include <memory>
#include <string>

#include "tenon/trace/recorder.h"

namespace tenon {

// From here to its end, records all allocators of the process, also those made meanwhile. Then
// writes the file: .csv or .csv.zst (for `tenon replay`, with columns thread, device and tag),
// .json or .pickle. The last two are for Perfetto or chrome://tracing, and PyTorch's snapshot
// format with call stacks. Without options of your own, stacks are taken for .pickle only.
//
//   {
//     RecordingScope recording("step.csv.zst");
//     train_one_step();
//   }
//
// The same for a whole program: TENON_RECORD=run.csv.zst in its environment. Where an allocation
// fails, what was recorded until then is written at once, beside it: run.oom.csv.zst. Several
// processes with one such name keep each other's files (RecordingPlace). A forked child that ends
// by exit writes what it did since the fork.
//
// What with_scope places inside an arena's chunk is seen as the chunk. Thread-safe as Recorder is;
// scopes nest.
class RecordingScope {
 public:
  explicit RecordingScope(std::string path);
  // Throws InvalidArgument for a path whose ending names no format.
  RecordingScope(std::string path, RecorderOptions options);
  // Writes; what goes wrong is said on standard error.
  ~RecordingScope();
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;

  // Ends the recording and writes now. Throws std::runtime_error when the file cannot be written.
  void finish();
  // The same into `path`, but a recording without events replaces no file: a program's helpers,
  // which record nothing, would write over what the program recorded. A forked child without events
  // writes none at all. Returns whether it wrote.
  bool finish_unless_empty(const std::string& path);
  void keep_no_failure() { recorder_.keep_no_failure(); }

 private:
  void stop_watching();

  const std::string path_;
  Recorder recorder_;
  bool watching_ = true;
};

// What RecordingScope(path) records.
RecorderOptions recording_options(const std::string& path);

// For a program that must not end with success while the recording that TENON_RECORD asks for is
// lost. A line on standard error has said why; without this call too.
bool recording_of_environment_is_lost();
// Writes that recording now instead of at exit. False: it is lost.
bool keep_recording_of_environment();
// For a program that tries what fails: its failed allocations are answers and write no file.
void keep_no_failure_of_environment();

}  // namespace tenon
