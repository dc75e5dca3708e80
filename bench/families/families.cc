// Training steps of models that nothing was tuned on, beside PyTorch where the build found it: one
// process, the same weights, batches and threads. Sides take turns; the median of each counts.
//   bench_families [MODEL...]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "../torch_name.h"
#include "models.h"
#include "peer.h"
#include "tenon/autograd/autograd.h"
#include "tenon/base/byte_size.h"
#include "tenon/base/parallel.h"
#include "tenon/device/host/host_backend.h"
#include "tenon/lab/step_meter.h"
#include "tenon/memory/host/host_allocator.h"
#include "tenon/memory/registry.h"
#include "tenon/nn/optimizer.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/random.h"

namespace tenon::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kMostOfTorchBytes = 0.7;  // of tensors at once
constexpr int kRounds = 9;

// Tenon's side of Families.
class Library {
 public:
  using T = Tensor;

  // Made at the first step, like a module's; `scale`: of normal numbers, 0 for ones.
  Tensor parameter(const DimVector& sizes, double scale = 0.02) {
    if (next_ == parameters_.size()) {
      const NoGradGuard no_grad;
      const Tensor values =
          scale == 0 ? ones(sizes) : ops::mul(randn(sizes, DType::kF32, generator_), scale);
      parameters_.push_back({std::to_string(next_), clone(values).set_requires_grad(true)});
    }
    return parameters_[next_++].tensor;
  }
  Tensor conv(const Tensor& x, std::int64_t out, std::int64_t kernel, std::int64_t stride,
              std::int64_t groups = 1) {
    const std::int64_t in = x.size(1) / groups;
    const double scale = std::sqrt(2.0 / static_cast<double>(in * kernel * kernel));
    return ops::conv2d(
        x, parameter({out, in, kernel, kernel}, scale), {},
        {.stride = stride, .padding = kernel == 3 ? 1 : 0, .groups = groups});
  }
  Tensor up(const Tensor& x, std::int64_t out) {
    return ops::conv_transpose2d(x, parameter({x.size(1), out, 2, 2}), {}, {.stride = 2});
  }
  Tensor batch_norm(const Tensor& x) {
    const Tensor weight = parameter({x.size(1)}, 0);
    return ops::batch_norm(x, {}, {}, weight, parameter({x.size(1)}), true);
  }
  Tensor layer_norm(const Tensor& x) {
    const Tensor weight = parameter({x.size(-1)}, 0);
    return ops::layer_norm(x, {x.size(-1)}, weight, parameter({x.size(-1)}));
  }
  Tensor linear(const Tensor& x, std::int64_t out) {
    const double scale = 1 / std::sqrt(static_cast<double>(x.size(-1)));
    const Tensor weight = parameter({out, x.size(-1)}, scale);
    return ops::linear(x, weight, parameter({out}));
  }
  Tensor matmul_t(const Tensor& a, const Tensor& b) { return ops::matmul(a, b.t()); }
  Tensor attention(const Tensor& qkv, std::int64_t heads) {
    const std::int64_t n = qkv.size(0), rows = qkv.size(1), width = qkv.size(2) / 3;
    const Tensor all = qkv.view({n, rows, 3, heads, width / heads}).permute({2, 0, 3, 1, 4});
    const Tensor seen =
        ops::scaled_dot_product_attention(all.select(0, 0), all.select(0, 1), all.select(0, 2));
    return seen.transpose(1, 2).reshape({n, rows, width});
  }
  Tensor relu(const Tensor& x) { return ops::relu_(x); }
  Tensor relu6(const Tensor& x) { return ops::hardtanh(x, 0, 6); }
  Tensor gelu(const Tensor& x) { return ops::gelu(x); }
  Tensor sigmoid(const Tensor& x) { return ops::sigmoid(x); }
  Tensor tanh(const Tensor& x) { return ops::tanh(x); }
  Tensor add(const Tensor& a, const Tensor& b) { return ops::add(a, b); }
  Tensor mul(const Tensor& a, const Tensor& b) { return ops::mul(a, b); }
  Tensor cat(const Tensor& a, const Tensor& b) {
    const Tensor both[] = {a, b};
    return ops::cat(both, 1);
  }
  std::vector<Tensor> chunk(const Tensor& x, std::int64_t count) { return x.chunk(count, 1); }
  Tensor max_pool(const Tensor& x) { return ops::max_pool2d(x, {.kernel = 2}); }
  Tensor mean_of_plane(const Tensor& x) { return ops::mean(x, {2, 3}); }
  Tensor mean_of_rows(const Tensor& x) { return ops::mean(x, {1}); }
  Tensor rows_of_places(const Tensor& x) { return x.flatten(2).transpose(1, 2); }
  Tensor flat(const Tensor& x) { return x.flatten(1); }
  Tensor row(const Tensor& x, std::int64_t i) { return x.select(1, i); }
  std::int64_t channels(const Tensor& x) { return x.size(1); }
  std::int64_t rows(const Tensor& x) { return x.size(1); }
  std::int64_t last(const Tensor& x) { return x.size(-1); }
  Tensor cross_entropy(const Tensor& x, const Tensor& y) { return ops::cross_entropy(x, y); }
  Tensor squared_error(const Tensor& x, const Tensor& y) { return ops::mse_loss(x, y); }

  void start_step() { next_ = 0; }
  const std::vector<nn::NamedTensor>& parameters() const { return parameters_; }

 private:
  std::vector<nn::NamedTensor> parameters_;
  std::size_t next_ = 0;
  Generator generator_{1};
};

// A model with its optimiser. Parameters are updated after backward, as PyTorch does, or in it.
class Ours {
 public:
  Ours(const Batch& batch, bool in_backward) : batch_(batch) {
    const NoGradGuard no_grad;
    static_cast<void>(loss());  // makes the parameters
    optimizer_ = std::make_unique<nn::Adam>(library_.parameters(), nn::AdamOptions{});
    if (in_backward) updates_ = std::make_unique<nn::UpdatesInBackward>(*optimizer_);
  }
  double step() {
    const Tensor of_batch = loss();
    autograd::backward(of_batch);
    if (updates_ == nullptr) {
      optimizer_->step();
      optimizer_->zero_grad();
    }
    return of_batch.item<double>();
  }
  std::vector<Tensor> parameters() const {
    std::vector<Tensor> all;
    for (const nn::NamedTensor& p : library_.parameters()) all.push_back(clone(p.tensor.detach()));
    return all;
  }

 private:
  Tensor loss() {
    library_.start_step();
    return Families<Library>{library_}.loss(batch_.model, batch_.x, batch_.y);
  }

  const Batch batch_;
  Library library_;
  std::unique_ptr<nn::Adam> optimizer_;
  std::unique_ptr<nn::UpdatesInBackward> updates_;
};

std::uint64_t our_peak_of(const Batch& batch, bool in_backward) {
  HostBackend backend;
  HostAllocator allocator(backend);
  StepMeter meter(allocator);
  const AllocatorGuard guard(Device{}, meter);
  Ours ours(batch, in_backward);
  for (int i = 0; i < 3; ++i) ours.step();
  return meter.peak_bytes();
}

double ms_of(const std::function<void()>& step) {
  const auto start = Clock::now();
  step();
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void compare_times(const std::vector<Batch>& batches, int threads) {
  set_num_threads(threads);
  fmt::print("\na training step in ms by Adam, {} thread{}\n{:<12} {:>10} {:>10} {:>8} {:>14}\n",
             threads, threads == 1 ? "" : "s", "model", "Tenon", "PyTorch", "ratio",
             "losses differ");
  WorstRatio worst;
  for (const Batch& batch : batches) {
    Ours ours(batch, false);
    const std::function<double()> theirs = make_peer_step(batch, ours.parameters(), threads);
    std::vector<double> ms[2];
    double largest = 0;
    for (int round = 0; round < kRounds + 2; ++round) {
      double loss = 0, of_peer = 0;
      ms[0].push_back(ms_of([&] { loss = ours.step(); }));
      if (theirs) ms[1].push_back(ms_of([&] { of_peer = theirs(); }));
      if (theirs) largest = std::max(largest, std::abs(loss - of_peer) / std::abs(of_peer));
    }
    for (std::vector<double>& side : ms)
      if (!side.empty()) side.erase(side.begin(), side.begin() + 2);
    const double ours_ms = median(ms[0]), theirs_ms = theirs ? median(ms[1]) : 0;
    fmt::print("{:<12} {:>10.2f} {:>10} {:>8} {:>14}\n", batch.model, ours_ms,
               theirs ? fmt::format("{:.2f}", theirs_ms) : "-",
               theirs ? fmt::format("{:.2f}", ours_ms / theirs_ms) : "-",
               theirs ? fmt::format("{:.1e}", largest) : "-");
    worst.add(batch.model, ours_ms, theirs_ms);
  }
  worst.print(threads);
}

// Parameters and Adam's two moments: both sides hold them all the time.
std::uint64_t lasting_bytes(const std::vector<Tensor>& parameters) {
  std::uint64_t bytes = 0;
  for (const Tensor& p : parameters) bytes += 3 * static_cast<std::uint64_t>(p.nbytes());
  return bytes;
}

void compare_memory(const std::vector<Batch>& batches) {
  fmt::print("\nmost bytes of tensors at once; lasting: parameters and Adam's moments, which both "
             "sides hold all the time\n"
             "{:<12} {:>12} {:>12} {:>12} {:>12} {:>8} {:>8} {:>8}\n", "model", "all kept",
             "Tenon", "in backward", "PyTorch", "ratio", "ratio", "lasting");
  double worst = 0;
  for (const Batch& batch : batches) {
    const std::uint64_t all_kept = [&] {
      const autograd::RecomputeCheap keep(false);
      return our_peak_of(batch, false);
    }();
    const std::uint64_t after = our_peak_of(batch, false), during = our_peak_of(batch, true);
    const std::vector<Tensor> parameters = Ours(batch, false).parameters();
    const std::uint64_t peer = peer_peak_of(batch, parameters, 1);
    const auto ratio = [&](std::uint64_t bytes) {
      return static_cast<double>(bytes) / static_cast<double>(peer);
    };
    const auto shown = [&](std::uint64_t bytes) {
      return peer == 0 ? "-" : fmt::format("{:.3f}", ratio(bytes));
    };
    fmt::print("{:<12} {:>12} {:>12} {:>12} {:>12} {:>8} {:>8} {:>8}\n", batch.model,
               format_byte_size(all_kept), format_byte_size(after), format_byte_size(during),
               peer == 0 ? "-" : format_byte_size(peer), shown(after), shown(during),
               shown(lasting_bytes(parameters)));
    if (peer != 0) worst = std::max(worst, ratio(during));
  }
  if (worst > 0)
    fmt::print("worst, updates in backward: {:.3f} x the bytes of {}; wanted: at most {}: {}\n",
               worst, torch_name(), kMostOfTorchBytes, worst <= kMostOfTorchBytes ? "kept" : "NOT");
}

std::vector<Batch> make_batches(const std::vector<std::string>& chosen) {
  Generator generator(3);
  const auto images = [&](std::int64_t n, std::int64_t side) {
    return randn({n, 3, side, side}, DType::kF32, generator);
  };
  const auto classes = [&](std::int64_t n) { return randint(0, 10, {n}, DType::kI64, generator); };
  const std::vector<Batch> all = {{"resnet", images(16, 32), classes(16)},
                                  {"mobilenet", images(16, 32), classes(16)},
                                  {"unet", images(4, 64), {}},
                                  {"vit", images(8, 56), classes(8)},
                                  {"lstm", randn({32, 32, 64}), classes(32)},
                                  {"autoencoder", images(256, 16), {}},
                                  {"deep_mlp", images(256, 16), classes(256)}};
  if (chosen.empty()) return all;
  std::vector<Batch> some;
  for (const Batch& batch : all)
    if (std::find(chosen.begin(), chosen.end(), batch.model) != chosen.end()) some.push_back(batch);
  return some;
}

}  // namespace
}  // namespace tenon::bench

int main(int argc, char** argv) {
  using namespace tenon::bench;
  print_torch();
  const std::vector<Batch> batches = make_batches({argv + 1, argv + argc});
  for (const int threads : {1, 2}) compare_times(batches, threads);
  compare_memory(batches);
  return 0;
}
