// What a tensor costs besides its work: creation, views, handles; time and bytes.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "tenon/ops/binary.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/tensor.h"

namespace {

using namespace tenon;

// Nanoseconds for one call: the fastest of many short rounds, since a machine's other users only
// ever make it slower, and a short round has the better chance to run undisturbed.
template <typename Body>
double measure_ns(Body&& body) {
  constexpr double kRoundNs = 3e5;
  const auto time = [&](int calls) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) body();
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
    return spent.count() / calls;
  };
  time(100);  // warm
  const int calls = std::max(1, static_cast<int>(kRoundNs / std::max(time(100), 1.0)));
  double best = time(calls);
  for (int round = 0; round < 400; ++round) best = std::min(best, time(calls));
  return best;
}

template <typename Made>
void keep(const Made& made) {
  asm volatile("" : : "r"(&made) : "memory");
}

void print(const char* what, double ns, double target_ns) {
  fmt::print("  {:<28} {:>7.1f} ns   target {:>3.0f} ns\n", what, ns, target_ns);
}

// What no addition can be faster than: the loop alone, over memory that is there.
__attribute__((target_clones("avx2", "default"))) void bare_add(float* out, const float* a,
                                                                const float* b, int count) {
  for (int i = 0; i < count; ++i) out[i] = a[i] + b[i];
}

void print_add(std::int64_t n) {
  const Tensor a = ones({n, n}), b = ones({n, n}), out = ones({n, n});
  const auto count = static_cast<int>(n * n);
  const double bound = measure_ns([&] {
    bare_add(out.data_ptr<float>(), a.const_data_ptr<float>(), b.const_data_ptr<float>(), count);
    keep(out);
  });
  const double ours = measure_ns([&] { keep(ops::add(a, b)); });
  fmt::print("  {:<28} {:>7.1f} ns   {}its loop alone {:.1f} ns: {:.0f} bytes a ns\n",
             fmt::format("add of two {} x {}", n, n), ours, n == 64 ? "target 200 ns; " : "", bound,
             12.0 * static_cast<double>(count) / bound);
}

}  // namespace

int main() {
  std::thread([] {}).join();  // shared counts are atomic once there were threads
  const Tensor base = empty({64, 64});
  const Tensor deep = empty({2, 3, 4, 5, 6, 7});
  fmt::print("metadata: {} bytes a tensor with its storage and version, {} a view\n",
             base.impl()->metadata_bytes(), sizeof(TensorImpl));
  print("empty({64, 64}) and free", measure_ns([] { keep(empty({64, 64})); }), 60);
  print("copy of a handle", measure_ns([&] { keep(Tensor(base)); }), 10);
  print("slice", measure_ns([&] { keep(base.slice(0, 8, 32)); }), 25);
  print("select", measure_ns([&] { keep(base.select(0, 7)); }), 25);
  print("transpose", measure_ns([&] { keep(base.transpose(0, 1)); }), 25);
  print("permute", measure_ns([&] { keep(base.permute({1, 0})); }), 25);
  print("view", measure_ns([&] { keep(base.view({16, 256})); }), 25);
  print("reshape", measure_ns([&] { keep(base.reshape({4096})); }), 25);
  print("expand", measure_ns([&] { keep(base.expand({3, 64, 64})); }), 25);
  print("unsqueeze", measure_ns([&] { keep(base.unsqueeze(0)); }), 25);
  print("diagonal", measure_ns([&] { keep(base.diagonal()); }), 25);
  print("as_strided", measure_ns([&] { keep(base.as_strided({8, 8}, {64, 1})); }), 25);
  print("detach", measure_ns([&] { keep(base.detach()); }), 25);
  for (const std::int64_t n : {2, 16, 32, 64}) print_add(n);
  fmt::print("  (64 x 64 are three times 16 KiB: more than a first-level cache of 32 KiB)\n");
  print("slice of 6 dimensions", measure_ns([&] { keep(deep.slice(1, 1, 3)); }), 60);
}
