// Which PyTorch a program compares with. This header knows nothing of it.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <string>

namespace tenon::bench {

// "PyTorch 2.15.0"; empty where the build has none.
std::string torch_name();

// No operator and no training step is to take longer than this many times PyTorch's.
constexpr double kMostOfTorchTime = 1.05;

// What the figures are beside, and how to get what is missing.
inline void print_torch() {
  constexpr const char* kRemedy =
      "`make bench`, or configure with -DTENON_PYTORCH=FOLDER, the folder torch of an installation";
  const std::string name = torch_name();
  if (name.empty())
    fmt::print("PyTorch: this build has none; to get it: {}\n", kRemedy);
  else if (name.starts_with("PyTorch 1."))
    fmt::print("beside {}, Debian's libtorch of 2022; for one of today: {}\n", name, kRemedy);
  else
    fmt::print("beside {}\n", name);
}

// The slowest of some comparisons with PyTorch.
class WorstRatio {
 public:
  void add(const std::string& what, double ours, double theirs) {
    if (theirs <= 0) return;
    const double ratio = ours / theirs;
    ++count_;
    logarithms_ += std::log(ratio);
    if (ratio > 1.5) ++half_slower_;
    if (ratio > kMostOfTorchTime) {
      ++slower_count_;
      slower_ += fmt::format("{}{} {:.2f}", slower_.empty() ? "" : ", ", what, ratio);
    }
    if (ratio <= worst_) return;
    worst_ = ratio;
    what_ = what;
  }
  // "worst, THREADS: ..." and the verdict on a line; nothing where there was no comparison.
  void print(int threads) const {
    if (count_ == 0) return;
    fmt::print("worst of {} on {} thread{}: {:.2f} x the time of {} ({}); wanted: at most {:.2f}: "
               "{}{}\n",
               count_, threads, threads == 1 ? "" : "s", worst_, torch_name(), what_,
               kMostOfTorchTime, slower_.empty() ? "kept" : "NOT: ", slower_);
    fmt::print("geometric mean of {}: {:.2f} x; above {:.2f}: {}; above 1.50: {}\n", count_,
               std::exp(logarithms_ / count_), kMostOfTorchTime, slower_count_, half_slower_);
  }

 private:
  int count_ = 0;
  int slower_count_ = 0;
  int half_slower_ = 0;
  double logarithms_ = 0;
  double worst_ = 0;
  std::string what_;
  std::string slower_;
};

}  // namespace tenon::bench
