#include "training_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "arguments.h"
#include "tenon/base/align.h"
#include "tenon/base/error.h"
#include "tenon/device/devices.h"
#include "tenon/lab/arena_fit.h"
#include "tenon/lab/planner.h"
#include "tenon/memory/policies.h"
#include "tenon/tensor/host_access.h"

namespace tenon::command {
namespace {

// The policy `plan` has no plan before the first step has been recorded: until then, and for what
// is there all the time, this one serves.
constexpr const char* kBeforeThePlan = "caching";
constexpr std::uint64_t kAlignment = 64;  // of what an arena or a plan serves

std::unique_ptr<DeviceAllocator> make_serving_policy(const std::string& name, Backend& backend,
                                                     std::uint64_t limit_bytes) {
  if (name == "null")
    throw InvalidArgument("the policy null hands out no memory: take another to train in");
  PolicyOptions options;
  options.limit_bytes = limit_bytes;
  find_policy(name);  // throws for unknown ones
  return make_policy(name == "plan" ? kBeforeThePlan : name, backend, options);
}

// With the limit, so that what no policy holds counts too; other devices have one for all users.
std::unique_ptr<HostBackend> make_host(Device device, std::uint64_t limit_bytes) {
  if (device.type != DeviceType::kCpu) return nullptr;
  HostOptions options;
  options.limit_bytes = limit_bytes;
  return std::make_unique<HostBackend>(options);
}

}  // namespace

Device parse_model_device(const std::string& name) {
  const Device device = read_option("--device", [&] { return parse_device(name); });
  if (device.type == DeviceType::kCpu && device.index != 0)
    throw InvalidArgument(fmt::format("--device {}: there is one cpu, cpu:0", name));
  try {
    if (has_operators(device)) return device;
  } catch (const DeviceError& error) {
    throw InvalidArgument(fmt::format("--device {}: {}", name, error.what()));
  }
  throw InvalidArgument(
      fmt::format("--device {}: tensors are computed on cpu and on Vulkan devices; tenon info "
                  "lists the devices",
                  name));
}

TrainingMemory::TrainingMemory(const std::string& policy, std::uint64_t limit_bytes, Device device,
                               bool arena)
    : name_(policy),
      limit_bytes_(limit_bytes),
      may_have_arena_(arena && limit_bytes == 0),
      host_(make_host(device, limit_bytes)),
      backend_(host_ != nullptr ? *host_ : *own_backend(device)),
      policy_(make_serving_policy(policy, backend_, limit_bytes)),
      meter_(std::make_unique<StepMeter>(*policy_)) {
  meter_->record(true);
}

void TrainingMemory::note_first_step() {
  const std::span<const StepEvent> step = events_of_step();
  first_peak_bytes_ = static_cast<std::uint64_t>(policy_->stats().reserved_bytes[0].peak);
  allocations_per_step_ = static_cast<std::uint64_t>(std::count_if(
      step.begin(), step.end(), [](auto& e) { return e.kind == StepEvent::Kind::kAlloc; }));
}

void TrainingMemory::prepare() {
  note_first_step();
  if (name_ == "plan") {
    plan_ = make_plan(events_of_step(), kAlignment);
    plan_allocator_ = std::make_unique<PlanAllocator>(backend_, &plan_, limit_bytes_);
    return;
  }
  if (!may_have_arena_) return;
  const ArenaFit fit = fit_arena(events_of_step(), kAlignment);
  predicted_bytes_ = fit.high_water_bytes;
  ScopeOptions options;
  options.alignment = kAlignment;
  options.first_chunk_bytes = options.max_chunk_bytes = fit.chunk_bytes;
  policy_->empty_cache();  // what the first step used goes before the arena comes
  chunks_ = make_policy("system", backend_, {});
  pool_ = ScopePool::make(*chunks_, options);
}

std::uint64_t TrainingMemory::arena_bytes() const {
  return pool_ == nullptr ? 0 : pool_->stats().reserved_bytes;
}
std::uint64_t TrainingMemory::arena_chunks() const {
  return pool_ == nullptr ? 0 : pool_->stats().chunks;
}

void TrainingMemory::note_high_water() {
  const std::uint64_t mark = pool_->last_report().high_water_bytes;
  ++(mark == predicted_bytes_  ? full_steps_
     : mark < predicted_bytes_ ? smaller_steps_
                               : larger_steps_);
}

std::uint64_t TrainingMemory::reserved_bytes() const {
  std::uint64_t bytes = policy_->reserved_bytes();
  if (plan_allocator_ != nullptr) bytes += plan_allocator_->reserved_bytes();
  if (chunks_ != nullptr) bytes += chunks_->reserved_bytes();
  return bytes + captured_bytes_;
}

void TrainingMemory::end_step(std::uint64_t calls_before) {
  reserved_peak_bytes_ = std::max(reserved_peak_bytes_, reserved_bytes());
  if (++steps_ == 1) events_after_step_ = meter_->events().size();
  if (steps_ == 2) meter_->record(false);
  if (steps_ > 2) late_driver_calls_ += backend_.ledger().memory_calls() - calls_before;
}

// The policy alone serves until the arena or the plan comes, and gives up most of what it has then.
// What it holds later is what it holds at the ends of steps.
std::uint64_t TrainingMemory::reserved_peak_bytes() const {
  const auto alone = first_peak_bytes_ > 0
                         ? first_peak_bytes_
                         : static_cast<std::uint64_t>(policy_->stats().reserved_bytes[0].peak);
  return std::max({alone, reserved_peak_bytes_, reserved_bytes()});
}

}  // namespace tenon::command
