// One round of the stress test: a fresh device and allocator, and threads that use them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "rigs/stress/exchange.h"
#include "rigs/stress/program.h"
#include "tenon/base/random.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/heap/plan.h"
#include "tenon/memory/policies.h"

namespace tenon {

struct RoundResult {
  std::uint64_t operations = 0;     // allocations and frees that were made
  std::uint64_t out_of_memory = 0;  // requests refused
  std::uint64_t device_errors = 0;  // calls that a failing driver broke off
  std::uint64_t exchanged = 0;      // blocks freed by another thread than their own
  std::uint64_t threads = 0;        // that began and ended
  std::uint64_t polls = 0;          // questions that another thread asked meanwhile
  std::uint64_t forks = 0;          // each child used the allocator
  std::string violation;            // empty: every byte was right, and nothing leaked

  // Of two violations the first stays.
  RoundResult& operator+=(const RoundResult& other);
};

// A fresh device and allocator, and threads that use them at once. Each thread runs the same kSteps
// steps `iterations` times and frees all it holds in between, as training does; so plans and caches
// meet what they are made for. The seed draws what the round is like: on the simulated device, with
// memory short or not and driver calls failing now and then, or (odd seeds) on the host; each
// thread on a stream of its own, or all on one. Contents are real either way (Marks).
//
// A thread lives for a few iterations; then another goes on in its place. Meanwhile the calling
// thread asks for statistics every 200 us, and forks where the policy serves a child (`host` on the
// host): the child allocates on two threads, trims, and checks the allocator.
//
// A round that hangs ends the process: no operation for kHangSeconds, or a child for as long.
class Round {
 public:
  static constexpr std::uint64_t kSteps = 8192;
  static constexpr unsigned kHangSeconds = 120;

  Round(const Policy& policy, std::uint64_t seed, unsigned threads, std::uint64_t iterations);
  RoundResult run();

 private:
  // The thread that works in one place, and how far it is.
  struct Place;

  void make_device();
  std::uint64_t program_seed(unsigned place) const { return seed_ * 64 + place; }
  Plan record_plan() const;

  // --- The workers.
  void work(unsigned place, std::uint64_t begin, std::uint64_t end, RoundResult& counts);
  void iterate(unsigned place, std::uint64_t iteration, std::vector<HeldBlock>& slots,
               RoundResult& counts);
  void make_step(const ProgramStep& step, HeldBlock& held, unsigned place, std::uint64_t number,
                 RoundResult& counts);
  void allocate(HeldBlock& held, std::uint64_t size_bytes, Stream stream, std::uint64_t number);
  bool check_and_free(HeldBlock& held, unsigned place);
  bool use_elsewhere(HeldBlock& held);
  void shake(std::uint64_t draw);
  std::uint64_t try_free(HeldBlock& held, unsigned place, RoundResult& counts);
  std::uint64_t free_some(std::vector<HeldBlock>& slots, std::uint64_t from, std::uint64_t most,
                          unsigned place, RoundResult& counts);

  // --- The calling thread.
  void supervise(std::vector<Place>& places);
  void poll();
  void fork_a_child();
  void finish();
  void report(std::string violation);

  const std::uint64_t seed_;
  const unsigned threads_;
  const std::uint64_t iterations_;
  const bool forks_;
  Random random_;
  std::uint64_t capacity_bytes_ = 0;
  double failure_rate_ = 0;
  std::unique_ptr<Backend> device_;
  SimBackend* sim_ = nullptr;  // the device, if it is simulated
  std::vector<Stream> streams_;  // by place
  Stream elsewhere_;
  std::optional<Plan> plan_;
  std::unique_ptr<DeviceAllocator> allocator_;
  Exchange exchange_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> shares_{true};          // record_stream is served
  std::atomic<std::uint64_t> progress_{0};  // rises while operations are made
  std::mutex mutex_;                        // guards result_
  RoundResult result_;
};

}  // namespace tenon
