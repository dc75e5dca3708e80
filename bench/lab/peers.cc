// Tenon's figures beside those that PyTorch gave for the same traces.
//
//   bench_peers [FIGURES.json [TRACES_DIR]]     default: data/traces of the source tree
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tenon/lab/survey.h"
#include "tenon/lab/text_table.h"
#include "tenon/trace/load.h"

namespace {

using namespace tenon;

struct Peer {
  const char* policy;  // ours
  const char* key;     // theirs, in the figures
};
constexpr Peer kPeers[] = {{"caching", "pytorch_default"}, {"expandable", "pytorch_expandable"}};

struct Tally {
  int same = 0;
  int all = 0;

  std::string mark(bool equal) {
    same += equal ? 1 : 0;
    ++all;
    return equal ? "yes" : "no";
  }
};

int compare(const std::string& figures_path, const std::string& traces_dir) {
  std::ifstream file(figures_path);
  const nlohmann::json figures = nlohmann::json::parse(file);
  std::vector<Workload> workloads;
  for (const auto& [name, peer] : figures.items())
    for (const Trace& trace : load_traces(fmt::format("{}/{}.csv.zst", traces_dir, name)))
      workloads.emplace_back(trace);

  SurveyOptions options;
  options.find_capacity = true;
  for (const Peer& peer : kPeers) options.policies.emplace_back(peer.policy);
  const std::vector<SurveyResult> results = survey(workloads, options);

  TextTable table({"trace", "policy", "reserved", "PyTorch's", "same", "capacity", "PyTorch's",
                   "same", "ns/event", "PyTorch's"});
  Tally tally;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const SurveyResult& ours = results[i];
    const nlohmann::json& theirs = figures.at(ours.trace).at(kPeers[i % std::size(kPeers)].key);
    const std::uint64_t reserved = theirs.at("reserved_peak_bytes");
    const std::uint64_t capacity = theirs.at("min_capacity_bytes");
    table.add({ours.trace, ours.policy, grouped(ours.reserved_peak_bytes), grouped(reserved),
               tally.mark(ours.reserved_peak_bytes == reserved),
               grouped(ours.min_capacity_bytes.value_or(0)), grouped(capacity),
               tally.mark(ours.min_capacity_bytes == capacity),
               fmt::format("{:.1f}", ours.ns_per_event.value_or(0)),
               fmt::format("{}", theirs.at("ns_per_event_warm").get<int>())});
  }
  fmt::print("{}\n{} of {} figures equal PyTorch's to the byte\n", table.format(), tally.same,
             tally.all);
  return tally.same == tally.all ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string traces = argc > 2 ? argv[2] : TENON_SOURCE_DIR "/data/traces";
  try {
    return compare(argc > 1 ? argv[1] : traces + "/pytorch_figures.json", traces);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_peers: {}\n", error.what());
    return 2;
  }
}
