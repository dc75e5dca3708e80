// The memory that a training run lives in.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "tenon/device/host/host_backend.h"
#include "tenon/heap/plan.h"
#include "tenon/lab/step_meter.h"
#include "tenon/memory/placement/plan_allocator.h"
#include "tenon/memory/registry.h"
#include "tenon/memory/scopes/with_scope.h"

namespace tenon::command {

// The device that --device names, on which models run: the host, or one that shares its memory.
// Throws InvalidArgument for another, and where there is none.
Device parse_model_device(const std::string& name);

// A policy on the device's memory, a meter before it, and what serves the inside of a step: at
// first the policy itself, which the meter records. From that recording follows what a step needs:
//  - an arena for a scope around each step, in chunks of the size that makes it smallest, straight
//    from the driver (they stay until the end: a policy could only round them up);
//  - for the policy `plan`, offsets for each block of a step.
// On a Vulkan device a captured step (captured_step.h) has memory of its own instead.
// With a limit, steps go on using the policy block by block: an arena keeps what a step made until
// its end, and that is more than the most that lives at once.
//
// Everything allocated through it must be gone before it goes. One thread trains.
class TrainingMemory {
 public:
  // `limit_bytes`: of what the policy may hold; 0: none. `arena`: steps may have one. Throws
  // InvalidArgument for a policy that is unknown or has no memory (null), DeviceError for one that
  // the device cannot serve.
  TrainingMemory(const std::string& policy, std::uint64_t limit_bytes, Device device,
                 bool arena = true);

  StepMeter& meter() { return *meter_; }
  DeviceAllocator& policy() { return *policy_; }
  const std::string& policy_name() const { return name_; }

  // Runs a step's body. The first one is recorded, and what follows from it is made before the
  // second one runs.
  template <typename Body>
  void run_step(Body&& body) {
    const std::uint64_t calls_before = backend_.ledger().memory_calls();
    if (steps_ == 1) prepare();
    if (steps_ == 0) events_before_step_ = meter_->events().size();
    if (pool_ != nullptr) {
      with_scope(pool_, [&](ScopeArena& arena) {
        const AllocatorGuard metered(backend_.device(), *meter_);
        const Serving serving(*this, arena);
        body();
      });
      note_high_water();
    } else if (plan_allocator_ != nullptr) {
      const Serving serving(*this, *plan_allocator_);
      body();
    } else {
      body();
    }
    end_step(calls_before);
  }
  // A step that a capture (captured_step.h) queues, in memory of its own. False where the body
  // gives false: it was no step then.
  template <typename Body>
  bool run_captured(Body&& body) {
    const std::uint64_t calls_before = backend_.ledger().memory_calls();
    if (steps_ == 0) events_before_step_ = meter_->events().size();
    if (steps_ == 1) note_first_step();
    if (!body()) return false;
    end_step(calls_before);
    return true;
  }
  // While a step is captured: what the capture's memory hands out counts as well. A rehearsal has a
  // meter of its own.
  template <typename Body>
  auto run_in_capture(Body&& body) {
    auto* const memory = dynamic_cast<DeviceAllocator*>(current_allocator(backend_.device()));
    if (memory == nullptr) return body();
    const AllocatorGuard metered(backend_.device(), *meter_);
    const Serving serving(*this, *memory);
    return body();
  }
  // The same for work that is no step: it finds the arena or goes to the policy.
  template <typename Body>
  void run_aside(Body&& body) {
    if (pool_ == nullptr) return body();
    with_scope(pool_, [&](ScopeArena& arena) {
      const AllocatorGuard metered(backend_.device(), *meter_);
      const Serving serving(*this, arena);
      body();
    });
  }

  // --- For the report.
  std::uint64_t late_driver_calls() const { return late_driver_calls_; }  // in steps after two
  std::uint64_t reserved_bytes() const;
  std::uint64_t reserved_peak_bytes() const;
  void set_captured_bytes(std::uint64_t bytes) { captured_bytes_ = bytes; }
  std::uint64_t captured_bytes() const { return captured_bytes_; }
  bool has_arena() const { return pool_ != nullptr; }
  std::uint64_t arena_bytes() const;
  std::uint64_t arena_chunks() const;
  std::uint64_t predicted_bytes() const { return predicted_bytes_; }  // the arena's mark
  std::uint64_t full_steps() const { return full_steps_; }            // whose mark was that
  std::uint64_t smaller_steps() const { return smaller_steps_; }
  std::uint64_t larger_steps() const { return larger_steps_; }
  std::uint64_t allocations_per_step() const { return allocations_per_step_; }
  std::string plan_report() const {
    return plan_allocator_ == nullptr ? "" : plan_allocator_->report_text();
  }

 private:
  // Points the meter at what serves a step, and back at the policy.
  class Serving {
   public:
    template <typename Target>
    Serving(TrainingMemory& memory, Target& target) : memory_(memory) {
      memory_.meter_->serve_from(target);
    }
    ~Serving() { memory_.meter_->serve_from(*memory_.policy_); }
    Serving(const Serving&) = delete;
    Serving& operator=(const Serving&) = delete;

   private:
    TrainingMemory& memory_;
  };

  void prepare();
  std::span<const StepEvent> events_of_step() const {
    return std::span(meter_->events()).first(events_after_step_).subspan(events_before_step_);
  }
  void note_first_step();
  void end_step(std::uint64_t calls_before);
  void note_high_water();

  const std::string name_;
  const std::uint64_t limit_bytes_;
  const bool may_have_arena_;
  const std::unique_ptr<HostBackend> host_;  // null on another device
  Backend& backend_;
  std::unique_ptr<DeviceAllocator> policy_;
  std::unique_ptr<StepMeter> meter_;
  Plan plan_;
  std::unique_ptr<PlanAllocator> plan_allocator_;
  std::unique_ptr<DeviceAllocator> chunks_;  // of the arena
  std::shared_ptr<ScopePool> pool_;
  std::size_t events_before_step_ = 0;  // the first one
  std::size_t events_after_step_ = 0;
  std::uint64_t steps_ = 0;
  std::uint64_t late_driver_calls_ = 0;
  std::uint64_t first_peak_bytes_ = 0;     // of the policy, before arena or plan came
  std::uint64_t reserved_peak_bytes_ = 0;  // since, of all that serve
  std::uint64_t captured_bytes_ = 0;       // of the capture's pool
  std::uint64_t predicted_bytes_ = 0;
  std::uint64_t allocations_per_step_ = 0;
  std::uint64_t full_steps_ = 0;
  std::uint64_t smaller_steps_ = 0;
  std::uint64_t larger_steps_ = 0;
};

}  // namespace tenon::command
