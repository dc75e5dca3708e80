// How long operators take, beside PyTorch (where the build found it), OpenBLAS and oneDNN: one
// process, the same inputs, on one thread and on two.
//   bench_operators [--threads N] [--filter TEXT] [--section figures|products|functions|choices]
//                   [--rows N]       functions are of N x 1024 numbers (1024)
//   bench_operators --section breadth ...   other dtypes, shapes and strides, and more operators
//   bench_operators --section random|gradients [--seed N] [--cases N] ...
//                   so many cases of random operators, shapes, dtypes and layouts (1000, 200),
//                   beside PyTorch alone; `gradients`: the operator and its gradients
#include "tenon/ops/operators.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <string>
#include <vector>

#include "breadth.h"
#include "runner.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/random.h"

namespace tenon::bench {
namespace {

struct Options {
  int threads = 0;  // 0: one, then two
  std::string filter;
  std::string section;
  std::int64_t rows = 1024;
  std::uint64_t seed = 1000;
  std::uint64_t cases = 200;
};

// What the work of element-wise operators on large tensors is: bytes.
void print_bandwidth(Runner& r) {
  const Tensor a = randn({4096, 4096}), out = empty({4096, 4096});
  const auto bytes = static_cast<double>(a.nbytes());
  r.run("the limit: copy 4096x4096", 2 * bytes, [&] { return copy_(out, a); }, {"neg", {a}});
}

void figures(Runner& r, std::int64_t n) {
  const Tensor a = randn({n, n}), b = randn({n, n});
  const double bytes = static_cast<double>(n) * static_cast<double>(n) * 4;
  const std::string size = fmt::format(" {}x{}", n, n);
  const Tensor out = empty({n, n});
  r.run("add" + size, 3 * bytes, [&] { return ops::add(a, b); }, {"add", {a, b}});
  r.run("add, out=" + size, 3 * bytes, [&] { return ops::add_out(out, a, b); }, {"add", {a, b}});
  r.run("mul" + size, 3 * bytes, [&] { return ops::mul(a, b); }, {"mul", {a, b}});
  r.run("exp" + size, 2 * bytes, [&] { return ops::exp(a); }, {"exp", {a}});
  r.run("sum" + size, bytes, [&] { return ops::sum(a); }, {"sum", {a}});
  r.run("sum(0)" + size, bytes, [&] { return ops::sum(a, 0); }, {"sum0", {a}});
  r.run("softmax" + size, 2 * bytes, [&] { return ops::softmax(a, -1); }, {"softmax -1", {a}});
  r.run("softmax(0)" + size, 2 * bytes, [&] { return ops::softmax(a, 0); }, {"softmax 0", {a}});
  const Tensor w = ones({n}), c = zeros({n});
  r.run("layer_norm" + size, 2 * bytes, [&] { return ops::layer_norm(a, {n}, w, c); },
        {"layer_norm", {a, w, c}});
  const Tensor t = b.t();
  r.run("add transposed" + size, 3 * bytes, [&] { return ops::add(a, t); }, {"add", {a, t}});
  r.run("exp transposed" + size, 2 * bytes, [&] { return ops::exp(t); }, {"exp", {t}});
  r.run("sum transposed" + size, bytes, [&] { return ops::sum(t); }, {"sum", {t}});
  r.run("softmax transposed" + size, 2 * bytes, [&] { return ops::softmax(t, -1); },
        {"softmax -1", {t}});
  r.run("layer_norm transposed" + size, 2 * bytes, [&] { return ops::layer_norm(t, {n}, w, c); },
        {"layer_norm", {t, w, c}});
}

void matrix_products(Runner& r, DType dtype) {
  for (const std::int64_t n : {64, 128, 256, 512, 1024, 2048}) {
    const Tensor a = to(randn({n, n}), dtype), b = to(randn({n, n}), dtype);
    const double flops =
        2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
    // PyTorch 1.13 needs minutes for these without instructions for bfloat16.
    const bool too_slow =
        dtype == DType::kBF16 && n > 512 && torch_name().starts_with("PyTorch 1.");
    r.run(fmt::format("matmul {}{}", dtype == DType::kBF16 ? "bf16 " : "", n), flops,
          [&] { return ops::matmul(a, b); }, {too_slow ? "" : "matmul", {a, b}, true});
  }
}

void convolutions(Runner& r) {
  struct Layer {
    std::int64_t channels, filters, size, kernel, stride;
  };
  // Of ResNet-50.
  for (const Layer& l :
       {Layer{3, 64, 224, 7, 2}, Layer{64, 64, 56, 3, 1}, Layer{256, 64, 56, 1, 1},
        Layer{64, 256, 56, 1, 1}, Layer{128, 128, 28, 3, 1}, Layer{512, 128, 28, 1, 1},
        Layer{256, 512, 56, 1, 2}, Layer{256, 256, 14, 3, 1}, Layer{1024, 256, 14, 1, 1},
        Layer{512, 512, 7, 3, 1}, Layer{512, 2048, 7, 1, 1}}) {
    const Tensor a = randn({1, l.channels, l.size, l.size});
    const Tensor w = randn({l.filters, l.channels, l.kernel, l.kernel});
    const ops::ConvOptions o{l.stride, l.kernel / 2, 1, 1, 0};
    const double places = static_cast<double>(l.size / l.stride * (l.size / l.stride));
    const double flops = 2.0 * places * static_cast<double>(w.numel());
    r.run(fmt::format("conv2d {}x{} {} k{} s{}", l.channels, l.size, l.filters, l.kernel, l.stride),
          flops, [&] { return ops::conv2d(a, w, {}, o); },
          {fmt::format("conv2d {} {}", l.stride, l.kernel / 2), {a, w}});
  }
}

// Every function of one number and of two, on positive operands, which all are defined for.
void functions(Runner& r, std::int64_t rows) {
  const Tensor a = ops::add(rand({rows, 1024}), 0.01), b = ops::add(rand({rows, 1024}), 0.01);
  const auto bytes = static_cast<double>(a.nbytes());
#define TENON_RUN(name) r.run(#name, 2 * bytes, [&] { return ops::name(a); }, {#name, {a}});
  TENON_RUN(exp)
  TENON_RUN(exp2) TENON_RUN(expm1) TENON_RUN(log) TENON_RUN(log2) TENON_RUN(log10) TENON_RUN(log1p)
      TENON_RUN(sqrt) TENON_RUN(rsqrt) TENON_RUN(reciprocal) TENON_RUN(sin) TENON_RUN(cos)
          TENON_RUN(tan) TENON_RUN(asin) TENON_RUN(acos) TENON_RUN(atan) TENON_RUN(sinh)
              TENON_RUN(cosh) TENON_RUN(tanh) TENON_RUN(erf) TENON_RUN(erfc) TENON_RUN(sigmoid)
                  TENON_RUN(floor) TENON_RUN(round) TENON_RUN(neg) TENON_RUN(abs) TENON_RUN(sign)
                      TENON_RUN(square) TENON_RUN(relu) TENON_RUN(log_sigmoid) TENON_RUN(silu)
                          TENON_RUN(mish) TENON_RUN(gelu) TENON_RUN(elu) TENON_RUN(softplus)
                              TENON_RUN(leaky_relu) TENON_RUN(hardswish) TENON_RUN(isnan)
#undef TENON_RUN
#define TENON_RUN(name) r.run(#name, 3 * bytes, [&] { return ops::name(a, b); }, {#name, {a, b}});
                                  TENON_RUN(div) TENON_RUN(maximum) TENON_RUN(pow) TENON_RUN(atan2)
                                      TENON_RUN(fmod) TENON_RUN(remainder) TENON_RUN(floor_divide)
                                          TENON_RUN(lt)
#undef TENON_RUN
                                              r.run("pow(2)", 2 * bytes,
                                                    [&] { return ops::pow(a, 2); }, {"pow2", {a}});
  const Tensor twice = to(a, DType::kF64), exponents = to(b, DType::kF64);
#define TENON_RUN(name) \
  r.run(#name " f64", 4 * bytes, [&] { return ops::name(twice); }, {#name, {twice}});
  TENON_RUN(exp) TENON_RUN(log) TENON_RUN(tanh) TENON_RUN(erf) TENON_RUN(erfc) TENON_RUN(gelu)
#undef TENON_RUN
  r.run("pow f64", 6 * bytes, [&] { return ops::pow(twice, exponents); },
        {"pow", {twice, exponents}});
  const Tensor low = to(a, DType::kBF16), other = to(b, DType::kBF16);
  r.run("add bf16", 1.5 * bytes, [&] { return ops::add(low, other); }, {"add", {low, other}});
  r.run("exp bf16", bytes, [&] { return ops::exp(low); }, {"exp", {low}});
  r.run("softmax bf16", bytes, [&] { return ops::softmax(low, -1); }, {"softmax -1", {low}});
}

// Elements chosen by index, and running sums.
void choices(Runner& r) {
  const Tensor a = randn({1024, 1024}), source = randn({1024, 1024});
  const Tensor places = randint(0, 1024, {1024, 1024}), rows = randint(0, 1024, {1024});
  const auto bytes = static_cast<double>(a.nbytes());
  for (const std::int64_t dim : {0, 1}) {
    const std::string at = fmt::format("({})", dim);
    const std::string number = fmt::format(" {}", dim);
    r.run("gather" + at, 4 * bytes, [&] { return ops::gather(a, dim, places); },
          {"gather" + number, {a, places}});
    r.run("scatter_add" + at, 5 * bytes, [&] { return ops::scatter_add(a, dim, places, source); },
          {"scatter_add" + number, {a, places, source}});
    r.run("index_add" + at, 4 * bytes, [&] { return ops::index_add(a, dim, rows, source); },
          {"index_add" + number, {a, rows, source}});
    r.run("index_select" + at, 2 * bytes, [&] { return ops::index_select(a, dim, rows); },
          {"index_select" + number, {a, rows}});
    r.run("cumsum" + at, 2 * bytes, [&] { return ops::cumsum(a, dim); }, {"cumsum" + number, {a}});
    r.run("log_softmax" + at, 2 * bytes, [&] { return ops::log_softmax(a, dim); },
          {"log_softmax" + number, {a}});
  }
}

void random_cases(Runner& r, const Options& options, bool gradients) {
  fmt::print("{} cases of seed {}{}\n", options.cases, options.seed,
             gradients ? ", with their gradients" : "");
  std::uint64_t done = 0;
  for (std::uint64_t number = 0; done < options.cases; ++number) {
    if (r.run_random(options.seed, number, gradients)) ++done;
  }
}

void run_all(const Options& options, int threads) {
  Runner runner(options.filter, threads);
  const auto wanted = [&](const char* section) {
    return options.section.empty() || options.section == section;
  };
  if (wanted("figures")) {
    print_bandwidth(runner);
    for (const std::int64_t n : {64, 1024, 4096}) figures(runner, n);
  }
  if (wanted("products")) {
    matrix_products(runner, DType::kF32);
    matrix_products(runner, DType::kBF16);
    convolutions(runner);
  }
  if (wanted("functions")) functions(runner, options.rows);
  if (wanted("choices")) choices(runner);
  if (options.section == "breadth") breadth(runner);
  if (options.section == "random") random_cases(runner, options, false);
  if (options.section == "gradients") random_cases(runner, options, true);
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Operators beside PyTorch, OpenBLAS and oneDNN");
  app.add_option("--threads", options.threads, "0: one, then two")->check(CLI::Range(0, 1024));
  app.add_option("--filter", options.filter, "Only operators with this in their name");
  app.add_option("--section", options.section, "One of these; else the first four")
      ->check(CLI::IsMember({"figures", "products", "functions", "choices", "breadth", "random",
                             "gradients"}));
  app.add_option("--rows", options.rows, "Of functions")->check(CLI::Range(1, 1 << 20));
  app.add_option("--seed", options.seed, "Of random cases");
  app.add_option("--cases", options.cases, "How many")->check(CLI::Range(1, 1'000'000));
  CLI11_PARSE(app, argc, argv);
  print_torch();
  if (options.threads > 0) {
    run_all(options, options.threads);
  } else {
    run_all(options, 1);
    run_all(options, 2);
  }
  return 0;
}

// The threads of OpenMP and OpenBLAS spin for milliseconds when their work is done, on the cores
// that whoever comes next is measured on. They are told to sleep; both read that at the start.
void let_threads_sleep(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  setenv("OMP_WAIT_POLICY", "passive", 1);
  setenv("OPENBLAS_THREAD_TIMEOUT", "4", 1);
  execv("/proc/self/exe", argv);
}

}  // namespace
}  // namespace tenon::bench

int main(int argc, char** argv) {
  tenon::bench::let_threads_sleep(argv);
  return tenon::bench::run(argc, argv);
}
