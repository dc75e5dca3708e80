// What tenon advise prints.
#pragma once

#include <string>
#include <vector>

#include "tenon/lab/advice/advice.h"
#include "tenon/lab/advice/outside_memory.h"
#include "tenon/lab/advice/recorded_settings.h"

namespace tenon::command {

struct AdvisedFile {
  std::string name;  // of the trace
  std::string file;
  std::uint64_t events = 0;
  std::uint64_t live_peak_bytes = 0;
  RecordedSettings recorded;
  std::optional<std::uint64_t> recorded_peak_bytes;
};

struct AdviceReport {
  Advice advice;
  std::vector<AdvisedFile> programs;
  TorchVersion torch;
  std::uint64_t card_bytes = 0;  // 0: not known
  OutsideMemory outside;
  double seconds = 0;
};

// In words, a sentence or two.
std::string advice_verdict(const AdviceReport& report);

std::string advice_text(const AdviceReport& report);
std::string advice_json(const AdviceReport& report);

}  // namespace tenon::command
