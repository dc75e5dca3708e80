// One line for each operator: its time beside the others'.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "../torch_name.h"
#include "apart.h"
#include "peer.h"
#include "random_cases.h"
#include "tenon/autograd/autograd.h"
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
    print(name, work, measure_together(calls));
  }
  // Beside PyTorch alone. False: gradients are wanted, and the case has none.
  bool run_random(std::uint64_t seed, std::uint64_t number, bool gradients) {
    try {
      std::istringstream said(
          ask_child([&](const Say& say) { measure_random(seed, number, gradients, say); }));
      std::string name;
      if (!std::getline(said, name)) return false;
      double bytes = 0, ours = 0, theirs = 0;
      if (said >> bytes >> ours >> theirs) print(name, bytes, {ours, theirs});
    } catch (const std::exception& e) {
      fmt::print("left out: {:.400}\n", e.what());
    }
    return true;
  }

 private:
  static void keep(const Tensor& made) { asm volatile("" : : "r"(made.impl()) : "memory"); }
  static std::vector<bool> wanted(const RandomCase& c) {
    std::vector<bool> made;
    for (std::size_t i = 0; i < c.inputs.size(); ++i)
      made.push_back((c.constants >> i & 1) == 0 && is_floating(c.inputs[i].dtype()));
    return made;
  }
  static Call gradients_of(const RandomCase& c) {
    Inputs in, leaves;
    const std::vector<bool> has = wanted(c);
    for (std::size_t i = 0; i < c.inputs.size(); ++i) {
      in.push_back(c.inputs[i].detach());
      if (has[i]) leaves.push_back(in.back().set_requires_grad(true));
    }
    const std::vector<Tensor> gradient = {ones_like(c.ours(c.inputs))};  // as PyTorch's, in order
    return [=, ours = c.ours] {
      const std::vector<Tensor> made = {ours(in)};
      keep(autograd::grad(made, leaves, gradient)[0]);
    };
  }
  // Says the name on a line, and bytes and the nanoseconds of both; the name alone where the filter
  // leaves it out, and nothing without gradients.
  void measure_random(std::uint64_t seed, std::uint64_t number, bool gradients,
                      const Say& say) const {
    const RandomCase c = random_case(seed, number);
    if (gradients && !has_gradients(c)) return;
    const std::string name = name_of(c);
    say(name + "\n");
    if (name.find(filter_) == std::string::npos) return;
    const Call ours = gradients ? gradients_of(c) : [&] { keep(c.ours(c.inputs)); };
    const std::vector<double> ns =
        measure_together({ours, gradients ? peer_gradients(c.peer, c.inputs, wanted(c))
                                          : peer_call(c.peer, c.inputs)});
    say(fmt::format("{} {} {}", c.inputs[0].nbytes(), ns[0], ns[1]));
  }
  void print(const std::string& name, double work, std::vector<double> ns) {
    ns.resize(4);
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

  const std::string filter_;
  const int threads_;
  WorstRatio worst_;
};

}  // namespace tenon::bench
