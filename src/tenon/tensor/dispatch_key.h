// What decides which kernel of an operator runs. Plain values: thread-safe, O(1), nothing throws.
#pragma once

#include <bit>
#include <cstdint>

#include "tenon/device/device.h"

namespace tenon {

// One reason to choose a kernel. Later keys are asked first: Autograd wraps what the keys below it
// do. Keys up to kLastBackend name where the data are.
enum class DispatchKey : std::uint8_t {
  kCpu,
  kCuda,
  kVulkan,
  kMetal,
  kXla,
  kSim,
  kMeta,        // shapes without memory
  kThirdParty,  // any device type registered at run time
  kLastBackend = kThirdParty,
  kLabels,    // names or symbolic sizes: Note [Labels of dimensions] in dim_labels.h
  kAutograd,  // absent in inference tensors
  kSparse,    // the layout is no strided one; before autograd, which follows what the kernel calls
  kTracer,    // a mode that watches operators; never in a tensor, set for a thread
};
inline constexpr int kDispatchKeyCount = static_cast<int>(DispatchKey::kTracer) + 1;

// A set of keys in one word.
class DispatchKeySet {
 public:
  constexpr DispatchKeySet() = default;
  constexpr DispatchKeySet(DispatchKey key) : bits_(bit(key)) {}

  // The usual questions and operations on sets, in one word of bits.
  constexpr bool has(DispatchKey key) const { return (bits_ & bit(key)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr DispatchKeySet add(DispatchKey key) const { return from_bits(bits_ | bit(key)); }
  constexpr DispatchKeySet remove(DispatchKey key) const { return from_bits(bits_ & ~bit(key)); }
  // The one asked first. Requires: not empty.
  constexpr DispatchKey highest() const {
    return static_cast<DispatchKey>(31 - std::countl_zero(bits_));
  }
  // In either, in both, in this one alone.
  constexpr DispatchKeySet operator|(DispatchKeySet o) const { return from_bits(bits_ | o.bits_); }
  constexpr DispatchKeySet operator&(DispatchKeySet o) const { return from_bits(bits_ & o.bits_); }
  constexpr DispatchKeySet operator-(DispatchKeySet o) const { return from_bits(bits_ & ~o.bits_); }
  constexpr bool operator==(const DispatchKeySet&) const = default;
  // Bit i: key i.
  constexpr std::uint32_t bits() const { return bits_; }

 private:
  static constexpr std::uint32_t bit(DispatchKey key) {
    return std::uint32_t{1} << static_cast<int>(key);
  }
  static constexpr DispatchKeySet from_bits(std::uint32_t bits) {
    DispatchKeySet set;
    set.bits_ = bits;
    return set;
  }

  std::uint32_t bits_ = 0;
};

// The two enumerations begin alike.
constexpr DispatchKey backend_key(DeviceType type) {
  return type <= DeviceType::kMeta ? static_cast<DispatchKey>(type) : DispatchKey::kThirdParty;
}
static_assert(backend_key(DeviceType::kCpu) == DispatchKey::kCpu);
static_assert(backend_key(DeviceType::kXla) == DispatchKey::kXla);
static_assert(backend_key(DeviceType::kMeta) == DispatchKey::kMeta);

}  // namespace tenon
