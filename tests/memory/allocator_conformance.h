// What every allocator over a backend must do: one suite for all of them. A policy is enrolled by
// its line in policies.cc; an adaptor by its line in adaptor_cases().
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "tenon/base/error.h"
#include "tenon/base/hash.h"
#include "tenon/base/random.h"
#include "tenon/device/sim/sim_backend.h"
#include "tenon/memory/device_allocator.h"

namespace tenon {

class Plan;

// One allocator to be tested: its name, and how it is made over a simulated device.
struct ConformanceCase {
  std::string name;
  std::function<std::unique_ptr<DeviceAllocator>(Backend&)> make;
  std::uint64_t alignment = 256;  // of every block
  // Counts each request once, as it was asked for. Not so for adaptors that pad, or ask twice.
  bool exact = true;
  bool writes_memory = false;  // so it cannot work on fake addresses

  friend void PrintTo(const ConformanceCase& c, std::ostream* out) { *out << c.name; }
};

// A plan for policies that need one.
const Plan& a_plan();

// All policies (but those excluded by name, with the reason) and all adaptors.
std::vector<ConformanceCase> conformance_cases();
std::vector<ConformanceCase> adaptor_cases();

inline std::string conformance_case_name(const ::testing::TestParamInfo<ConformanceCase>& which) {
  return which.param.name;
}

// --- Fill patterns: a block's bytes depend on its number. Large blocks are marked here and there,
// or the tests would spend their time in page faults.

inline constexpr std::size_t kSolidBytes = 4096;       // at both ends every byte is set
inline constexpr std::size_t kMarkSpacing = 48 * 1024;  // between them, a mark every so often

template <typename Visit>  // visit(offset, length) for every filled piece
void for_each_filled_piece(std::size_t size_bytes, Visit&& visit) {
  if (size_bytes <= 2 * kSolidBytes) return visit(std::size_t{0}, size_bytes);
  visit(std::size_t{0}, kSolidBytes);
  for (std::size_t at = kMarkSpacing; at + 16 < size_bytes - kSolidBytes; at += kMarkSpacing)
    visit(at, std::size_t{16});
  visit(size_bytes - kSolidBytes, kSolidBytes);
}

inline void fill_block(void* data, std::size_t size_bytes, std::uint64_t number) {
  for_each_filled_piece(size_bytes, [&](std::size_t offset, std::size_t length) {
    std::memset(static_cast<char*>(data) + offset, static_cast<int>(number % 251), length);
    if (length >= 8) std::memcpy(static_cast<char*>(data) + offset, &number, 8);
  });
}

inline bool block_is_intact(const void* data, std::size_t size_bytes, std::uint64_t number) {
  bool intact = true;
  for_each_filled_piece(size_bytes, [&](std::size_t offset, std::size_t length) {
    const auto* bytes = static_cast<const unsigned char*>(data) + offset;
    std::size_t i = 0;
    if (length >= 8) {
      intact = intact && std::memcmp(bytes, &number, 8) == 0;
      i = 8;
    }
    for (; i < length; ++i) intact = intact && bytes[i] == number % 251;
  });
  return intact;
}

// --- Random use of an allocator, the same for the same seed.

struct ChurnOptions {
  std::uint64_t seed = 1;
  int steps = 1000;
  std::size_t max_bytes = 4 << 20;  // sizes spread evenly over the octaves up to it
  std::size_t max_live = 200;
  std::vector<Stream> streams = {};  // empty: the default stream
  double empty_cache_chance = 0;
  double lend_chance = 0;  // that a block was used on another stream too, where that is known
  bool touch = true;                // fill blocks and check them
};

class Churn {
 public:
  Churn(DeviceAllocator& allocator, ChurnOptions options)
      : allocator_(allocator), options_(std::move(options)), random_(options_.seed) {
    if (options_.streams.empty()) options_.streams = {Stream{allocator.device(), 0}};
  }
  ~Churn() { free_all(); }

  // A failure of the device or the lack of memory is counted, and life goes on.
  void run() {
    for (int i = 0; i < options_.steps; ++i) step();
  }

  void step() {
    try {
      if (random_.chance(options_.empty_cache_chance)) {
        allocator_.empty_cache();
      } else if (blocks_.size() < options_.max_live && random_.chance(0.55)) {
        allocate(random_size());
      } else if (!blocks_.empty()) {
        free_one(random_.below(blocks_.size()));
      }
    } catch (const OutOfMemory&) {
      ++out_of_memory_;
    } catch (const DeviceError&) {
      ++device_errors_;
    }
  }

  void allocate(std::size_t size_bytes) {
    const Stream stream = options_.streams[random_.below(options_.streams.size())];
    const std::uint64_t number = next_number_++;
    DataPtr data = allocator_.allocate_on(size_bytes, stream);
    ASSERT_EQ(data == nullptr, size_bytes == 0);
    if (options_.touch) fill_block(data.get(), size_bytes, number);
    layout_.add(number);
    layout_.add(allocator_.layout_offset(data));
    blocks_.push_back({std::move(data), size_bytes, number});
  }

  void free_one(std::size_t index) {
    std::swap(blocks_[index], blocks_.back());
    Block block = std::move(blocks_.back());
    blocks_.pop_back();
    if (options_.touch) {
      EXPECT_TRUE(block_is_intact(block.data.get(), block.size_bytes, block.number))
          << "block " << block.number << " of " << block.size_bytes << " bytes, seed "
          << options_.seed;
    }
    if (options_.lend_chance > 0 && random_.chance(options_.lend_chance)) lend(block.data);
    block.data.clear();
  }

  void free_all() {
    while (!blocks_.empty()) {
      try {
        free_one(blocks_.size() - 1);
      } catch (const DeviceError&) {
        ++device_errors_;
      }
    }
  }

  std::uint64_t requested_bytes() const {
    std::uint64_t sum = 0;
    for (const Block& block : blocks_) sum += block.size_bytes;
    return sum;
  }
  std::size_t live() const { return blocks_.size(); }
  std::uint64_t layout_hash() const { return layout_.value(); }
  int out_of_memory() const { return out_of_memory_; }
  int device_errors() const { return device_errors_; }

 private:
  struct Block {
    DataPtr data;
    std::size_t size_bytes = 0;
    std::uint64_t number = 0;
  };

  void lend(const DataPtr& data) {
    try {
      allocator_.record_stream(data, options_.streams[random_.below(options_.streams.size())]);
    } catch (const InvalidArgument&) {  // it does not: every block is its own stream's
    }
  }

  std::size_t random_size() {
    std::uint64_t octave_top = options_.max_bytes;
    for (std::uint64_t halvings = random_.below(14); halvings > 0 && octave_top > 2; --halvings)
      octave_top /= 2;
    return random_.between(octave_top / 2, octave_top);
  }

  DeviceAllocator& allocator_;
  ChurnOptions options_;
  Random random_;
  std::vector<Block> blocks_;
  std::uint64_t next_number_ = 1;
  RunningHash layout_;
  int out_of_memory_ = 0;
  int device_errors_ = 0;
};

// --- The fixture: a fresh simulated device with real memory, and the allocator over it.

class AllocatorConformance : public ::testing::TestWithParam<ConformanceCase> {
 protected:
  static SimOptions device(std::uint64_t capacity_bytes = std::uint64_t{8} << 30) {
    SimOptions options;
    options.capacity_bytes = capacity_bytes;
    options.real_memory = true;
    options.unified = true;
    return options;
  }

  AllocatorConformance() { start(device()); }

  void start(const SimOptions& options) {
    allocator_.reset();
    backend_ = std::make_unique<SimBackend>(options);
    allocator_ = GetParam().make(*backend_);
  }

  // After the allocator's end the device has everything back.
  void TearDown() override {
    if (allocator_ != nullptr) allocator_->check_invariants();
    allocator_.reset();
    EXPECT_EQ(backend_->used_bytes(), 0u) << "driver memory leaked";
  }

  std::unique_ptr<SimBackend> backend_;
  std::unique_ptr<DeviceAllocator> allocator_;
};

}  // namespace tenon
