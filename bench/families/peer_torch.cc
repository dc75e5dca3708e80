// The same models by PyTorch's functions. Built where CMake finds it.
#include "peer.h"

#include <torch/version.h>

#include <tuple>

#include "../torch_peer.h"
#include "models.h"

namespace tenon::bench {
namespace {

// PyTorch before 2.0, as Debian's libtorch is, has another name for it.
torch::Tensor attended(const torch::Tensor& query, const torch::Tensor& key,
                       const torch::Tensor& value) {
#if TORCH_VERSION_MAJOR >= 2
  return at::scaled_dot_product_attention(query, key, value);
#else
  return std::get<0>(at::_scaled_dot_product_attention(query, key, value));
#endif
}

// PyTorch's side of Families.
class Library {
 public:
  using T = torch::Tensor;

  explicit Library(const std::vector<Tensor>& parameters) {
    for (const Tensor& p : parameters)
      parameters_.push_back(borrowed(p).clone().set_requires_grad(true));
  }
  T parameter(const std::vector<std::int64_t>&) { return parameters_[next_++]; }
  T next() { return parameters_[next_++]; }
  T conv(const T& x, std::int64_t, std::int64_t kernel, std::int64_t stride,
         std::int64_t groups = 1) {
    return torch::conv2d(x, next(), {}, stride, kernel == 3 ? 1 : 0, 1, groups);
  }
  T up(const T& x, std::int64_t) { return torch::conv_transpose2d(x, next(), {}, 2); }
  T batch_norm(const T& x) {
    const T weight = next();
    return torch::batch_norm(x, weight, next(), {}, {}, true, 0.1, 1e-5, false);
  }
  T layer_norm(const T& x) {
    const T weight = next();
    return torch::layer_norm(x, {x.size(-1)}, weight, next());
  }
  T linear(const T& x, std::int64_t) {
    const T weight = next();
    return torch::linear(x, weight, next());
  }
  T matmul_t(const T& a, const T& b) { return torch::matmul(a, b.t()); }
  T attention(const T& qkv, std::int64_t heads) {
    const std::int64_t n = qkv.size(0), rows = qkv.size(1), width = qkv.size(2) / 3;
    const T all = qkv.view({n, rows, 3, heads, width / heads}).permute({2, 0, 3, 1, 4});
    return attended(all[0], all[1], all[2]).transpose(1, 2).reshape({n, rows, width});
  }
  T relu(T x) { return x.relu_(); }
  T relu6(const T& x) { return torch::hardtanh(x, 0, 6); }
  T gelu(const T& x) { return torch::gelu(x); }
  T sigmoid(const T& x) { return torch::sigmoid(x); }
  T tanh(const T& x) { return torch::tanh(x); }
  T add(const T& a, const T& b) { return a + b; }
  T mul(const T& a, const T& b) { return a * b; }
  T cat(const T& a, const T& b) { return torch::cat({a, b}, 1); }
  std::vector<T> chunk(const T& x, std::int64_t count) { return x.chunk(count, 1); }
  T max_pool(const T& x) { return torch::max_pool2d(x, 2); }
  T mean_of_plane(const T& x) { return x.mean({2, 3}); }
  T mean_of_rows(const T& x) { return x.mean(1); }
  T rows_of_places(const T& x) { return x.flatten(2).transpose(1, 2); }
  T flat(const T& x) { return x.flatten(1); }
  T row(const T& x, std::int64_t i) { return x.select(1, i); }
  std::int64_t channels(const T& x) { return x.size(1); }
  std::int64_t rows(const T& x) { return x.size(1); }
  std::int64_t last(const T& x) { return x.size(-1); }
  T cross_entropy(const T& x, const T& y) { return torch::cross_entropy_loss(x, y); }
  T squared_error(const T& x, const T& y) { return torch::mse_loss(x, y); }

  void start_step() { next_ = 0; }
  std::vector<T>& parameters() { return parameters_; }

 private:
  std::vector<T> parameters_;
  std::size_t next_ = 0;
};

class Step {
 public:
  Step(const Batch& batch, const std::vector<Tensor>& parameters, int threads)
      : batch_(batch),
        threads_(threads),
        library_(parameters),
        adam_(library_.parameters(), torch::optim::AdamOptions(1e-3)) {}
  double operator()() {
    set_torch_threads(threads_);
    library_.start_step();
    const torch::Tensor y = batch_.y.defined() ? borrowed(batch_.y) : torch::Tensor();
    const torch::Tensor loss =
        Families<Library>{library_}.loss(batch_.model, borrowed(batch_.x), y);
    loss.backward();
    adam_.step();
    for (torch::Tensor& p : library_.parameters()) p.mutable_grad() = torch::Tensor();
    return loss.item<double>();
  }

 private:
  const Batch batch_;
  const int threads_;
  Library library_;
  torch::optim::Adam adam_;
};

}  // namespace

std::function<double()> make_peer_step(const Batch& batch, const std::vector<Tensor>& parameters,
                                       int threads) {
  return [step = std::make_shared<Step>(batch, parameters, threads)] { return (*step)(); };
}

std::uint64_t peer_peak_of(const Batch& batch, const std::vector<Tensor>& parameters,
                           int threads) {
  return peak_of_torch([&] {
    Step step(batch, parameters, threads);
    for (int i = 0; i < 3; ++i) step();
  });
}

}  // namespace tenon::bench
