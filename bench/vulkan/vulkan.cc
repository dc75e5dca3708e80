// What a Vulkan device costs: a recycled buffer, recording an operator, a captured step, products
// beside the host's. bench_vulkan memory: what is held for programs (beside policies with pages, on
// a simulated device) and for training. The driver is the one that VK_DRIVER_FILES names.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tenon/autograd/autograd.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/parallel.h"
#include "tenon/base/random.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/device/vulkan/vulkan_backend.h"
#include "tenon/heap/best_fit_heap.h"
#include "tenon/lab/planner.h"
#include "tenon/lab/step_meter.h"
#include "tenon/lab/workload.h"
#include "tenon/memory/observer.h"
#include "tenon/memory/policies.h"
#include "tenon/memory/registry.h"
#include "tenon/nn/models.h"
#include "tenon/nn/optimizer.h"
#include "tenon/ops/conv.h"
#include "tenon/ops/loss.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/capture.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/random.h"

namespace tenon {
namespace {

#if TENON_HAS_VULKAN_KERNELS
constexpr std::uint32_t kRegistersCode[] =
#include "registers.spv.inc"
    ;
#endif

constexpr Device kVulkan{DeviceType::kVulkan, 0};
constexpr int kTries = 25;
constexpr double kMostSeconds = 10;  // of one figure, except for one run

double seconds_of(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The least of many runs, since other programs disturb most of them.
struct Least {
  double seconds = 1e9;
  double of_cores = 1e9;  // seconds that the process computed, all threads together
};
Least least_of(const std::function<void()>& run) {
  const auto of_cores = [] { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; };
  Least least;
  double sum = 0;
  for (int i = 0; i < kTries && sum < kMostSeconds; ++i) {
    const double before = of_cores();
    const double seconds = seconds_of(run);
    sum += seconds;
    least.seconds = std::min(least.seconds, seconds);
    least.of_cores = std::min(least.of_cores, of_cores() - before);
  }
  return least;
}

void print_pairs() {
  constexpr int kPairs = 100000;
  Allocator& allocator = *current_allocator(kVulkan);
  for (const std::size_t size : {std::size_t{1000}, std::size_t{1} << 20, std::size_t{8} << 20}) {
    const double seconds = least_of([&] {
      for (int i = 0; i < kPairs; ++i) static_cast<void>(allocator.allocate(size));
    }).seconds;
    fmt::print("allocate and free {:>8} again: {:6.1f} ns\n", format_byte_size(size),
               1e9 * seconds / kPairs);
  }
}

// The host's time alone: the device works on tensors of one element, and is waited for between
// runs.
void print_recording() {
  constexpr int kCalls = 2000;
  const Tensor a = to(ones({1}, DType::kF32), kVulkan);
  double least = 1e9;
  double sum = 0;
  for (int run = 0; run < kTries && sum < kMostSeconds; ++run) {
    least = std::min(least, seconds_of([&] {
                       for (int i = 0; i < kCalls; ++i) ops::add_(a, a);
                     }));
    sum += least + seconds_of([] { vulkan_backend(0).synchronize(); });
  }
  fmt::print("recording an operator, submissions included: {:.2f} us\n",
             1e6 * least / kCalls);
}

// Tensors of 4 KiB to 64 MiB, 10 GiB in all, at most 1 GiB of them alive, freed in no order.
std::vector<ReplayOp> make_program() {
  Random random(1);
  std::vector<ReplayOp> program, live;
  std::vector<std::uint32_t> free_slots;
  std::uint32_t slots = 0;
  std::uint64_t live_bytes = 0, made = 0;
  while (made < 10 * kGiB) {
    const std::uint64_t size = random.between(2048, 4096) << random.below(15);
    while (live_bytes + size > kGiB) {
      std::swap(live[random.below(live.size())], live.back());
      const ReplayOp gone = live.back();
      live.pop_back();
      live_bytes -= gone.size_bytes;
      free_slots.push_back(gone.slot);
      program.push_back({.size_bytes = gone.size_bytes, .slot = gone.slot});
    }
    if (free_slots.empty()) free_slots.push_back(slots++);
    live.push_back({.size_bytes = size, .slot = free_slots.back(), .alloc = true});
    free_slots.pop_back();
    program.push_back(live.back());
    live_bytes += size;
    made += size;
  }
  return program;
}

// Runs the program with blocks that `allocate` makes and `free` gives back.
template <typename Handle>
void run_program(std::span<const ReplayOp> program,
                 const std::function<Handle(std::uint64_t)>& allocate,
                 const std::function<void(Handle)>& free) {
  std::vector<Handle> blocks;
  for (const ReplayOp& op : program) {
    if (op.slot >= blocks.size()) blocks.resize(op.slot + 1);
    if (op.alloc)
      blocks[op.slot] = allocate(op.size_bytes);
    else
      free(std::move(blocks[op.slot]));
  }
}

// What a program needs where nothing moves, in one range of addresses without end.
void print_bounds(const std::string& name, std::span<const ReplayOp> program,
                  const PlanResult& plan) {
  BestFitHeap heap;
  heap.add_extent(0, 1024 * kGiB);
  std::uint64_t end = 0;
  run_program<Block*>(
      program,
      [&](std::uint64_t size) {
        Block* block = heap.place(size, 256, 256);
        end = std::max(end, block->offset + block->size);
        return block;
      },
      [&](Block* block) { heap.release(block); });
  const auto live = static_cast<double>(plan.live_peak_bytes);
  fmt::print("{}without segments: end of the addresses used / live peak {:.3f} by best fit, {:.3f} "
             "by a plan that knows all requests\n",
             name, static_cast<double>(end) / live,
             static_cast<double>(plan.plan.total_bytes()) / live);
}

void print_memory(std::span<const ReplayOp> program, Backend& backend, const char* policy,
                  const char* device) {
  const auto allocator = make_policy(policy, backend);
  const std::uint64_t before = backend.ledger().count(DriverCall::kAllocate);
  run_program<DataPtr>(
      program, [&](std::uint64_t size) { return allocator->allocate(size); }, [](DataPtr) {});
  const AllocatorStats stats = allocator->stats();
  fmt::print("{:>10}, {}: reserved / live peak {:.3f}, {} segments for 10 GiB of tensors\n", policy,
             device,
             static_cast<double>(stats.reserved_bytes[0].peak) /
                 static_cast<double>(stats.requested_bytes[0].peak),
             backend.ledger().count(DriverCall::kAllocate) - before);
}

void print_memory() {
  const std::vector<ReplayOp> program = make_program();
  for (const char* policy : {"unified", "pool", "caching"})
    print_memory(program, vulkan_backend(0), policy, "Vulkan");
  for (const char* policy : {"unified", "pool", "caching", "expandable", "stitched"}) {
    SimBackend simulated;
    print_memory(program, simulated, policy, "simulated");
  }
  print_bounds("", program, plan_program(program));
}

// --- Training.

// A model in training, with its batch; its tensors come from the current allocator.
struct Training {
  std::shared_ptr<nn::Module> model;
  Tensor input, wanted;
  std::unique_ptr<nn::Adam> adam;
  Tensor loss;

  Training(std::shared_ptr<nn::Module> made, const Tensor& batch, std::int64_t classes)
      : model(std::move(made)), input(to(batch, kVulkan)) {
    model->to(kVulkan);
    const std::int64_t places = batch.dim() == 2 ? batch.numel() : batch.size(0);
    wanted = to(ops::remainder(arange(places), full({}, classes, DType::kI64)), kVulkan);
    adam = std::make_unique<nn::Adam>(model->named_parameters(), nn::AdamOptions{});
  }
  void step() {
    model->zero_grad();
    const Tensor logits = (*model)(input);
    loss = ops::cross_entropy(logits.reshape({-1, logits.size(-1)}), wanted);
    autograd::backward(loss);
    adam->step();
  }
};

std::unique_ptr<Training> make_training(const std::string& name) {
  Generator generator(1);
  const nn::ImageShape shape;
  if (name == "gpt") {
    const nn::GptOptions options{.vocabulary = 64};
    const Tensor text =
        randint(0, options.vocabulary, {16, options.length}, DType::kI64, generator);
    return std::make_unique<Training>(std::make_shared<nn::CharGpt>(options, generator), text,
                                      options.vocabulary);
  }
  const Tensor images = randn({name == "mlp" ? 4096 : 128, 1, shape.height, shape.width},
                              DType::kF32, generator);
  return std::make_unique<Training>(
      name == "mlp" ? nn::make_mlp(shape, generator) : nn::make_cnn(shape, generator), images,
      shape.classes);
}

// What an allocator was asked for, one block after another.
class Requests final : public Observer {
 public:
  void on_memory_event(const MemoryEventInfo& info) override {
    if (info.event == MemoryEvent::kFreed) {
      ops_.push_back({.size_bytes = info.size_bytes, .slot = slots_.at(info.data)});
    } else if (info.event == MemoryEvent::kAllocated || info.event == MemoryEvent::kRecycled) {
      const auto slot = static_cast<std::uint32_t>(ops_.size());
      slots_[info.data] = slot;
      ops_.push_back({.size_bytes = info.size_bytes, .slot = slot, .alloc = true});
    }
  }
  std::span<const ReplayOp> ops() const { return ops_; }

 private:
  std::vector<ReplayOp> ops_;
  std::unordered_map<void*, std::uint32_t> slots_;
};

// Steps of Adam, from the making of the model on.
void print_training_memory(const std::string& name, const std::string& policy,
                           const PolicyOptions& options, Requests& requests) {
  const auto allocator = make_policy(policy, vulkan_backend(0), options);
  allocator->observers().add(&requests);
  const std::uint64_t before = vulkan_backend(0).ledger().count(DriverCall::kAllocate);
  {
    const AllocatorGuard guard(kVulkan, *allocator);
    const auto training = make_training(name);
    for (int i = 0; i < 4; ++i) training->step();
    vulkan_backend(0).synchronize();
  }
  const AllocatorStats stats = allocator->stats();
  fmt::print("{:>4} in training, {:>7}: reserved / live peak {:.3f}, {} live, {} segments\n", name,
             policy,
             static_cast<double>(stats.reserved_bytes[0].peak) /
                 static_cast<double>(stats.requested_bytes[0].peak),
             format_byte_size(static_cast<std::uint64_t>(stats.requested_bytes[0].peak)),
             vulkan_backend(0).ledger().count(DriverCall::kAllocate) - before);
  allocator->observers().remove(&requests);
}

// A step rehearsed, then captured on the plan of its requests.
void print_captured_memory(const std::string& name) {
  const auto pool = make_policy("pool", vulkan_backend(0), {});
  StepMeter live(*pool);
  const AllocatorGuard guard(kVulkan, live);
  const auto training = make_training(name);
  const auto drop_results = [&] {
    training->model->zero_grad();
    training->loss = Tensor();
  };
  Plan plan(64);
  Capture::rehearse(kVulkan, [&](DeviceAllocator& addresses) {
    StepMeter meter(addresses);
    meter.record(true);
    const AllocatorGuard metered(kVulkan, meter);
    training->step();
    plan = make_plan(meter.events(), 64);
    drop_results();
  });
  std::uint64_t live_peak = 0;
  Capture capture(
      kVulkan,
      [&] {
        live.serve_from(dynamic_cast<DeviceAllocator&>(*current_allocator(kVulkan)));
        const AllocatorGuard metered(kVulkan, live);
        training->step();
        live_peak = live.peak_bytes();
        live.serve_from(*pool);
      },
      &plan);
  for (int i = 0; i < 3; ++i) capture.run();
  vulkan_backend(0).synchronize();
  const auto of_pool = static_cast<std::uint64_t>(pool->stats().reserved_bytes[0].peak);
  fmt::print("{:>4} in training, captured on a plan: reserved / live peak {:.3f}, {} live, {} by "
             "pool and {} by the capture\n",
             name,
             static_cast<double>(of_pool + capture.reserved_bytes()) /
                 static_cast<double>(live_peak),
             format_byte_size(live_peak), format_byte_size(of_pool),
             format_byte_size(capture.reserved_bytes()));
  drop_results();
}

void print_training_memory(const std::string& name) {
  Requests unified, pool, planned;
  print_training_memory(name, "unified", {}, unified);
  print_training_memory(name, "pool", {}, pool);
  const PlanResult plan = plan_program(pool.ops());
  print_training_memory(name, "plan", {.plan = &plan.plan}, planned);
  print_bounds(fmt::format("{:>4} in training, ", name), pool.ops(), plan);
  print_captured_memory(name);
}

// The host's time for a step, the device's work not included, and beside it that of a run of the
// captured step.
void print_capture() {
  const auto training = make_training("gpt");
  training->step();
  const auto host_time = [](const std::function<void()>& call) {
    double least = 1e9, sum = 0;
    for (int run = 0; run < kTries && sum < kMostSeconds; ++run) {
      least = std::min(least, seconds_of(call));
      sum += least + seconds_of([] { vulkan_backend(0).synchronize(); });
    }
    return 1e6 * least;
  };
  vulkan_backend(0).synchronize();
  const double step = host_time([&] { training->step(); });
  if (!vulkan_backend(0).abilities().integers) {
    fmt::print("the host's time for a step of the gpt: {:.0f} us, its own arithmetic included\n",
               step);
    return;
  }
  Capture capture(kVulkan, [&] { training->step(); });
  const double run = host_time([&] { capture.run(); });
  fmt::print("the host's time for a step of the gpt: {:.0f} us, captured {:.0f} us\n", step, run);
}

// By the clock and by the time that cores computed for this process. One side after the other: the
// host's idle threads spin for a while.
void print_beside_host(const std::string& what, double flops, const std::function<void()>& on_host,
                       const std::function<void()>& on_device) {
  const Least host = least_of(on_host);
  const Least device = least_of([&] {
    on_device();
    vulkan_backend(0).synchronize();
  });
  fmt::print("{}: {:6.1f} GFLOP/s, the host {:6.1f}: {:.0f} %; in a second of one core {:.1f} "
             "GFLOP, the host {:.1f}: {:.0f} %\n",
             what, flops / device.seconds / 1e9, flops / host.seconds / 1e9,
             100 * host.seconds / device.seconds, flops / device.of_cores / 1e9,
             flops / host.of_cores / 1e9, 100 * host.of_cores / device.of_cores);
}

// What the device's cores compute where they load nothing.
void print_registers() {
#if TENON_HAS_VULKAN_KERNELS
  constexpr std::uint32_t kGroups = 512, kRounds = 4000;
  constexpr double kFlops = 2.0 * kGroups * 8 * kRounds * 28 * 8;  // as registers.comp has them
  VulkanBackend& backend = vulkan_backend(0);
  const Tensor target = empty({kGroups * 8}, DType::kF32, kVulkan);
  const struct {
    std::uint64_t target, rounds;
  } arguments = {backend.device_address(target.data_ptr()), kRounds};
  const Least device = least_of([&] {
    backend.launch({kRegistersCode}, std::as_bytes(std::span(&arguments, 1)), {kGroups, 1, 1},
                   Stream{kVulkan, 0});
    backend.synchronize();
  });
  const Tensor a = ones({1024, 1024}, DType::kF32);
  const Least host = least_of([&] { static_cast<void>(ops::matmul(a, a)); });
  const double found = kFlops / device.of_cores / 1e9;
  fmt::print("products and sums in registers: in a second of one core {:.1f} GFLOP, {:.0f} % of "
             "the host's product of 1024 x 1024\n",
             found, 100 * found / (2.0 * 1024 * 1024 * 1024 / host.of_cores / 1e9));
#endif
}

struct Convolution {
  std::string name;
  DimVector images, weight;
  ops::ConvOptions options;
  bool forward = true, with_gradients = false;  // which of these is printed
};

void print_convolution(const Convolution& c, Generator& generator) {
  const Tensor images = randn(c.images, DType::kF32, generator);
  const Tensor weight = randn(c.weight, DType::kF32, generator);
  const Tensor result = ops::conv2d(images, weight, {}, c.options);
  const double flops =
      2.0 * static_cast<double>(result.numel() * weight.numel() / weight.size(0));
  const Tensor images_there = to(images, kVulkan), weight_there = to(weight, kVulkan);
  const Tensor result_there = to(result, kVulkan);
  if (c.forward)
    print_beside_host(
        c.name, flops, [&] { static_cast<void>(ops::conv2d(images, weight, {}, c.options)); },
        [&] { static_cast<void>(ops::conv2d(images_there, weight_there, {}, c.options)); });
  if (!c.with_gradients) return;
  const auto both = [&](const Tensor& of_images, const Tensor& of_weight, const Tensor& gradient) {
    const Tensor a = of_images.detach().set_requires_grad(true);
    const Tensor b = of_weight.detach().set_requires_grad(true);
    autograd::backward(ops::conv2d(a, b, {}, c.options), gradient);
  };
  print_beside_host(
      c.forward ? "the same with both gradients" : c.name, 3 * flops,
      [&] { both(images, weight, result); },
      [&] { both(images_there, weight_there, result_there); });
}

void print_convolutions(Generator& generator) {
  const Convolution convolutions[] = {
      {"convolution of 8 x 64 x 28 x 28 by 64 x 3 x 3",
       {8, 64, 28, 28}, {64, 64, 3, 3}, {.padding = 1}, true, true},
      {"convolution of 8 x 64 x 56 x 56 by 128 x 3 x 3, stride 2, with both gradients",
       {8, 64, 56, 56}, {128, 64, 3, 3}, {.stride = 2, .padding = 1}, false, true},
      {"convolution of 4 x 3 x 112 x 112 by 64 x 7 x 7, stride 2",
       {4, 3, 112, 112}, {64, 3, 7, 7}, {.stride = 2, .padding = 3}},
      {"convolution of 8 x 64 x 28 x 28 by 64 x 3 x 3 in 64 groups, with both gradients",
       {8, 64, 28, 28}, {64, 1, 3, 3}, {.padding = 1, .groups = 64}, false, true},
      {"convolution of 8 x 256 x 14 x 14 by 256 x 3 x 3, with both gradients",
       {8, 256, 14, 14}, {256, 256, 3, 3}, {.padding = 1}, false, true},
      {"convolution of 8 x 64 x 28 x 28 by 256 x 1 x 1, with both gradients",
       {8, 64, 28, 28}, {256, 64, 1, 1}, {}, false, true},
  };
  for (const Convolution& c : convolutions) print_convolution(c, generator);
}

void print_products() {
  Generator generator(1);
  for (const std::int64_t n : {256, 512, 1024}) {
    const Tensor a = randn({n, n}, DType::kF32, generator);
    const Tensor there = to(a, kVulkan);
    print_beside_host(
        fmt::format("product of {} x {}", n, n), 2.0 * static_cast<double>(n * n * n),
        [&] { static_cast<void>(ops::matmul(a, a)); },
        [&] { static_cast<void>(ops::matmul(there, there)); });
  }
  print_convolutions(generator);
}

void print_all_memory() {
  print_memory();
  for (const char* name : {"mlp", "cnn", "gpt"}) print_training_memory(name);
}

void run() {
  fmt::print("{}\n{} threads of the host; the least time of {} runs, or of those of {:.0f} s\n\n",
             vulkan_backend(0).description(), num_threads(), kTries, kMostSeconds);
  print_pairs();
  print_recording();
  print_capture();
  print_products();
  print_registers();
}

}  // namespace
}  // namespace tenon

int main(int argc, char** argv) {
  try {
    argc == 2 && argv[1] == std::string_view("memory") ? tenon::print_all_memory() : tenon::run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_vulkan: {}\n", error.what());
    return 1;
  }
}
