#include "tenon/tensor/capture.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tenon/base/error.h"
#include "tenon/device/vulkan/vulkan_backend.h"
#include "tenon/memory/placement/plan_allocator.h"
#include "tenon/memory/registry.h"
#include "tenon/memory/system/system_allocator.h"
#include "tenon/tensor/kernels/vulkan/capturing.h"

namespace tenon {
namespace {

// Where the step's memory is.
class MemoryRanges final : public Observer {
 public:
  void on_memory_event(const MemoryEventInfo& info) override {
    if (info.event == MemoryEvent::kMapped)
      ranges_.emplace_back(static_cast<const char*>(info.data), info.size_bytes);
  }
  bool contain(const void* data) const {
    return std::any_of(ranges_.begin(), ranges_.end(), [&](const auto& range) {
      return data >= range.first && data < range.first + range.second;
    });
  }

 private:
  std::vector<std::pair<const char*, std::uint64_t>> ranges_;
};

std::atomic<bool> any_left{false};  // addresses that a rehearsal left in use

// Addresses for the tensors of a step that only shows what it requests.
class AddressesAlone final : public DeviceAllocator {
 public:
  explicit AddressesAlone(VulkanBackend& vulkan) : DeviceAllocator(vulkan), vulkan_(vulkan) {}

  std::string name() const override { return "addresses alone"; }
  DataPtr allocate_on(std::size_t size_bytes, Stream stream) override {
    check_request(size_bytes, stream);
    if (size_bytes == 0) return DataPtr(stream.device);
    const auto segment = vulkan_.reserve_segment(size_bytes);
    if (!segment)
      throw_out_of_memory(size_bytes, stream, 0, "the process has no addresses left", false);
    live_->add(*segment);
    return DataPtr::with_deleter(
        segment->base,
        [&vulkan = vulkan_, live = live_, segment = *segment](void*) {
          live->remove(segment);
          ignore_refusal([&] { vulkan.release_reserved(segment); });
        },
        stream.device);
  }
  void record_stream(const DataPtr&, Stream) override {}
  AllocatorStats stats() const override { return {}; }
  void reset_peak_stats() override {}
  std::uint64_t layout_offset(const DataPtr&) const override { return 0; }

  ~AddressesAlone() override {
    if (live_bytes() > 0) any_left = true;
  }

  bool contain(const void* data) const { return live_->contain(data); }
  std::uint64_t live_bytes() const { return live_->bytes(); }

 private:
  // What is not freed yet, which may be after the allocator is gone.
  class Live {
   public:
    void add(const Segment& segment) {
      const std::lock_guard lock(mutex_);
      sizes_.emplace(static_cast<const char*>(segment.base), segment.size_bytes);
    }
    void remove(const Segment& segment) {
      const std::lock_guard lock(mutex_);
      sizes_.erase(static_cast<const char*>(segment.base));
    }
    bool contain(const void* data) const {
      const std::lock_guard lock(mutex_);
      const auto after = sizes_.upper_bound(static_cast<const char*>(data));
      return after != sizes_.begin() && data < std::prev(after)->first + std::prev(after)->second;
    }
    std::uint64_t bytes() const {
      const std::lock_guard lock(mutex_);
      std::uint64_t sum = 0;
      for (const auto& [base, size_bytes] : sizes_) sum += size_bytes;
      return sum;
    }

   private:
    mutable std::mutex mutex_;
    std::map<const char*, std::uint64_t> sizes_;
  };

  VulkanBackend& vulkan_;
  const std::shared_ptr<Live> live_ = std::make_shared<Live>();
};

// A plan of one stream, whichever that is, for this one.
Plan plan_on(Stream stream, const Plan* given) {
  if (given == nullptr) return Plan();
  if (given->streams().size() != 1) return *given;
  const StreamPlan& only = given->streams().begin()->second;
  Plan plan(given->unit_bytes());
  plan.set_stream(stream.id, only.slots, only.loop_begin);
  return plan;
}

// What a step's tensors get.
struct StepMemory {
  StepMemory(Backend& backend, Stream stream, const Plan* given)
      : plan(plan_on(stream, given)),
        allocator(backend, &plan, 0, PlanAllocator::FreeMemory::kStays) {}

  const Plan plan;
  PlanAllocator allocator;
};

// Ends the memory of captures that are gone, once no tensor is left there.
void retire(std::unique_ptr<StepMemory> memory) {
  static std::mutex mutex;
  static auto& retired = *new std::vector<std::unique_ptr<StepMemory>>();
  const std::lock_guard lock(mutex);
  retired.push_back(std::move(memory));
  std::erase_if(retired, [](const auto& each) {
    return each->allocator.stats().allocation[0].current == 0;
  });
}

}  // namespace

struct vulkan::CaptureState {
  // A storage from before.
  struct Use {
    IntrusivePtr<StorageImpl> storage;
    const void* data = nullptr;
    bool is_written = false;
  };
  // Memory for numbers that kernels read, and what a run copies there. It is none of the step's: a
  // run writes it before the step, which writes to memory that its tensors had before.
  struct Numbers {
    static constexpr std::size_t kMost = 4096;
    DataPtr there;
    std::vector<std::uint64_t> here;
  };
  struct Changing {
    std::span<std::uint64_t> numbers;
    Renew renew;
  };
  // The counters that each run takes of a generator.
  struct Drawn {
    Generator* generator;
    std::uint64_t first;      // of the run that is recorded, then of the last one
    std::uint64_t taken = 0;  // modulo 2^64: where the step sets the generator back, below 0
  };

  CaptureState(Device device, const Plan* plan)
      : backend(vulkan_backend(device.index)),
        stream(current_stream(device)),
        memory(std::make_unique<StepMemory>(backend, stream, plan)) {
    memory->allocator.observers().add(&ranges);
  }
  ~CaptureState() {
    ignore_refusal([&] { backend.synchronize(); });
    if (number != 0) backend.drop_capture(number);
    numbers.clear();
    uses.clear();
    memory->allocator.observers().remove(&ranges);
    retire(std::move(memory));
  }
  CaptureState(const CaptureState&) = delete;
  CaptureState& operator=(const CaptureState&) = delete;

  void record(const std::function<void()>& step, DeviceAllocator& allocator,
              VulkanBackend::Captures captures);
  bool is_of_step(const void* data) const {
    return rehearsed != nullptr ? rehearsed->contain(data) : ranges.contain(data);
  }
  void check_uses() const;
  void submit();

  VulkanBackend& backend;
  const Stream stream;
  SystemAllocator numbers_memory{backend};
  MemoryRanges ranges;
  std::unique_ptr<StepMemory> memory;
  std::unordered_map<StorageImpl*, Use> uses;
  std::deque<Numbers> numbers;
  std::vector<Changing> changing;  // in the order of the step
  std::deque<Drawn> drawn;
  std::uint64_t number = 0;        // the backend's; 0: there is none yet
  // Of a rehearsal, else null. Tensors come and go as they would in one: no use keeps one.
  const AddressesAlone* rehearsed = nullptr;
};

namespace {

thread_local vulkan::CaptureState* recording = nullptr;

std::unique_ptr<vulkan::CaptureState> make_state(Device device, const Plan* plan) {
  if (device.type != DeviceType::kVulkan)
    throw InvalidArgument(fmt::format("Capture: it records the work of a Vulkan device, not of {}",
                                      to_string(device)));
  if (recording != nullptr)
    throw InvalidArgument("Capture: a step that is captured cannot capture another one");
  return std::make_unique<vulkan::CaptureState>(device, plan);
}

}  // namespace

void vulkan::CaptureState::record(const std::function<void()>& step, DeviceAllocator& allocator,
                                  VulkanBackend::Captures captures) {
  backend.begin_capture(stream, captures);
  recording = this;
  try {
    const AllocatorGuard guard(backend.device(), allocator);
    step();
  } catch (...) {
    recording = nullptr;
    ignore_refusal([&] { backend.drop_capture(backend.end_capture(stream)); });
    throw;
  }
  recording = nullptr;
  for (Drawn& each : drawn) each.taken = each.generator->offset() - each.first;
  number = backend.end_capture(stream);
}

void vulkan::CaptureState::check_uses() const {
  for (const auto& [storage, use] : uses) {
    if (use.storage.use_count() == 1)
      throw InvalidArgument(fmt::format("Capture: a tensor of {} bytes that the step uses was "
                                        "freed since; keep it, or capture the step again",
                                        storage->nbytes()));
    if (storage->data_in_stream() != use.data)
      throw InvalidArgument(fmt::format("Capture: a tensor that the step uses has other memory "
                                        "now, of {} bytes; capture the step again",
                                        storage->nbytes()));
  }
}

void vulkan::CaptureState::submit() {
  for (const Numbers& each : numbers)
    backend.copy(each.there.get(), each.here.data(), each.here.size() * sizeof(std::uint64_t),
                 stream);
  backend.run_capture(number);
}

Capture::Capture(Device device, const std::function<void()>& step, const Plan* plan)
    : state_(make_state(device, plan)) {
  state_->record(step, state_->memory->allocator, VulkanBackend::Captures::kWork);
  state_->submit();
}

void Capture::rehearse(Device device, const std::function<void(DeviceAllocator&)>& step) {
  const auto state = make_state(device, nullptr);
  AddressesAlone addresses(state->backend);
  state->rehearsed = &addresses;
  state->record([&] { step(addresses); }, addresses, VulkanBackend::Captures::kNothing);
  if (const std::uint64_t left = addresses.live_bytes(); left > 0)
    throw InvalidArgument(fmt::format("Capture: a rehearsal leaves tensors of {} bytes, which have "
                                      "no memory; let them go before it ends", left));
}

Capture::~Capture() = default;

void Capture::run() {
  state_->check_uses();
  for (auto& each : state_->drawn) each.first = each.generator->take(each.taken);
  for (auto& each : state_->changing) each.renew(each.numbers);
  state_->submit();
  for (const auto& [storage, use] : state_->uses)
    if (use.is_written) ++storage->version();
}

std::uint64_t Capture::reserved_bytes() const {
  return state_->memory->allocator.reserved_bytes();
}

// --- What kernels tell.

namespace vulkan {

bool is_captured(Device device) {
  return recording != nullptr && recording->backend.device() == device;
}

void note_use(StorageImpl& storage, const void* data, bool writes) {
  if (recording == nullptr || recording->rehearsed != nullptr || recording->ranges.contain(data))
    return;
  auto& use = recording->uses[&storage];
  if (use.data != nullptr && use.data != data)
    throw InvalidArgument(fmt::format("Capture: the step gives a tensor of {} bytes other memory; "
                                      "clone() it before the capture",
                                      storage.nbytes()));
  if (use.data == nullptr) use = {IntrusivePtr<StorageImpl>::retain_copy(&storage), data, false};
  use.is_written |= writes;
}

std::uint64_t changing_numbers(std::span<const std::uint64_t> given, Renew renew) {
  CaptureState& state = *recording;
  using Numbers = CaptureState::Numbers;
  if (state.numbers.empty() || state.numbers.back().here.size() + given.size() > Numbers::kMost) {
    state.numbers.push_back(
        {state.numbers_memory.allocate(Numbers::kMost * sizeof(std::uint64_t)), {}});
    state.numbers.back().here.reserve(Numbers::kMost);
  }
  Numbers& place = state.numbers.back();
  const std::size_t first = place.here.size();
  place.here.insert(place.here.end(), given.begin(), given.end());
  state.changing.push_back({std::span(place.here).subspan(first), std::move(renew)});
  return state.backend.device_address(place.there.get()) + first * sizeof(std::uint64_t);
}

std::uint64_t changing_draw(Generator& generator, std::uint64_t start) {
  auto& all = recording->drawn;
  auto found = std::find_if(all.begin(), all.end(),
                            [&](const auto& each) { return each.generator == &generator; });
  if (found == all.end()) found = all.insert(all.end(), {&generator, start});
  const std::uint64_t numbers[] = {start, generator.seed()};
  return changing_numbers(numbers, [&drawn = *found, skipped = start - found->first](auto next) {
    next[0] = drawn.first + skipped;
    next[1] = drawn.generator->seed();
  });
}

void refuse_other_memory(Device device, const void* data, std::size_t size_bytes) {
  if (!is_captured(device) || recording->is_of_step(data)) return;
  throw InvalidArgument(fmt::format("Capture: the step writes a tensor of {} bytes that a "
                                    "lazy_clone() shares, which gives it other memory; use clone()",
                                    size_bytes));
}

void require_memory(Device device, const void* address) {
  if (any_left) static_cast<void>(vulkan_backend(device.index).device_address(address));
}

void refuse_host_in_capture(Device device, const char* what) {
  if (!is_captured(device)) return;
  throw InvalidArgument(fmt::format("Capture: the step needs the host for {}, which later runs "
                                    "would not repeat; do it outside the step",
                                    what));
}

}  // namespace vulkan
}  // namespace tenon
