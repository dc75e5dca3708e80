// Random tensors: the same numbers in every run and on any number of threads. O(elements).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "tenon/tensor/factories.h"

namespace tenon {

// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3. SC 2011):
// four 32-bit numbers as a function of a counter and a key. Any number can be had without those
// before it, so threads share a stream without sharing state.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key);

// A stream of random numbers: a seed and how far it was used. Each tensor takes a range of counters
// of its own, so its values depend only on the seed and on the earlier requests. Thread-safe; with
// several threads, who comes first gets the earlier range.
class Generator {
 public:
  explicit Generator(std::uint64_t seed = 0x74656e6f6eULL) : seed_(seed) {}

  // The seed that the numbers follow from.
  std::uint64_t seed() const { return seed_; }
  // Begins again, from this seed. Requires: no other thread draws.
  void manual_seed(std::uint64_t seed) {
    seed_ = seed;
    used_.store(0);
  }
  // Counters used so far: set it back to draw the same numbers again (checkpointing).
  std::uint64_t offset() const { return used_.load(); }
  void set_offset(std::uint64_t offset) { used_.store(offset); }
  // Takes `count` counters, each good for four numbers. Returns the first.
  std::uint64_t take(std::uint64_t count) { return used_.fetch_add(count); }

 private:
  std::uint64_t seed_;
  std::atomic<std::uint64_t> used_{0};
};

// The program's, used where none is given.
Generator& default_generator();
inline void manual_seed(std::uint64_t seed) { default_generator().manual_seed(seed); }

// Uniform in [0, 1).
Tensor rand(IntList sizes, DType dtype = DType::kF32, Generator& generator = default_generator());
// Normal with mean 0 and variance 1 (Box and Muller 1958).
Tensor randn(IntList sizes, DType dtype = DType::kF32, Generator& generator = default_generator());
// Uniform integers in [low, high). Throws InvalidArgument for an empty range.
Tensor randint(std::int64_t low, std::int64_t high, IntList sizes, DType dtype = DType::kI64,
               Generator& generator = default_generator());
// A permutation of 0 .. n - 1.
Tensor randperm(std::int64_t n, Generator& generator = default_generator());

// In place. On the meta device the generator's counters are taken, and nothing is written. Throws
// InvalidArgument unless real floating point.
const Tensor& uniform_(const Tensor& target, double low = 0, double high = 1,
                       Generator& generator = default_generator());
const Tensor& normal_(const Tensor& target, double mean = 0, double deviation = 1,
                      Generator& generator = default_generator());
// 1 with the given probability, else 0, in any dtype. Throws InvalidArgument for one beyond [0, 1].
const Tensor& bernoulli_(const Tensor& target, double probability,
                         Generator& generator = default_generator());

}  // namespace tenon
