#include "tenon/lab/advice/torch_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "tenon/base/error.h"

namespace tenon {
namespace {

constexpr TorchVersion kNewName{2, 9};
// Before, max_split_size_mb and max_non_split_rounding_mb had to exceed the 20 MiB of a large
// segment; from here on they may equal it.
constexpr TorchVersion kTakesLargeSegment{2, 9};

// The first release whose libc10 or libc10_cuda has the key: read from the Linux wheels on PyPI,
// 2.0.1 to 2.15.0. Numbers are pull requests of github.com/pytorch/pytorch.
constexpr std::array<TorchSetting, 21> kSettings = {{
    {"max_split_size_mb", kFirstTorch, Fidelity::kMeasured, "#44742"},
    {"roundup_power2_divisions", kFirstTorch, Fidelity::kMeasured, "#74213, lists #87290"},
    {"garbage_collection_threshold", kFirstTorch, Fidelity::kApproximate, "#74261"},
    {"backend", kFirstTorch, Fidelity::kNotReplayed, "#65365"},
    {"expandable_segments", {2, 1}, Fidelity::kMeasured, "#96995"},
    {"release_lock_on_cudamalloc", {2, 2}, Fidelity::kNotReplayed, ""},
    {"pinned_use_cuda_host_register", {2, 2}, Fidelity::kNotReplayed, ""},
    {"pinned_use_hip_host_register", {2, 2}, Fidelity::kNotReplayed, ""},
    {"pinned_num_register_threads", {2, 2}, Fidelity::kNotReplayed, ""},
    {"max_non_split_rounding_mb", {2, 6}, Fidelity::kMeasured, "#136174"},
    {"pinned_use_background_threads", {2, 6}, Fidelity::kNotReplayed, "#135524"},
    {"graph_capture_record_stream_reuse", {2, 9}, Fidelity::kNotReplayed, "#158352"},
    {"per_process_memory_fraction", {2, 10}, Fidelity::kApproximate, "#161035"},
    {"pinned_reserve_segment_size_mb", {2, 10}, Fidelity::kNotReplayed, "#164501"},
    {"large_segment_size_mb", {2, 11}, Fidelity::kMeasured, "#172056"},
    {"throw_on_cudamalloc_oom", {2, 12}, Fidelity::kNotReplayed, ""},
    {"pinned_free_catch_all", {2, 12}, Fidelity::kNotReplayed, ""},
    {"pinned_max_round_threshold_mb", {2, 13}, Fidelity::kNotReplayed, ""},
    {"pinned_max_cached_size_mb", {2, 13}, Fidelity::kNotReplayed, ""},
    {"expandable_segments_reserve", {2, 15}, Fidelity::kNotReplayed, ""},
    {"expandable_segments_reserve_by_class", {2, 15}, Fidelity::kNotReplayed, ""},
}};

// Calls visit(key, value) for each "key:value", also where values are lists.
template <typename Visit>
void for_each_setting(std::string_view conf, Visit&& visit) {
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= conf.size(); ++i) {
    if (i < conf.size() && conf[i] == '[') ++depth;
    if (i < conf.size() && conf[i] == ']') --depth;
    if (i < conf.size() && (conf[i] != ',' || depth > 0)) continue;
    std::string_view item = conf.substr(begin, i - begin);
    while (item.starts_with(' ')) item.remove_prefix(1);
    const std::string_view key = item.substr(0, item.find_first_of(": "));
    if (!item.empty()) visit(key, item.substr(std::min(item.size(), key.size() + 1)));
    begin = i + 1;
  }
}

const TorchSetting* find_setting(std::string_view key) {
  const auto at = std::find_if(kSettings.begin(), kSettings.end(),
                               [&](const TorchSetting& setting) { return setting.key == key; });
  return at == kSettings.end() ? nullptr : &*at;
}

// The oldest PyTorch that accepts the key with the value. Requires: a key of torch_settings().
TorchVersion since(const TorchSetting& setting, std::string_view value) {
  const bool bounded =
      setting.key == "max_split_size_mb" || setting.key == "max_non_split_rounding_mb";
  while (value.starts_with(' ')) value.remove_prefix(1);
  return bounded && value == "20" ? std::max(setting.since, kTakesLargeSegment) : setting.since;
}

}  // namespace

std::string TorchVersion::text() const { return fmt::format("{}.{}", major_number, minor_number); }

TorchVersion parse_torch_version(std::string_view text) {
  TorchVersion version;
  const char* const end = text.data() + text.size();
  const auto major = std::from_chars(text.data(), end, version.major_number);
  bool good = major.ec == std::errc() && major.ptr != end && *major.ptr == '.';
  if (good) {
    const auto minor = std::from_chars(major.ptr + 1, end, version.minor_number);
    good = minor.ec == std::errc() && (minor.ptr == end || *minor.ptr == '.' || *minor.ptr == '+');
  }
  if (!good)
    throw InvalidArgument(fmt::format(
        "--torch {}: give a version of PyTorch, like 2.6 (python -c 'import torch; "
        "print(torch.__version__)' prints it)",
        text));
  if (version < kFirstTorch)
    throw InvalidArgument(
        fmt::format("--torch {}: versions from {} on record memory", text, kFirstTorch.text()));
  return version;
}

std::string_view fidelity_text(Fidelity fidelity) {
  switch (fidelity) {
    case Fidelity::kMeasured: return "to the byte, compared with PyTorch";
    case Fidelity::kApproximate: return "approximate";
    case Fidelity::kNotReplayed: return "no effect on a replay";
  }
  return "";
}

std::span<const TorchSetting> torch_settings() { return kSettings; }

TorchVersion accepted_since(std::string_view conf) {
  TorchVersion oldest = kFirstTorch;
  for_each_setting(conf, [&](std::string_view key, std::string_view value) {
    const TorchSetting* setting = find_setting(key);
    if (setting != nullptr) oldest = std::max(oldest, since(*setting, value));
  });
  return oldest;
}

bool accepts(TorchVersion version, std::string_view conf) {
  bool all = true;
  for_each_setting(conf, [&](std::string_view key, std::string_view value) {
    const TorchSetting* setting = find_setting(key);
    all &= setting != nullptr && since(*setting, value) <= version;
  });
  return all;
}

std::string fidelity_note(std::string_view conf) {
  std::string lines;
  for_each_setting(conf, [&](std::string_view key, std::string_view) {
    const TorchSetting* setting = find_setting(key);
    if (setting == nullptr || setting->fidelity < Fidelity::kApproximate) return;
    lines += fmt::format("{}: {}\n", key, fidelity_text(setting->fidelity));
  });
  return lines;
}

TorchVersion variable_since(std::string_view variable) {
  return variable == "PYTORCH_ALLOC_CONF" ? kNewName : kFirstTorch;
}

std::string_view conf_variable(TorchVersion version) {
  return version < kNewName ? "PYTORCH_CUDA_ALLOC_CONF" : "PYTORCH_ALLOC_CONF";
}

}  // namespace tenon
