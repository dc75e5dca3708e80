// What one thread of the stress test asks for: the same steps for the same seed.
#pragma once

#include <array>
#include <cstdint>

#include "tenon/base/random.h"

namespace tenon {

struct ProgramStep {
  enum class Kind : std::uint8_t { kAllocate, kFree, kGive, kShare, kEmptyCache };
  Kind kind = Kind::kAllocate;
  std::uint32_t slot = 0;
  std::uint64_t size_bytes = 0;  // of kAllocate
};

// Slots are filled and emptied at random; a block may also be given to another thread, or shared
// with another stream before it is freed. Steps do not depend on what became of earlier ones: a
// slot whose request failed is found empty. Sizes are spread evenly over the octaves from 8 bytes
// to a bound that is drawn with the program; most bounds are small.
class Program {
 public:
  static constexpr std::uint32_t kSlots = 512;

  explicit Program(std::uint64_t seed) : random_(seed) {
    // 512 blocks of up to 4 KiB, 64 KiB, 512 KiB or, in fewer slots, 8 MiB.
    const std::uint64_t dice = random_.below(16);
    octaves_ = dice < 7 ? 9 : dice < 11 ? 13 : dice < 14 ? 16 : 20;
    slots_ = octaves_ == 20 ? kSlots / 4 : kSlots;
  }

  ProgramStep next() {
    const std::uint64_t dice = random_.next();
    ProgramStep step;
    step.slot = static_cast<std::uint32_t>(dice % slots_);
    const std::uint64_t rest = dice >> 32;
    if (rest % 4096 == 0) {
      step.kind = ProgramStep::Kind::kEmptyCache;
    } else if (!filled_[step.slot]) {
      filled_[step.slot] = true;
      const std::uint64_t top = std::uint64_t{8} << (rest % (octaves_ + 1));
      const std::uint64_t low = top == 8 ? 0 : top / 2;
      step.size_bytes = low + (rest * 0x9e3779b97f4a7c15ULL >> 20) % (top - low) + 1;
    } else {
      filled_[step.slot] = false;
      const std::uint64_t how = rest % 256;
      step.kind = how < 24   ? ProgramStep::Kind::kGive
                  : how < 26 ? ProgramStep::Kind::kShare
                             : ProgramStep::Kind::kFree;
    }
    return step;
  }

 private:
  Random random_;
  std::uint64_t octaves_ = 0;
  std::uint32_t slots_ = kSlots;
  std::array<bool, kSlots> filled_ = {};
};

}  // namespace tenon
