#include "rigs/schedules/trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <optional>
#include <utility>

#include "tenon/base/error.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/heap/plan.h"
#include "tenon/lab/planner.h"
#include "tenon/lab/workload.h"
#include "tenon/memory/policies.h"

namespace tenon {
namespace {

using Kind = ScheduleStep::Kind;

// What a recording of the schedule would plan.
Plan plan_of(const Schedule& schedule) {
  std::vector<ReplayOp> ops;
  std::vector<ReplayOp> blocks;
  for (const ScheduleStep& step : schedule.steps) {
    if (step.kind == Kind::kAllocate) {
      blocks.resize(std::max<std::size_t>(blocks.size(), step.block + 1));
      blocks[step.block] = {step.size_bytes, step.block, step.stream, true};
      ops.push_back(blocks[step.block]);
    } else if (step.kind == Kind::kFree && step.block < blocks.size() &&
               blocks[step.block].alloc) {
      blocks[step.block].alloc = false;
      ops.push_back(blocks[step.block]);
    }
  }
  return make_plan(ops);
}

bool knows_record_stream(const std::string& policy) {
  if (find_policy(policy).needs_plan) return false;  // its own blocks; those behind it do
  SimBackend device;
  const Stream other = device.create_stream();
  const auto allocator = make_policy(policy, device);
  const DataPtr block = allocator->allocate(512);
  try {
    allocator->record_stream(block, other);
    return true;
  } catch (const InvalidArgument&) {
    return false;
  }
}

// One run: a device, an allocator, and the blocks that are there.
class Run {
 public:
  Run(const Schedule& schedule, const std::string& policy, Breakage breakage, bool lends)
      : device_(options_of(schedule)), lends_(lends || breakage != Breakage::kLostRecordStream) {
    streams_.push_back({device_.device(), 0});
    while (streams_.size() < schedule.streams) streams_.push_back(device_.create_stream());
    PolicyOptions options;
    options.conf = schedule.conf;
    options.page_bytes = schedule.page_bytes;
    if (find_policy(policy).limits_itself) options.limit_bytes = schedule.capacity_bytes;
    if (find_policy(policy).needs_plan) {
      plan_ = plan_of(schedule.plan_fits ? schedule : random_schedule(schedule.seed + 1));
      options.plan = &*plan_;
    }
    if (breakage != Breakage::kNone) driver_ = broken_driver(device_, breakage, &result_.lost);
    Backend& driver = driver_ != nullptr ? *driver_ : device_;
    policy_ = make_policy(policy, driver, options_for(find_policy(policy), options));
    if (breakage != Breakage::kNone) broken_ = broken_allocator(*policy_, breakage, &result_.lost);
    allocator_ = broken_ != nullptr ? broken_.get() : policy_.get();
  }

  void step(const ScheduleStep& step) {
    device_.advance_to(time_ns_ += step.pause_ns);
    switch (step.kind) {
      case Kind::kAllocate:
        return allocate(step);
      case Kind::kUse:
        return with(step, [&](Block& block) { work_on(block, block.home); });
      case Kind::kLend:
        return with(step, [&](Block& block) { lend(block, streams_[step.stream]); });
      case Kind::kBorrow:
        return with(step, [&](Block& block) { borrow(block, streams_[step.stream]); });
      case Kind::kFree:
        return with(step, [&](Block& block) { block.data.clear(); });
      case Kind::kStreamWait:
        ++result_.operations;
        return order(streams_[step.stream], streams_[step.other]);
      case Kind::kHostWait:
        ++result_.operations;
        return device_.synchronize(streams_[step.stream]);
      case Kind::kEmptyCache:
        ++result_.operations;
        return allocator_->empty_cache();
    }
  }

  TrialResult finish() {
    for (Block& block : blocks_) block.data.clear();
    allocator_->check_invariants();
    const auto left = allocator_->stats().allocation[0].current;
    std::vector<std::string> faults = device_.order_violations();
    if (left != 0) faults.push_back(fmt::format("{} blocks left at the end", left));
    broken_.reset();
    policy_.reset();
    if (const std::uint64_t bytes = device_.used_bytes(); bytes != 0)
      faults.push_back(fmt::format("{} bytes of driver memory leaked", bytes));
    result_.faults.insert(result_.faults.begin(), faults.begin(), faults.end());
    return std::move(result_);
  }

  TrialResult fail(std::string fault) {
    result_.faults = device_.order_violations();
    result_.faults.push_back(std::move(fault));
    return std::move(result_);
  }

 private:
  struct Block {
    DataPtr data;
    std::uint64_t size_bytes = 0;
    std::uint64_t owner = 0;
    Stream home;
  };

  static SimOptions options_of(const Schedule& schedule) {
    SimOptions options;
    options.capacity_bytes = schedule.capacity_bytes;
    options.lag_ns = schedule.lag_ns;
    options.check_order = true;
    return options;
  }

  template <typename Do>
  void with(const ScheduleStep& step, Do&& act) {
    if (step.block >= blocks_.size() || blocks_[step.block].data == nullptr) return;
    ++result_.operations;
    act(blocks_[step.block]);
  }

  void work_on(const Block& block, Stream stream) {
    device_.access(stream, block.data.get(), block.size_bytes, block.owner);
  }

  void order(Stream later, Stream earlier) {
    const Event event = device_.record(earlier);
    device_.stream_wait(later, event);
    device_.destroy_event(event);
  }

  void allocate(const ScheduleStep& step) {
    ++result_.operations;
    if (blocks_.size() <= step.block) blocks_.resize(step.block + 1);
    const Stream stream = streams_[step.stream];
    try {
      blocks_[step.block] = {allocator_->allocate_on(step.size_bytes, stream), step.size_bytes,
                             step.block + 1, stream};
    } catch (const OutOfMemory&) {
      ++result_.out_of_memory;
      return;
    }
    work_on(blocks_[step.block], stream);
  }

  void lend(Block& block, Stream stream) {
    if (!lends_) return borrow(block, stream);
    try {
      allocator_->record_stream(block.data, stream);
    } catch (const InvalidArgument&) {
      return borrow(block, stream);
    }
    order(stream, block.home);
    work_on(block, stream);
  }

  void borrow(Block& block, Stream stream) {
    order(stream, block.home);
    work_on(block, stream);
    order(block.home, stream);
  }

  SimBackend device_;
  const bool lends_;
  std::vector<Stream> streams_;
  TrialResult result_;
  std::optional<Plan> plan_;
  std::unique_ptr<Backend> driver_;           // null: the device itself
  std::unique_ptr<DeviceAllocator> policy_;
  std::unique_ptr<DeviceAllocator> broken_;   // null: the policy as it is
  DeviceAllocator* allocator_ = nullptr;
  std::vector<Block> blocks_;                 // by number; null where there is none (any more)
  std::uint64_t time_ns_ = 0;
};

}  // namespace

Trial::Trial(std::string policy, Breakage breakage)
    : policy_(std::move(policy)), breakage_(breakage), lends_(knows_record_stream(policy_)) {}

TrialResult Trial::run(const Schedule& schedule) {
  std::optional<Run> run;
  try {
    run.emplace(schedule, policy_, breakage_, lends_);
  } catch (const OutOfMemory&) {
    return {};  // not even the policy's start fits: nothing to be said
  }
  std::size_t at = 0;
  try {
    for (; at < schedule.steps.size(); ++at) {
      const ScheduleStep& step = schedule.steps[at];
      if (step.on_second_thread)
        second_thread_.run([&] { run->step(step); });
      else
        run->step(step);
    }
    return run->finish();
  } catch (const std::exception& error) {
    return run->fail(fmt::format("step {} threw: {}", at + 1, error.what()));
  }
}

Schedule shrink(Schedule schedule, Trial& trial) {
  for (std::size_t length = schedule.steps.size() / 2; length > 0;) {
    bool shorter = false;
    for (std::size_t at = 0; at + length <= schedule.steps.size();) {
      Schedule without = schedule;
      const auto first = without.steps.begin() + static_cast<std::ptrdiff_t>(at);
      without.steps.erase(first, first + static_cast<std::ptrdiff_t>(length));
      if (trial.run(without).faults.empty()) {
        at += length;
      } else {
        schedule = std::move(without);
        shorter = true;
      }
    }
    if (!shorter || length > 1) length /= 2;
  }
  return schedule;
}

}  // namespace tenon
