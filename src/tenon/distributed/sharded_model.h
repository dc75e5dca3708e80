// A model whose training is divided among ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tenon/autograd/autograd.h"
#include "tenon/distributed/process_group.h"
#include "tenon/distributed/tree_sum.h"
#include "tenon/nn/module.h"

namespace tenon::distributed {

// What each rank has a part of only (Rajbhandari et al. 2020, "ZeRO", stages 1 to 3).
enum class Shard : std::uint8_t {
  kNothing,     // data parallel: every rank has all
  kOptimiser,   // the optimiser's state
  kGradients,   // and gradients
  kParameters,  // and parameters
};

// Parameters in units: a unit is what one module of a Sequential holds (a layer, a transformer's
// block); what is outside of them is one unit, too. A unit's parameters lie in one buffer, each at
// a multiple of 64 bytes, which is padded so that it can be cut into equal parts, one for each
// rank.
//
//     unit "blocks.0":  | norm.weight | norm.bias | attention.weight ...          | padding |
//     ranks:            |        0         |        1         |        2         |    3     |
//
// A step is: for each of the rank's slices begin_slice(), forward, backward, end_slice(); then
// finish_gradients(), an optimiser's step over parts(), after_update(). Backward hands each unit's
// gradient to the group as soon as it is whole, one unit at a time, while backward goes on.
//
// With kParameters, a unit is gathered before its module is called, and again before its backward.
// It is freed after the call, and when its gradient is complete. With `prefetch`, the next unit is
// gathered meanwhile, so two units are complete at a time; without, one. Parameters outside of
// modules of a Sequential stay from the call of the model until their gradients are complete.
//
// With kNothing and kOptimiser a rank adds up its slices before ranks exchange anything, so it has
// neighbouring slices; else ranks exchange every slice's gradients, so ranks take slices in turn.
// Either way all slices are added by one tree (Note [Fixed tree]): where the number of slices is a
// power of two and each rank has as many, the weights do not depend on the number of ranks.
//
// All parameters of a unit have one floating-point dtype; else InvalidArgument. Memory events have
// the phases "parameters", "gradients" and "communication". Not thread-safe. The model, the group
// and the optimiser over parts() must not outlive what they were made with: the model's parameters
// live in this object's buffers. A failure in the middle of a step leaves it unusable.
class ShardedModel {
 public:
  // Every rank gives a model of the same values. `slices`: of this rank, for each step.
  ShardedModel(std::shared_ptr<nn::Module> model, std::shared_ptr<ProcessGroup> group, Shard shard,
               std::uint64_t slices, bool prefetch = true);
  ~ShardedModel();
  ShardedModel(const ShardedModel&) = delete;
  ShardedModel& operator=(const ShardedModel&) = delete;

  // Which of all slices the rank's slice `index` is.
  std::uint64_t slice_number(std::uint64_t index) const;

  // What the rank updates, a flat tensor for each unit: all of it with kNothing, else its part.
  const std::vector<nn::NamedTensor>& parts() const { return parts_; }

  // Around forward and backward of one slice.
  void begin_slice(std::uint64_t index);
  void end_slice();
  // After the last slice: the gradients of parts() are the sums over all slices.
  void finish_gradients();
  // Their norm over all ranks. The same on any number of ranks: the squares are added exactly.
  double gradient_norm();
  // The values of all parameters are those that the ranks have made; gradients go.
  void after_update();

  // Bytes of a rank's parts, what is gathered aside.
  std::uint64_t part_bytes() const;
  std::size_t units() const { return units_.size(); }

  // One unit with the values of all ranks.
  struct Whole {
    std::string unit;
    std::vector<std::string> names;   // of its parameters
    std::vector<Tensor> tensors;      // the parameters, detached
    std::vector<Tensor> others;       // views of `more`, by tensor, then parameter
  };
  // Calls `use` with each of parts(), gathered to its unit, and with what `more(i)` gives for part
  // i: flat tensors like it, which are gathered and cut like it. What `use` writes, the same values
  // at every rank, stays where `writes` says so. Every rank calls it.
  void for_each_unit(const std::function<std::vector<Tensor>(std::size_t)>& more,
                     const std::function<void(std::size_t, const Whole&)>& use,
                     bool writes = false);
  // Calls `use` while the parameter of the name is whole. Every rank calls it, with the same names.
  void with_parameter(const std::string& name, const std::function<void()>& use);

 private:
  struct Unit;
  class Watcher;

  void add_unit(const std::string& name, std::vector<nn::NamedTensor> parameters);
  void watch(Unit& unit, std::size_t index);
  bool shards(Shard least) const { return shard_ >= least; }
  void start_gather(Unit& unit);
  void gather(Unit& unit);
  void release(Unit& unit);
  void share_parts();
  void before_forward(std::size_t index);
  void after_forward(std::size_t index, const Tensor& output);
  void before_backward(std::size_t index);
  void gradient_came(Unit& unit);
  void reduce(Unit& unit);
  void settle();
  std::vector<Tensor> cut(const Unit& unit, const Tensor& flat) const;

  const std::shared_ptr<nn::Module> model_;
  const std::shared_ptr<ProcessGroup> group_;
  const Shard shard_;
  const std::uint64_t slices_;
  const bool prefetch_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::vector<nn::NamedTensor> parts_;
  std::vector<autograd::HookHandle> hooks_;
  Unit* reducing_ = nullptr;  // whose gradient is on its way
  bool in_backward_ = false;
  bool last_slice_ = false;
};

}  // namespace tenon::distributed
