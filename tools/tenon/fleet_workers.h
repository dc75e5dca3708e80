// Pieces of work in processes of their own, so that one that takes all memory, or crashes, ends
// alone.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace tenon::command {

struct WorkerLimits {
  int processes = 1;               // at a time
  std::uint64_t memory_bytes = 0;  // that each may take
  double seconds = 0;              // the same; 0: no limit
};

struct WorkerJobs {
  std::function<std::optional<std::size_t>()> next;  // the job to begin; nothing: there are no more
  std::function<void(std::size_t job)> work;         // in a process that ends with it
  // In this process, once for each job; `failure` says how its process ended, or is empty.
  std::function<void(std::size_t job, const std::string& failure)> ended;
  // While jobs run, at least that often, where there is one. Other threads of this process may then
  // take signals, as those of MPI do.
  std::function<void()> meanwhile = {};
  std::chrono::milliseconds period = {};
};

// Runs jobs until `next` has no more. One whose process fails runs once more, when all others have
// ended, except one that takes too long. Workers end with this process, however it ends. Returns 0,
// or SIGINT, SIGTERM or SIGHUP, when one came: then the workers are ended first.
//
// Requires: the process has one thread, or others that hold no lock which `work` needs. Throws
// std::runtime_error with the message of what `work` threw, other than std::bad_alloc, after it has
// ended the other workers, and std::system_error where no process can be started.
int run_in_processes(const WorkerLimits& limits, const WorkerJobs& jobs);

}  // namespace tenon::command
