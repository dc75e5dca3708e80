// A recorded run: what a program asked of its allocator, written to a file, and what every policy
// would have needed for it.
#include <fmt/format.h>

#include <filesystem>
#include <vector>

#include "tenon/base/byte_size.h"
#include "tenon/device/host/host_backend.h"
#include "tenon/lab/survey.h"
#include "tenon/memory/policies.h"
#include "tenon/memory/registry.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/random.h"
#include "tenon/trace/csv.h"
#include "tenon/trace/load.h"
#include "tenon/trace/recorder.h"

using namespace tenon;

int main() {
  HostBackend backend;
  const auto allocator = make_policy("caching", backend);

  Recorder recorder("layers");
  {
    const ObserverGuard watching(allocator->observers(), recorder);
    const AllocatorGuard current(Device{}, *allocator);
    Tensor x = randn({64, 512});
    std::vector<Tensor> kept;
    for (int layer = 0; layer < 8; ++layer) {
      x = ops::relu(ops::matmul(x, randn({512, 512})));
      kept.push_back(x);
    }
  }
  const std::string file = (std::filesystem::temp_directory_path() / "layers.csv.zst").string();
  write_csv(recorder.take(), file);

  // From here on it is a file like any other: `tenon replay layers.csv.zst` says the same.
  std::vector<Workload> workloads;
  for (const Trace& trace : load_traces(file)) workloads.emplace_back(trace);
  std::filesystem::remove(file);
  SurveyOptions options;
  options.policies = {"system", "caching", "stitched", "plan"};
  options.passes = 0;
  for (const SurveyResult& result : survey(workloads, options))
    fmt::print("{:<10} {} events, live peak {}, reserved {}\n", result.policy, result.events,
               format_byte_size(result.live_peak_bytes),
               format_byte_size(result.reserved_peak_bytes));
}
