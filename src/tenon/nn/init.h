// How parameters begin, of any floating-point dtype. Throws InvalidArgument for a weight of another
// dtype or of fewer than two dimensions, and OutOfMemory. Thread-safe while no other thread uses
// the weight or the generator. O(elements).
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "tenon/tensor/random.h"

namespace tenon::nn {

// How many inputs one output element has: the product of all sizes of a weight except the first,
// which must not be 0.
std::int64_t fan_in(const Tensor& weight);

// Fills a weight [out, in, ...] uniformly within +-bound, where bound = gain * sqrt(3 / fan_in):
// the variance of what passes is kept (He et al. 2015, "Delving deep into rectifiers"). A gain of
// sqrt(1 / 3) is what PyTorch's Linear and Conv begin with: bound = 1 / sqrt(fan_in).
const Tensor& kaiming_uniform_(const Tensor& weight, double gain,
                               Generator& generator = default_generator());

// Fills a weight [out, in, ...] uniformly within +-gain * sqrt(6 / (fan_in + fan_out)), where
// fan_out is fan_in of the weight with its first two dimensions swapped (Glorot and Bengio 2010).
const Tensor& xavier_uniform_(const Tensor& weight, double gain = 1,
                              Generator& generator = default_generator());

// Writes the first elements of a parameter, with numbers from the generator. It may run after the
// layer's constructor has ended.
using Fill = std::function<void(const Tensor& target, Generator& generator)>;

// A parameter of f32 and these sizes that `fill` has filled. Its layer registers it.
Tensor make_parameter(IntList sizes, Fill fill, Generator& generator = default_generator());
// Fills it once more. Its shape stays.
void refill_parameter(const Tensor& parameter, Fill fill,
                      Generator& generator = default_generator());

// Note [Deferred fills]: while one lives, make_parameter() makes tensors of the meta device on this
// thread. The generator's counters advance as if they had been filled. fill() writes their elements
// later, bit for bit those that they would have had. So a model's layers can be filled one at a
// time. Several nest. Not thread-safe.
class DeferredFills {
 public:
  DeferredFills();
  ~DeferredFills();
  DeferredFills(const DeferredFills&) = delete;
  DeferredFills& operator=(const DeferredFills&) = delete;

  // Fills `place`, of the parameter's shape and dtype. False for a parameter that was not made
  // here: it has its elements. O(log of the number of parameters) and what the fill takes.
  bool fill(const Tensor& parameter, const Tensor& place) const;

 private:
  friend Tensor make_parameter(IntList sizes, Fill fill, Generator& generator);
  friend void refill_parameter(const Tensor& parameter, Fill fill, Generator& generator);

  struct Deferred {
    Tensor parameter;  // kept, so that no other tensor gets its address
    Fill fill;
    std::uint64_t seed, offset;  // of the generator
  };

  std::map<const TensorImpl*, std::vector<Deferred>> fills_;
  DeferredFills* const outer_;
};

}  // namespace tenon::nn
