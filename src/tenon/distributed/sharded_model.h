// A model whose training is divided among ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tenon/autograd/autograd.h"
#include "tenon/distributed/process_group.h"
#include "tenon/distributed/tree_sum.h"
#include "tenon/nn/init.h"
#include "tenon/nn/module.h"

namespace tenon::distributed {

// What is divided among the ranks (Rajbhandari et al. 2020, "ZeRO", stages 1 to 3).
enum class Shard : std::uint8_t {
  kNothing,     // data parallel: each rank has everything
  kOptimiser,   // the optimiser's state
  kGradients,   // and gradients
  kParameters,  // and parameters
};

// Divides parameters in units. A unit has the parameters of one module of a Sequential (a layer, a
// block of a transformer); the parameters outside of these are the first unit. A unit is one
// buffer. Each parameter begins at a multiple of 64 bytes, and the buffer is padded so that each
// rank has an equal part.
//
//     unit "blocks.0":  | norm.weight | norm.bias | attention.weight ...          | padding |
//     ranks:            |        0         |        1         |        2         |    3     |
//
// A step is: for each of the rank's slices begin_slice(), forward, backward, end_slice(); then
// finish_gradients(), an optimiser's step over parts(), after_update(). Backward starts to reduce a
// unit's gradient as soon as it is complete, one unit at a time, and continues meanwhile.
//
// With kOptimiser and kGradients, after_update() starts to gather the updated parameters, and the
// next forward pass waits for a unit before its module is called. With `prefetch` two more units
// are gathered meanwhile.
//
// With kParameters, a unit is gathered before its module is called, and again before its backward.
// It is freed after the call, and when its gradient is complete. With `prefetch`, the next unit is
// gathered meanwhile, so two units are in memory at a time; without, one. Where the next one has
// not arrived when a unit is freed, the one after it is gathered at the same time, so a slow link
// is not idle. Parameters outside of modules of a Sequential stay from the call of the model until
// their gradients are complete.
//
// With kNothing and kOptimiser a rank adds the gradients of its slices before the ranks exchange
// them, so its slices are consecutive. Else the ranks exchange the gradients of each slice, so
// slice i belongs to rank i mod n. In both cases one tree adds all slices (Note [Fixed tree]):
// where their number is a power of two and each rank has equally many, the weights do not depend on
// the number of ranks.
//
// All parameters of a unit have the same dtype, f32 or f64; else InvalidArgument.
//
// Note [Mixed precision]. With `compute` (f16, bf16; else InvalidArgument) the model's parameters,
// and so activations and gradients of a slice, have that dtype. parts() have the dtype that the
// parameters were made with: the optimiser updates these, and after_update() rounds them for the
// model. Units are gathered in 16 bit. Gradients of one slice are sent in 16 bit and added in the
// dtype of parts(), which rounds nothing. Sums over a rank's slices (kNothing, kOptimiser) are sent
// in that dtype. So here, too, the weights do not depend on the number of ranks.
//
// Memory events have the phases "parameters", "gradients" and "communication". Not thread-safe. The
// model's parameters are in this object's buffers, so it must live as long as the model and the
// optimiser over parts(). A failure during a step leaves it unusable.
class ShardedModel {
 public:
  // All ranks give a model with the same values. `slices`: of this rank, for each step.
  ShardedModel(std::shared_ptr<nn::Module> model, std::shared_ptr<ProcessGroup> group, Shard shard,
               std::uint64_t slices, bool prefetch = true,
               std::optional<DType> compute = {});
  // The model that `build` makes on the host, with the same values, its parameters on `device`. Its
  // layers are filled one after another, and with kParameters each is freed before the next, so at
  // most the parts and one unit are in memory (Note [Deferred fills] in nn/init.h). A unit for
  // another device is filled on the host first.
  using Builder = std::function<std::shared_ptr<nn::Module>()>;
  ShardedModel(const Builder& build, std::shared_ptr<ProcessGroup> group, Shard shard,
               std::uint64_t slices, bool prefetch = true, std::optional<DType> compute = {},
               Device device = {});
  // Waits for what after_update() has started, except while an exception propagates.
  ~ShardedModel();
  ShardedModel(const ShardedModel&) = delete;
  ShardedModel& operator=(const ShardedModel&) = delete;

  // The number, among the slices of all ranks, of this rank's slice `index`.
  std::uint64_t slice_number(std::uint64_t index) const;

  const std::shared_ptr<nn::Module>& model() const { return model_; }

  // What the rank updates: a flat tensor for each unit, the whole unit with kNothing, else its
  // part.
  const std::vector<nn::NamedTensor>& parts() const { return parts_; }

  // Around forward and backward of one slice.
  void begin_slice(std::uint64_t index);
  void end_slice();
  // After the last slice: the gradients of parts() are the sums over all slices.
  void finish_gradients();
  // Their norm over all ranks. It does not depend on the number of ranks: the squares are summed
  // exactly.
  double gradient_norm();
  // The modules compute with the updated values of all ranks when they are called; gradients are
  // freed.
  void after_update();
  // Bytes that this rank will send for the last after_update(), as modules are called.
  std::uint64_t bytes_to_share() const;

  // Bytes of this rank's parts, without what is gathered.
  std::uint64_t part_bytes() const;
  std::size_t units() const { return units_.size(); }

  // One gathered unit.
  struct Whole {
    std::string unit;
    std::vector<std::string> names;   // of its parameters
    std::vector<Tensor> tensors;      // the parameters, detached, in the dtype of parts()
    std::vector<Tensor> others;       // views of `more`, by tensor, then parameter
  };
  // Gathers each of parts() to its unit and calls `use` with it. `more(i)` gives further flat
  // tensors like part i, which are gathered and cut in the same way. With `writes`, what `use`
  // writes is kept; it must write the same values on all ranks. All ranks call it.
  void for_each_unit(const std::function<std::vector<Tensor>(std::size_t)>& more,
                     const std::function<void(std::size_t, const Whole&)>& use,
                     bool writes = false);
  // Calls `use` with this parameter, gathered, in the dtype of parts(), or with this buffer. All
  // ranks call it, with the same names.
  void with_parameter(const nn::NamedTensor& part, const std::function<void(const Tensor&)>& use);

 private:
  struct Unit;
  class Watcher;

  ShardedModel(std::shared_ptr<ProcessGroup> group, Shard shard, std::uint64_t slices,
               bool prefetch, std::optional<DType> compute, std::optional<Device> device);
  void divide(const nn::DeferredFills& fills);
  void wait_for_gathers() noexcept;
  void add_unit(const std::string& name, std::vector<nn::NamedTensor> parameters,
                const nn::DeferredFills& fills);
  void watch(Unit& unit);
  void make_flats(Unit& unit, std::int64_t elements, const nn::DeferredFills& fills);
  bool shards(Shard least) const { return shard_ >= least; }
  Tensor own_piece(const Tensor& flat) const;
  Tensor gather_full(Unit& unit);
  void start_gather(Unit& unit);
  void gather(Unit& unit);
  void release(Unit& unit);
  void prefetch(const Unit& unit, std::size_t ahead);
  void share_parts();
  void before_forward(std::size_t index);
  void after_forward(std::size_t index, const Tensor& output);
  void before_backward(std::size_t index);
  void gradient_came(Unit& unit);
  void reduce(Unit& unit);
  void settle();
  std::vector<Tensor> cut(const Unit& unit, const Tensor& flat) const;

  std::shared_ptr<nn::Module> model_;
  const std::shared_ptr<ProcessGroup> group_;
  const Shard shard_;
  const std::uint64_t slices_;
  const bool prefetch_;
  const std::optional<DType> compute_;
  const std::optional<Device> device_;  // null: each parameter's own
  const int exceptions_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::vector<nn::NamedTensor> parts_;
  std::vector<autograd::HookHandle> hooks_;
  Unit* reducing_ = nullptr;  // its gradient is being reduced
  bool in_backward_ = false;
  bool last_slice_ = false;
};

}  // namespace tenon::distributed
