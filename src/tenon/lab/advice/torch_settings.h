// Which allocator settings which PyTorch has, and how exactly a replay follows them. Thread-safe:
// pure functions of their arguments. O(keys of the settings).
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tenon {

// A version of PyTorch, without its patch level.
struct TorchVersion {
  std::uint32_t major_number = 0;
  std::uint32_t minor_number = 0;

  // "2.6".
  std::string text() const;
  friend auto operator<=>(const TorchVersion&, const TorchVersion&) = default;
};

// "2.6", "2.6.1", "2.6.0+cu124". Throws InvalidArgument for anything else, and for versions before
// 2.0, the first that records memory.
TorchVersion parse_torch_version(std::string_view text);

// The first with torch.cuda.memory._record_memory_history.
inline constexpr TorchVersion kFirstTorch{2, 0};
// What is assumed where neither the user nor the recording says: settings that every PyTorch from
// here on accepts.
inline constexpr TorchVersion kAssumedTorch{2, 1};

// From this release on, the oldest segment serves first (CachingSettings::oldest_segment_first).
inline constexpr TorchVersion kOldestSegmentFirst{2, 12};

// How exactly a replay follows a setting.
enum class Fidelity : std::uint8_t {
  kMeasured,     // to the byte, compared with PyTorch (tests/pytorch/allocator)
  kApproximate,  // figures may differ from PyTorch's
  kNotReplayed,  // the key has no effect on a replay
};

// In words, for what is printed.
std::string_view fidelity_text(Fidelity fidelity);

// One key of PyTorch's allocator settings.
struct TorchSetting {
  std::string_view key;
  TorchVersion since;
  Fidelity fidelity;
  std::string_view source;  // where the version is from
};

// Every key that parse_caching_settings knows.
std::span<const TorchSetting> torch_settings();

// The oldest PyTorch that accepts every key and value of `conf`. Requires: a conf that
// parse_caching_settings accepts.
TorchVersion accepted_since(std::string_view conf);

// Whether that PyTorch accepts every key and value of `conf`.
bool accepts(TorchVersion version, std::string_view conf);

// "garbage_collection_threshold: approximate": a line for each key of `conf` whose replay is not
// exact; empty where all are.
std::string fidelity_note(std::string_view conf);

// PYTORCH_ALLOC_CONF, or PYTORCH_CUDA_ALLOC_CONF, which every version reads.
std::string_view conf_variable(TorchVersion version);
TorchVersion variable_since(std::string_view variable);

}  // namespace tenon
