// What a message and a byte cost between ranks, through the collectives that training uses. Run by
// an MPI launcher; rank 0 prints a line of JSON for each operation and size: the seconds of the
// slowest rank, the least of several times, since other programs may use the processors.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <limits>

#include "tenon/distributed/mpi_group.h"
#include "tenon/tensor/factories.h"

namespace {

using namespace tenon;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kLargest = std::int64_t{8} << 20;  // bytes of all ranks' pieces

// Seconds of the slowest rank.
double slowest(distributed::ProcessGroup& group, double mine) {
  const Tensor all = empty({group.size()}, DType::kF64);
  group.all_gather(all, full({1}, mine, DType::kF64));
  const auto* data = all.const_data_ptr<double>();
  return *std::max_element(data, data + group.size());
}

double least_seconds(distributed::ProcessGroup& group, const std::function<void()>& call) {
  double least = std::numeric_limits<double>::infinity(), sum = 0;
  for (int i = 0; i < 8 || (i < 200 && sum < 0.5); ++i) {
    group.barrier();
    const Clock::time_point start = Clock::now();
    call();
    const double mine = std::chrono::duration<double>(Clock::now() - start).count();
    const double seconds = slowest(group, mine);
    least = std::min(least, seconds);
    sum += seconds;
  }
  return least;
}

void measure(distributed::ProcessGroup& group, std::int64_t bytes) {
  const auto elements = bytes / static_cast<std::int64_t>(sizeof(float));
  const std::int64_t piece = elements / group.size();
  const Tensor whole = zeros({elements}), part = zeros({piece});
  const auto print = [&](const char* operation, const std::function<void()>& call) {
    const double seconds = least_seconds(group, call);
    if (group.rank() == 0)
      fmt::print("{{\"operation\": \"{}\", \"ranks\": {}, \"bytes\": {}, \"seconds\": {:.3e}}}\n",
                 operation, group.size(), bytes, seconds);
  };
  print("all_gather", [&] { group.all_gather(whole, part); });
  print("reduce_scatter", [&] { group.reduce_scatter(part, whole); });
}

}  // namespace

int main() {
  try {
    const distributed::MpiSession session(distributed::MpiSession::timeout_from_environment());
    const auto group = session.world();
    for (std::int64_t bytes = 64 * group->size(); bytes <= kLargest; bytes *= 4)
      measure(*group, bytes);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_link: {}\n", error.what());
    distributed::MpiSession::abort(1);
  }
}
