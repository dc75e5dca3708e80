// One line for each operator: its time beside the others'.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "../torch_name.h"
#include "peer.h"
#include "tenon/base/parallel.h"

namespace tenon::bench {

struct Peers {
  std::string torch;
  std::vector<Tensor> inputs;
  bool products = false;  // OpenBLAS and oneDNN, too
};

class Runner {
 public:
  Runner(std::string filter, int threads) : filter_(std::move(filter)), threads_(threads) {
    set_num_threads(threads);
    set_peer_threads(threads);
    fmt::print(
        "\n{} thread{}; times in us; ours over PyTorch's, and over the fastest of the others\n",
        threads, threads == 1 ? "" : "s");
    fmt::print("{:<30} {:>11} {:>11} {:>11} {:>11} {:>6} {:>7}   GB/s or GFLOP/s\n", "operator",
               "tenon", "PyTorch", "OpenBLAS", "oneDNN", "ratio", "fastest");
  }
  ~Runner() { worst_.print(threads_); }

  // `work`: bytes moved or operations done by one call, for the last column.
  void run(const std::string& name, double work, const std::function<Tensor()>& ours,
           const Peers& peers) {
    if (name.find(filter_) == std::string::npos) return;
    std::vector<Call> calls = {[&] { keep(ours()); }, {}, {}, {}};
    if (!peers.torch.empty()) calls[1] = peer_call(peers.torch, peers.inputs);
    if (peers.products) {
      calls[2] = openblas_matmul(peers.inputs[0], peers.inputs[1], threads_);
      calls[3] = onednn_matmul(peers.inputs[0], peers.inputs[1], threads_);
    }
    const std::vector<double> ns = measure_together(calls);
    double fastest = 0;
    std::string line = fmt::format("{:<30} {:>11.2f}", name, ns[0] / 1e3);
    for (std::size_t i = 1; i < ns.size(); ++i) {
      if (ns[i] > 0 && (fastest == 0 || ns[i] < fastest)) fastest = ns[i];
      line += ns[i] > 0 ? fmt::format(" {:>11.2f}", ns[i] / 1e3) : fmt::format(" {:>11}", "-");
    }
    const auto over = [&](double other) {
      return other > 0 ? fmt::format("{:.2f}", ns[0] / other) : "-";
    };
    fmt::print("{} {:>6} {:>7}   {:.1f}\n", line, over(ns[1]), over(fastest), work / ns[0]);
    worst_.add(name, ns[0], ns[1]);
    std::fflush(stdout);
  }

 private:
  static void keep(const Tensor& made) { asm volatile("" : : "r"(made.impl()) : "memory"); }
  const std::string filter_;
  const int threads_;
  WorstRatio worst_;
};

}  // namespace tenon::bench
