// One round of the stress test: a fresh device and allocator, and threads that use them.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "exchange.h"
#include "marks.h"
#include "program.h"
#include "tenon/base/error.h"
#include "tenon/device/host/host_backend.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/heap/plan.h"
#include "tenon/lab/planner.h"
#include "tenon/lab/workload.h"
#include "tenon/memory/policies.h"

namespace tenon {

struct RoundResult {
  std::uint64_t operations = 0;     // allocations and frees that were made
  std::uint64_t out_of_memory = 0;  // requests refused
  std::uint64_t device_errors = 0;  // calls that a failing driver broke off
  std::uint64_t exchanged = 0;      // blocks freed by another thread than their own
  std::string violation;            // empty: every byte was right, and nothing leaked
};

// A fresh device and allocator, and threads that use them at once. Each thread runs the same kSteps
// steps `iterations` times and frees all it holds in between, as training does; so plans and caches
// meet what they are made for. The seed draws what the round is like: on the simulated device, with
// memory short or not and driver calls failing now and then, or (odd seeds) on the host; each
// thread on a stream of its own, or all on one. Contents are real either way (Marks).
class Round {
 public:
  static constexpr std::uint64_t kSteps = 8192;

  Round(const Policy& policy, std::uint64_t seed, unsigned threads, std::uint64_t iterations)
      : seed_(seed), threads_(threads), iterations_(iterations), random_(seed) {
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

  RoundResult run() {
    std::vector<std::thread> pool;
    for (unsigned i = 0; i < threads_; ++i) pool.emplace_back([this, i] { work_guarded(i); });
    for (std::thread& thread : pool) thread.join();
    if (result_.violation.empty()) finish();
    return std::move(result_);
  }

 private:
  struct Counts {
    std::uint64_t operations = 0, out_of_memory = 0, device_errors = 0, exchanged = 0;
  };

  void make_device() {
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

  std::uint64_t program_seed(unsigned thread) const { return seed_ * 64 + thread; }

  // What each thread asks for in one iteration; blocks that are given away count as freed.
  Plan record_plan() const {
    std::vector<ReplayOp> ops;
    for (unsigned thread = 0; thread < threads_; ++thread) {
      Program program(program_seed(thread));
      std::array<std::uint64_t, Program::kSlots> sizes = {};
      const auto stream = static_cast<std::uint16_t>(streams_[thread].id);
      const auto add = [&](std::uint32_t slot, bool alloc) {
        ops.push_back({sizes[slot], thread * Program::kSlots + slot, stream, alloc});
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

  void work_guarded(unsigned thread) {
    try {
      work(thread);
    } catch (const std::exception& error) {
      report(fmt::format("thread {} threw: {}", thread, error.what()));
    }
  }

  void work(unsigned thread) {
    const Stream stream = streams_[thread];
    Counts counts;
    std::uint64_t blocks = std::uint64_t{thread + 1} << 48;
    std::vector<HeldBlock> slots(Program::kSlots);
    bool shares = true;
    for (std::uint64_t iteration = 0; iteration < iterations_; ++iteration) {
      Program program(program_seed(thread));
      for (std::uint64_t i = 0; i < kSteps && !stop_.load(std::memory_order_relaxed); ++i) {
        const ProgramStep step = program.next();
        HeldBlock& held = slots[step.slot];
        if (i % 512 == 0) shake(iteration + i);
        try {
          switch (step.kind) {
            case ProgramStep::Kind::kAllocate:
              allocate(held, step.size_bytes, stream, ++blocks);
              ++counts.operations;
              break;
            case ProgramStep::Kind::kGive:
              held = exchange_.swap(blocks + i, std::move(held));
              counts.exchanged += held.data != nullptr && held.number >> 48 != thread + 1 ? 1 : 0;
              [[fallthrough]];
            case ProgramStep::Kind::kFree:
              counts.operations += check_and_free(held, thread) ? 1 : 0;
              break;
            case ProgramStep::Kind::kShare:
              if (shares) shares = use_elsewhere(held);
              counts.operations += check_and_free(held, thread) ? 1 : 0;
              break;
            case ProgramStep::Kind::kEmptyCache:
              allocator_->empty_cache();
              break;
          }
        } catch (const OutOfMemory&) {
          ++counts.out_of_memory;
          counts.operations += free_some(slots, i, thread, counts);
        } catch (const DeviceError&) {
          ++counts.device_errors;
        }
      }
      counts.operations += free_all(slots, thread, counts);
    }
    const std::lock_guard lock(mutex_);
    result_.operations += counts.operations;
    result_.out_of_memory += counts.out_of_memory;
    result_.device_errors += counts.device_errors;
    result_.exchanged += counts.exchanged;
  }

  void allocate(HeldBlock& held, std::uint64_t size_bytes, Stream stream, std::uint64_t number) {
    held = {allocator_->allocate_on(size_bytes, stream), size_bytes, number};
    Marks(held.data.get(), size_bytes, number).write();
  }

  // False when there was no block.
  bool check_and_free(HeldBlock& held, unsigned thread) {
    if (held.data == nullptr) return false;
    const Marks marks(held.data.get(), held.size_bytes, held.number);
    if (const auto damage = marks.find_damage()) {
      report(fmt::format("thread {} frees block {:#x} of {} bytes at {}: byte {} or one of the 7 "
                         "after it is not as its owner left it",
                         thread, held.number, held.size_bytes, held.data.get(), *damage));
      static_cast<void>(held.data.release_context());  // what it would do is anybody's guess
      held = {};
      return false;
    }
    held.data.clear();
    return true;
  }

  // Another stream works on the block for a while. False where the policy does not know of such.
  bool use_elsewhere(HeldBlock& held) {
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
  void shake(std::uint64_t draw) {
    if (sim_ == nullptr) return;
    sim_->advance_to(sim_->now_ns() + 300'000);
    if (failure_rate_ == 0) return;
    const std::uint64_t dice = mix64(draw ^ seed_);
    sim_->fail_call(static_cast<DriverCall>(dice % kDriverCalls), dice / kDriverCalls % 7 + 1);
  }

  std::uint64_t free_some(std::vector<HeldBlock>& slots, std::uint64_t from, unsigned thread,
                          Counts& counts) {
    std::uint64_t freed = 0;
    for (std::size_t i = 0; i < slots.size() && freed < 32; ++i)
      freed += try_free(slots[(from + i) % slots.size()], thread, counts);
    return freed;
  }
  std::uint64_t free_all(std::vector<HeldBlock>& slots, unsigned thread, Counts& counts) {
    std::uint64_t freed = 0;
    for (HeldBlock& held : slots) freed += try_free(held, thread, counts);
    return freed;
  }
  std::uint64_t try_free(HeldBlock& held, unsigned thread, Counts& counts) {
    try {
      return check_and_free(held, thread) ? 1 : 0;
    } catch (const DeviceError&) {
      ++counts.device_errors;
      return 1;
    }
  }

  void finish() {
    if (sim_ != nullptr) sim_->clear_failures();
    Counts counts;
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

  void report(std::string violation) {
    stop_ = true;
    const std::lock_guard lock(mutex_);
    if (result_.violation.empty()) result_.violation = std::move(violation);
  }

  const std::uint64_t seed_;
  const unsigned threads_;
  const std::uint64_t iterations_;
  Random random_;
  std::uint64_t capacity_bytes_ = 0;
  double failure_rate_ = 0;
  std::unique_ptr<Backend> device_;
  SimBackend* sim_ = nullptr;  // the device, if it is simulated
  std::vector<Stream> streams_;  // by thread
  Stream elsewhere_;
  std::optional<Plan> plan_;
  std::unique_ptr<DeviceAllocator> allocator_;
  Exchange exchange_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  RoundResult result_;
};

}  // namespace tenon
