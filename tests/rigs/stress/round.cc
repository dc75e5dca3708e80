#include "rigs/stress/round.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>
#include <utility>

#include "rigs/stress/forked_child.h"
#include "rigs/stress/marks.h"
#include "tenon/base/error.h"
#include "tenon/device/host/host_backend.h"
#include "tenon/lab/planner.h"
#include "tenon/lab/workload.h"

namespace tenon {

RoundResult& RoundResult::operator+=(const RoundResult& other) {
  operations += other.operations;
  out_of_memory += other.out_of_memory;
  device_errors += other.device_errors;
  exchanged += other.exchanged;
  threads += other.threads;
  polls += other.polls;
  forks += other.forks;
  if (violation.empty()) violation = other.violation;
  return *this;
}

struct Round::Place {
  std::thread thread;
  std::uint64_t begun = 0;  // iterations
  std::atomic<bool> ended{true};
};

Round::Round(const Policy& policy, std::uint64_t seed, unsigned threads, std::uint64_t iterations)
    : seed_(seed),
      threads_(threads),
      iterations_(iterations),
      forks_(kCanFork && policy.name == "host" && seed % 2 == 1),
      random_(seed) {
  make_device();
  const bool one_stream = random_.chance(0.25);
  while (streams_.size() < threads)
    streams_.push_back(one_stream ? streams_.front() : device_->create_stream());
  elsewhere_ = device_->create_stream();
  PolicyOptions options;
  options.page_bytes = 2 << 20;
  if (policy.limits_itself) options.limit_bytes = capacity_bytes_;
  if (policy.needs_plan) {
    plan_ = record_plan();
    options.plan = &*plan_;
  }
  allocator_ = policy.make(*device_, options);
  if (sim_ != nullptr) sim_->set_failure_rate(failure_rate_);
}

void Round::make_device() {
  constexpr std::array<std::uint64_t, 4> kCapacities = {80 << 20, 96 << 20, 160 << 20, 1 << 30};
  capacity_bytes_ = kCapacities[random_.below(kCapacities.size())];
  if (seed_ % 2 == 1) {
    HostOptions options;
    options.limit_bytes = capacity_bytes_;
    device_ = std::make_unique<HostBackend>(options);
  } else {
    SimOptions options;
    options.real_memory = true;
    options.capacity_bytes = capacity_bytes_;
    options.lag_ns = random_.chance(0.5) ? 0 : 1'000'000;
    options.seed = seed_;
    failure_rate_ = std::array<double, 3>{0, 0.01, 0.1}[random_.below(3)];
    auto sim = std::make_unique<SimBackend>(options);
    sim_ = sim.get();
    device_ = std::move(sim);
  }
  streams_.push_back({device_->device(), 0});
}

// What each thread asks for in one iteration; blocks that are given away count as freed.
Plan Round::record_plan() const {
  std::vector<ReplayOp> ops;
  for (unsigned place = 0; place < threads_; ++place) {
    Program program(program_seed(place));
    std::array<std::uint64_t, Program::kSlots> sizes = {};
    const auto stream = static_cast<std::uint16_t>(streams_[place].id);
    const auto add = [&](std::uint32_t slot, bool alloc) {
      ops.push_back({sizes[slot], place * Program::kSlots + slot, stream, alloc});
    };
    for (std::uint64_t i = 0; i < kSteps; ++i) {
      const ProgramStep step = program.next();
      if (step.kind == ProgramStep::Kind::kEmptyCache) continue;
      const bool alloc = step.kind == ProgramStep::Kind::kAllocate;
      if (alloc) sizes[step.slot] = step.size_bytes;
      add(step.slot, alloc);
      if (!alloc) sizes[step.slot] = 0;
    }
    for (std::uint32_t slot = 0; slot < Program::kSlots; ++slot)
      if (sizes[slot] != 0) add(slot, false);
  }
  PlanOptions options;
  options.quick = true;  // a plan for every round
  return plan_program(ops, options).plan;
}

RoundResult Round::run() {
  std::vector<Place> places(threads_);
  supervise(places);
  if (result_.violation.empty()) finish();
  return std::move(result_);
}

// --- The workers.

void Round::work(unsigned place, std::uint64_t begin, std::uint64_t end, RoundResult& counts) {
  std::vector<HeldBlock> slots(Program::kSlots);
  for (std::uint64_t iteration = begin; iteration < end && !stop_; ++iteration) {
    iterate(place, iteration, slots, counts);
    counts.operations += free_some(slots, 0, slots.size(), place, counts);
  }
}

void Round::iterate(unsigned place, std::uint64_t iteration, std::vector<HeldBlock>& slots,
                    RoundResult& counts) {
  Program program(program_seed(place));
  const std::uint64_t first = std::uint64_t{place + 1} << 48 | iteration << 20;
  for (std::uint64_t i = 0; i < kSteps && !stop_.load(std::memory_order_relaxed); ++i) {
    const ProgramStep step = program.next();
    if (i % 512 == 0) {
      shake(iteration + i);
      progress_.fetch_add(1, std::memory_order_relaxed);
    }
    try {
      make_step(step, slots[step.slot], place, first + i, counts);
    } catch (const OutOfMemory&) {
      ++counts.out_of_memory;
      counts.operations += free_some(slots, i, 32, place, counts);
    } catch (const DeviceError&) {
      ++counts.device_errors;
    }
  }
}

void Round::make_step(const ProgramStep& step, HeldBlock& held, unsigned place,
                      std::uint64_t number, RoundResult& counts) {
  switch (step.kind) {
    case ProgramStep::Kind::kAllocate:
      allocate(held, step.size_bytes, streams_[place], number);
      ++counts.operations;
      return;
    case ProgramStep::Kind::kGive:
      held = exchange_.swap(number, std::move(held));
      counts.exchanged += held.data != nullptr && held.number >> 48 != place + 1 ? 1 : 0;
      break;
    case ProgramStep::Kind::kShare:
      if (shares_) shares_ = use_elsewhere(held);
      break;
    case ProgramStep::Kind::kEmptyCache:
      return allocator_->empty_cache();
    case ProgramStep::Kind::kFree:
      break;
  }
  counts.operations += check_and_free(held, place) ? 1 : 0;
}

void Round::allocate(HeldBlock& held, std::uint64_t size_bytes, Stream stream,
                     std::uint64_t number) {
  held = {allocator_->allocate_on(size_bytes, stream), size_bytes, number};
  Marks(held.data.get(), size_bytes, number).write();
}

// False when there was no block.
bool Round::check_and_free(HeldBlock& held, unsigned place) {
  if (held.data == nullptr) return false;
  const Marks marks(held.data.get(), held.size_bytes, held.number);
  if (const auto damage = marks.find_damage()) {
    report(fmt::format("thread {} frees block {:#x} of {} bytes at {}: byte {} or one of the 7 "
                       "after it is not as its owner left it",
                       place, held.number, held.size_bytes, held.data.get(), *damage));
    static_cast<void>(held.data.release_context());  // what it would do is anybody's guess
    held = {};
    return false;
  }
  held.data.clear();
  return true;
}

// Another stream works on the block for a while. False where the policy does not know of such.
bool Round::use_elsewhere(HeldBlock& held) {
  if (held.data == nullptr) return true;
  try {
    allocator_->record_stream(held.data, elsewhere_);
  } catch (const InvalidArgument&) {
    return false;
  }
  if (sim_ != nullptr) sim_->queue_work(elsewhere_);
  return true;
}

// Time passes on the device, and one of its next calls of some kind will fail.
void Round::shake(std::uint64_t draw) {
  if (sim_ == nullptr) return;
  sim_->advance_to(sim_->now_ns() + 300'000);
  if (failure_rate_ == 0) return;
  const std::uint64_t dice = mix64(draw ^ seed_);
  sim_->fail_call(static_cast<DriverCall>(dice % kDriverCalls), dice / kDriverCalls % 7 + 1);
}

std::uint64_t Round::try_free(HeldBlock& held, unsigned place, RoundResult& counts) {
  try {
    return check_and_free(held, place) ? 1 : 0;
  } catch (const DeviceError&) {
    ++counts.device_errors;
    return 1;
  }
}

std::uint64_t Round::free_some(std::vector<HeldBlock>& slots, std::uint64_t from,
                               std::uint64_t most, unsigned place, RoundResult& counts) {
  std::uint64_t freed = 0;
  for (std::size_t i = 0; i < slots.size() && freed < most; ++i)
    freed += try_free(slots[(from + i) % slots.size()], place, counts);
  return freed;
}

// --- The calling thread.

// Starts a thread where one has ended, asks and forks meanwhile, until all iterations are done.
void Round::supervise(std::vector<Place>& places) {
  using Clock = std::chrono::steady_clock;
  const auto start = [this](Place& at, unsigned place, std::uint64_t begin, std::uint64_t end) {
    at.thread = std::thread([this, &at, place, begin, end] {
      RoundResult counts;
      try {
        work(place, begin, end, counts);
      } catch (const std::exception& error) {
        report(fmt::format("thread {} threw: {}", place, error.what()));
      }
      const std::lock_guard lock(mutex_);
      result_ += counts;
      at.ended = true;
    });
  };
  Clock::time_point moved = Clock::now();
  std::uint64_t progress = 0;
  for (std::uint64_t look = 1;; ++look) {
    bool working = false;
    for (unsigned i = 0; i < threads_; ++i) {
      Place& at = places[i];
      if (at.ended) {
        if (at.thread.joinable()) at.thread.join();
        const std::uint64_t life = 1 + random_.below(4);
        const std::uint64_t end = std::min(at.begun + life, iterations_);
        if (at.begun == end || stop_) continue;
        at.ended = false;
        start(at, i, std::exchange(at.begun, end), end);
        const std::lock_guard lock(mutex_);
        ++result_.threads;
      }
      working = true;
    }
    if (!working) return;
    poll();
    if (forks_ && look % 64 == 0) fork_a_child();
    if (progress != progress_) {
      progress = progress_;
      moved = Clock::now();
    } else if (Clock::now() - moved > std::chrono::seconds(kHangSeconds)) {
      fmt::print(stderr, "seed {}: no operation for {} s\n", seed_, kHangSeconds);
      std::abort();
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

void Round::poll() {
  const AllocatorStats stats = allocator_->stats();
  const Stat& blocks = stats.allocation[0];
  if (blocks.current > blocks.peak)
    report(fmt::format("{} blocks in use, at most {}", blocks.current, blocks.peak));
  static_cast<void>(allocator_->largest_free_bytes());
  const std::lock_guard lock(mutex_);
  ++result_.polls;
}

void Round::fork_a_child() {
  const std::string fault = run_in_forked_child(kHangSeconds, [this] {
    return use_allocator_in_child(*allocator_, seed_);
  });
  if (!fault.empty()) report("in a forked child: " + fault);
  const std::lock_guard lock(mutex_);
  ++result_.forks;
}

void Round::finish() {
  if (sim_ != nullptr) sim_->clear_failures();
  RoundResult counts;
  for (std::size_t box = 0; box < Exchange::kBoxes; ++box) {
    HeldBlock left = exchange_.swap(box, {});
    result_.operations += try_free(left, threads_, counts);
  }
  try {
    allocator_->check_invariants();
  } catch (const std::exception& error) {
    return report(error.what());
  }
  if (const auto left = allocator_->stats().allocation[0].current; left != 0)
    report(fmt::format("{} blocks are counted as in use at the end", left));
  allocator_.reset();
  if (sim_ != nullptr && sim_->used_bytes() != 0)
    report(fmt::format("{} bytes of driver memory leaked", sim_->used_bytes()));
}

void Round::report(std::string violation) {
  stop_ = true;
  const std::lock_guard lock(mutex_);
  if (result_.violation.empty()) result_.violation = std::move(violation);
}

}  // namespace tenon
