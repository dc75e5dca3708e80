// One schedule against one policy on a simulated device that watches the stream rule.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rigs/schedules/broken.h"
#include "rigs/schedules/schedule.h"
#include "rigs/schedules/second_thread.h"

namespace tenon {

struct TrialResult {
  // Breaches of the stream rule (OrderChecker); then what went wrong besides: an exception that no
  // policy may throw here, broken invariants, blocks or driver memory left over. Empty: all is
  // well.
  std::vector<std::string> faults;
  std::uint64_t operations = 0;     // steps that did something
  std::uint64_t out_of_memory = 0;  // requests refused
  std::uint64_t lost = 0;           // calls that the breakage lost
};

// Runs schedules against a policy, whole or broken, each on a device and an allocator of its own.
// The program does what it owes: a stream works on another's block only after waiting for it, and
// tells the allocator (or, where a policy knows no record_stream, makes the block's own stream wait
// before the free). So every fault is the allocator's. A second thread takes its steps in turn.
// The same schedule gives the same result. Not thread-safe; several may run side by side.
class Trial {
 public:
  // Throws InvalidArgument for an unknown policy.
  explicit Trial(std::string policy, Breakage breakage = Breakage::kNone);

  TrialResult run(const Schedule& schedule);

 private:
  const std::string policy_;
  const Breakage breakage_;
  const bool lends_;  // the policy knows record_stream for other streams
  SecondThread second_thread_;
};

// A shorter schedule that fails as well, found by leaving out ever smaller parts: no single step
// can be left out of it. About 2 n log n runs for n steps. Requires: run(schedule) has faults.
Schedule shrink(Schedule schedule, Trial& trial);

}  // namespace tenon
