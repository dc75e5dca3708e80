// Measures what the driver charges, in the format of data/driver_costs.json:
//
//   bench_cuda_driver_costs [--device 0] [--repeats 40] [--out driver_costs.json]
//
// Each call is made through the backend, as allocators make it, one at a time on an idle device;
// the median counts. Sizes that do not fit are left out.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "cuda_or_not.h"
#include "tenon/base/byte_size.h"
#include "tenon/device/cuda/cuda_backend.h"

namespace {

using namespace tenon;
using Clock = std::chrono::steady_clock;

// Microseconds of many tries.
class Times {
 public:
  template <typename Call>
  auto measure(Call&& call) {
    const auto start = Clock::now();
    auto result = call();
    us_.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    return result;
  }
  double median() {
    const auto middle = us_.begin() + static_cast<std::ptrdiff_t>(us_.size() / 2);
    std::nth_element(us_.begin(), middle, us_.end());
    return *middle;
  }
  bool empty() const { return us_.empty(); }

 private:
  std::vector<double> us_;
};

using Curves = std::map<std::string, std::vector<std::pair<std::uint64_t, double>>>;

void add(Curves& curves, const char* name, std::uint64_t size, Times& times) {
  if (!times.empty()) curves[name].push_back({size, times.median()});
}

// Whole segments, as cudaMalloc and cudaFree.
void measure_segments(CudaBackend& backend, std::uint64_t size, int repeats, Curves& curves) {
  Times alloc, free;
  for (int i = 0; i < repeats; ++i) {
    const auto segment = alloc.measure([&] { return backend.allocate_segment(size); });
    if (!segment) return;
    free.measure([&] { return backend.free_segment(*segment), 0; });
  }
  add(curves, "alloc", size, alloc);
  add(curves, "free", size, free);
}

// One handle of this size; access and unmapping for eight of them at once, as a stitch has them.
void measure_pages(CudaBackend& backend, std::uint64_t size, int repeats, Curves& curves) {
  constexpr std::uint64_t kHandles = 8;
  const auto range = backend.reserve_address(kHandles * size);
  if (!range) return;
  Times create, map, access, unmap, release;
  for (int i = 0; i < repeats; ++i) {
    std::vector<PageHandle> handles;
    for (std::uint64_t h = 0; h < kHandles; ++h) {
      const auto pages = create.measure([&] { return backend.create_pages(size); });
      if (!pages) break;
      handles.push_back(*pages);
    }
    for (std::size_t h = 0; h < handles.size(); ++h) {
      const std::uintptr_t at = range->base + h * size;
      map.measure([&] { return backend.map(at, handles[h]); });
      access.measure([&] { return backend.set_access(at, size); });
    }
    backend.fill(reinterpret_cast<void*>(range->base), 0, size, Stream{backend.device(), 0});
    backend.synchronize();
    for (std::size_t h = 0; h < handles.size(); ++h) {
      unmap.measure([&] { return backend.unmap(range->base + h * size, handles[h]), 0; });
      release.measure([&] { return backend.release_pages(handles[h]), 0; });
    }
    if (handles.size() < kHandles) break;
  }
  backend.release_address(*range);
  add(curves, "create", size, create);
  add(curves, "map", size, map);
  add(curves, "set_access_per_handle", size, access);
  add(curves, "unmap_per_handle", size, unmap);
  add(curves, "release", size, release);
}

nlohmann::json measure_small_calls(CudaBackend& backend, int repeats) {
  Times reserve, record, query, wait;
  const Stream first = backend.create_stream();
  const Stream second = backend.create_stream();
  for (int i = 0; i < repeats * 50; ++i) {
    const Event event = record.measure([&] { return backend.record(first); });
    query.measure([&] { return backend.query(event); });
    wait.measure([&] { return backend.stream_wait(second, event), 0; });
    backend.destroy_event(event);
  }
  for (int i = 0; i < repeats; ++i) {
    const auto range = reserve.measure([&] { return backend.reserve_address(kTiB); });
    if (range) backend.release_address(*range);
  }
  return {{"reserve_address", reserve.median()},
          {"event_record", record.median()},
          {"event_query", query.median()},
          {"stream_wait_event", wait.median()}};
}

}  // namespace

int main(int argc, char** argv) {
  int index = 0;
  int repeats = 40;
  std::string out;
  CLI::App app{"Measures the driver's costs in the format of data/driver_costs.json"};
  app.add_option("--device", index, "Which GPU")->capture_default_str();
  app.add_option("--repeats", repeats, "Tries for each figure")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  app.add_option("--out", out, "Write here instead of to stdout");
  CLI11_PARSE(app, argc, argv);
  const auto driver = bench::cuda_or_not("bench_cuda_driver_costs");
  if (driver == nullptr) return 0;
  CudaBackend backend(driver, index);
  Curves curves;
  for (const std::uint64_t size : {2 * kMiB, 16 * kMiB, 64 * kMiB, 256 * kMiB, kGiB}) {
    if (size * 9 > backend.memory().free_bytes) break;
    measure_segments(backend, size, repeats, curves);
    measure_pages(backend, size, repeats, curves);
  }
  nlohmann::json costs = measure_small_calls(backend, repeats);
  costs["source"] = fmt::format("{}; medians of {}; microseconds; linear interpolation in bytes "
                                "between points, last slope beyond",
                                backend.description(), repeats);
  costs["note"] = "alloc and free by cuMemAlloc and cuMemFree on an idle device; free also waits "
                  "for all device work in flight";
  for (const auto& [name, curve] : curves) costs[name] = curve;
  const std::string text = costs.dump(1) + "\n";
  if (out.empty())
    fmt::print("{}", text);
  else
    std::ofstream(out) << text;
  return 0;
}
