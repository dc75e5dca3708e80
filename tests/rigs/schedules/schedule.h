// A program of device work, made at random: what streams, blocks and waits can do to an allocator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tenon {

// One thing that the program does. A step that names a block which is not there (its request was
// left out, or failed) does nothing, so any part of a schedule is a schedule.
struct ScheduleStep {
  enum class Kind : std::uint8_t {
    kAllocate,    // `block` of `size_bytes` on `stream`, which then writes it
    kUse,         // the block's own stream works on it
    kLend,        // so does `stream`, after record_stream: the free need not wait for it
    kBorrow,      // so does `stream`, and the block's own stream is made to wait for that
    kFree,        // `block`
    kStreamWait,  // `stream` waits for all that `other` was given so far
    kHostWait,    // the host waits for `stream`
    kEmptyCache,
  };
  Kind kind = Kind::kUse;
  std::uint8_t stream = 0;
  std::uint8_t other = 0;
  bool on_second_thread = false;
  std::uint32_t block = 0;       // the number of its request
  std::uint64_t size_bytes = 0;
  std::uint64_t pause_ns = 0;    // the host does other things first
};

struct Schedule {
  std::uint64_t seed = 0;
  std::uint32_t streams = 1;
  std::uint64_t lag_ns = 0;          // of the device's streams behind the host
  std::uint64_t capacity_bytes = 0;  // of the device
  std::uint64_t page_bytes = 0;      // PolicyOptions
  std::string conf;                  // PolicyOptions
  bool plan_fits = true;             // `plan` was recorded from this program, not from another
  std::vector<ScheduleStep> steps;
};

// The schedule of a seed: the same on every machine. Each draws first what kind of schedule it is
// (how many streams, how far they lag, which sizes, whether memory is short, how often each kind of
// step comes, whether a second thread takes part), so that the rare combinations come up too: swarm
// testing (Groce et al., ISSTA 2012). 10 to 200 steps. O(steps).
Schedule random_schedule(std::uint64_t seed);

// One line for the setting and one for each step.
std::string to_string(const Schedule& schedule);

}  // namespace tenon
