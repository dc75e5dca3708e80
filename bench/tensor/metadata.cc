// What a tensor costs besides its work: creation, views, handles; time and bytes.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "tenon/tensor/factories.h"
#include "tenon/tensor/tensor.h"

namespace {

using namespace tenon;

// Nanoseconds for one call: the fastest of nine rounds, since a machine's other users only ever
// make it slower.
template <typename Body>
double measure_ns(Body&& body) {
  constexpr int kCalls = 200000;
  std::vector<double> rounds;
  for (int round = 0; round < 9; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) body();
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
    rounds.push_back(spent.count() / kCalls);
  }
  return *std::min_element(rounds.begin(), rounds.end());
}

template <typename Made>
void keep(const Made& made) {
  asm volatile("" : : "r"(&made) : "memory");
}

void print(const char* what, double ns, double target_ns) {
  fmt::print("  {:<28} {:>7.1f} ns   target {:>3.0f} ns\n", what, ns, target_ns);
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
  print("slice of 6 dimensions", measure_ns([&] { keep(deep.slice(1, 1, 3)); }), 60);
}
