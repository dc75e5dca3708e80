// How long operators take, beside libtorch where the build found it: one process, the same inputs.
//   bench_operators [--threads N] [--filter TEXT]
#include "tenon/ops/operators.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "peer.h"
#include "tenon/base/parallel.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/random.h"

namespace tenon::bench {
namespace {

struct Options {
  int threads = 1;
  std::string filter;
};

class Runner {
 public:
  explicit Runner(const Options& options) : options_(options) {
    fmt::print("{:<30} {:>12} {:>12} {:>8}   GB/s or GFLOP/s\n", "operator", "tenon us",
               "libtorch us", "ratio");
  }

  // `work`: bytes moved or operations done by one call, for the last column.
  void run(const std::string& name, double work, const std::function<Tensor()>& ours,
           const std::string& peer, const std::vector<Tensor>& inputs) {
    if (name.find(options_.filter) == std::string::npos) return;
    const double ns = measure_ns([&] { keep(ours()); });
    const double theirs = peer_ns(peer, inputs, options_.threads);
    fmt::print("{:<30} {:>12.2f} {:>12} {:>8}   {:.1f}\n", name, ns / 1e3,
               theirs > 0 ? fmt::format("{:.2f}", theirs / 1e3) : "-",
               theirs > 0 ? fmt::format("{:.2f}", ns / theirs) : "-", work / ns);
  }

 private:
  static void keep(const Tensor& made) { asm volatile("" : : "r"(made.impl()) : "memory"); }
  const Options options_;
};

void elementwise(Runner& r, std::int64_t n) {
  const Tensor a = randn({n, n}), b = randn({n, n});
  const double bytes = static_cast<double>(n) * static_cast<double>(n) * 4;
  const std::string size = fmt::format(" {}x{}", n, n);
  r.run("add" + size, 3 * bytes, [&] { return ops::add(a, b); }, "add", {a, b});
  r.run("mul" + size, 3 * bytes, [&] { return ops::mul(a, b); }, "mul", {a, b});
  r.run("exp" + size, 2 * bytes, [&] { return ops::exp(a); }, "exp", {a});
  r.run("sum" + size, bytes, [&] { return ops::sum(a); }, "sum", {a});
  r.run("sum(0)" + size, bytes, [&] { return ops::sum(a, 0); }, "sum0", {a});
  r.run("softmax" + size, 2 * bytes, [&] { return ops::softmax(a, -1); }, "softmax", {a});
  const Tensor w = ones({n}), c = zeros({n});
  r.run("layer_norm" + size, 2 * bytes, [&] { return ops::layer_norm(a, {n}, w, c); }, "layer_norm",
        {a, w, c});
  const Tensor t = b.t();
  r.run("add transposed" + size, 3 * bytes, [&] { return ops::add(a, t); }, "add", {a, t});
  r.run("exp transposed" + size, 2 * bytes, [&] { return ops::exp(t); }, "exp", {t});
  r.run("sum transposed" + size, bytes, [&] { return ops::sum(t); }, "sum", {t});
  r.run("softmax transposed" + size, 2 * bytes, [&] { return ops::softmax(t, -1); }, "softmax",
        {t});
}

void products(Runner& r) {
  for (const std::int64_t n : {64, 128, 256, 512, 1024}) {
    const Tensor a = randn({n, n}), b = randn({n, n});
    const double flops =
        2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
    r.run(fmt::format("matmul {}", n), flops, [&] { return ops::matmul(a, b); }, "matmul", {a, b});
  }
  struct Layer {
    std::int64_t channels, filters, size, kernel, stride;
  };
  // Of ResNet-50.
  for (const Layer& l :
       {Layer{3, 64, 224, 7, 2}, Layer{64, 64, 56, 3, 1}, Layer{256, 64, 56, 1, 1},
        Layer{128, 128, 28, 3, 1}, Layer{256, 256, 14, 3, 1}, Layer{512, 512, 7, 3, 1}}) {
    const Tensor a = randn({1, l.channels, l.size, l.size});
    const Tensor w = randn({l.filters, l.channels, l.kernel, l.kernel});
    const ops::ConvOptions o{l.stride, l.kernel / 2, 1, 1, 0};
    const double places = static_cast<double>(l.size / l.stride * (l.size / l.stride));
    const double flops = 2.0 * places * static_cast<double>(w.numel());
    r.run(fmt::format("conv2d {}x{} {} k{} s{}", l.channels, l.size, l.filters, l.kernel, l.stride),
          flops, [&] { return ops::conv2d(a, w, {}, o); },
          fmt::format("conv2d {} {}", l.stride, l.kernel / 2), {a, w});
  }
}

int run(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--threads") == 0) options.threads = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--filter") == 0) options.filter = argv[i + 1];
  }
  set_num_threads(options.threads);
  Runner runner(options);
  for (const std::int64_t n : {64, 1024, 4096}) elementwise(runner, n);
  products(runner);
  return 0;
}

}  // namespace
}  // namespace tenon::bench

int main(int argc, char** argv) { return tenon::bench::run(argc, argv); }
