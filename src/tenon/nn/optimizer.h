// Optimisers, and what they have in common. Parameters have any shape; their dtype is f32 or f64,
// and a gradient has its parameter's shape and dtype. Throws InvalidArgument for others. A step is
// O(elements of the parameters).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tenon/nn/module.h"
#include "tenon/nn/optimizer_blocks.h"

namespace tenon::nn {

// Changes parameters along their gradients. Each parameter is updated in one pass over its memory:
// gradient, state and parameter are read, state and parameter written, nothing is allocated.
// State is made at construction, zeroed, from the current allocator; memory events have the phase
// "optimiser".
//
// Parameters are contiguous, float32 or float64, on the host or a Vulkan device (there by one
// kernel each). Others throw InvalidArgument, as do numbers out of range. Results are the same on
// any number of threads. Not thread-safe.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Updates every parameter that has a gradient, which is multiplied by `gradient_scale` first
  // (clipping, without a pass of its own). Throws InvalidArgument for a gradient of another shape
  // or dtype.
  void step(double gradient_scale = 1);
  // The same with a number on the parameters' device, f32, which the host does not wait for (from
  // device_clip_factor). Where it is not above 0, or NaN, the update counts and changes nothing.
  void step(const Tensor& gradient_scale);
  // The same for one parameter: for programs that update while backward still runs.
  void step_parameter(std::size_t index, double gradient_scale = 1,
                      const Tensor& device_scale = {});
  // Lets every gradient go.
  void zero_grad() const;

  // Takes effect at the next step. Throws InvalidArgument for a negative or infinite rate.
  double learning_rate() const { return learning_rate_; }
  void set_learning_rate(double rate);
  // As given at construction.
  const std::vector<NamedTensor>& parameters() const { return parameters_; }

  // The state by name, "momentum.0.weight", and how often each parameter was updated. To resume:
  // load what a file kept into an optimiser made alike.
  std::vector<NamedTensor> named_state() const;
  std::vector<std::uint64_t> updates() const { return updates_; }
  // Throws InvalidArgument for another number of parameters.
  void set_updates(std::span<const std::uint64_t> updates);

 protected:
  // Throws InvalidArgument for parameters as said above, and where there is none.
  Optimizer(const char* name, std::vector<NamedTensor> parameters, double learning_rate);

  // A tensor of zeros for each parameter, "slot.<parameter's name>".
  void add_slot(const std::string& slot);
  // Of some elements of a parameter: dense arrays of the dtype.
  struct Update {
    DType dtype;
    std::int64_t count;
    void* parameter;
    const void* gradient;  // null where `part` is kParameter
    void* state[2];        // by slot
    std::uint64_t number;  // of this update, from 1
    double scale;          // of the gradient
    UpdatePart part;
  };
  // The formula. Called on several threads, for elements that no other call has.
  virtual void update(const Update& update) const = 0;
  // The updates of later runs of a captured step, one a call.
  using NextUpdate = std::function<Update()>;
  // What a kernel works on, in place of the addresses in an Update.
  struct DeviceUpdate {
    const Tensor& parameter;
    const Tensor& gradient;
    std::span<const Tensor> state;
    const Tensor& scale;  // of the gradient, beside the update's; or undefined
  };
  // The same as update() for a whole parameter by a kernel of its device; false where there is
  // none. `next`: where the step is captured.
  virtual bool update_on_device(const Update& update, const DeviceUpdate& tensors,
                                const NextUpdate& next) const = 0;
  // Whether kState and then kParameter do the same, to the bit, as kBoth.
  virtual bool updates_in_parts() const { return false; }

 private:
  friend class PiecewiseUpdate;

  void update_elements(std::size_t index, std::int64_t first, std::int64_t count,
                       const void* gradient, UpdatePart part, double scale);

  const char* const name_;
  const std::vector<NamedTensor> parameters_;
  double learning_rate_;
  std::vector<std::string> slots_;
  std::vector<std::vector<Tensor>> state_;  // by parameter, then slot
  std::vector<std::uint64_t> updates_;
};

// While it lives, each backward updates every parameter as soon as its gradient is complete and
// frees the gradient. At most one gradient exists at a time. For a matrix that one linear() uses,
// the full gradient is never stored. It is computed in pieces of rows, and each is used while it is
// in the caches. If the state alone determines the update (Adam, SGD with momentum without
// Nesterov), that happens before the gradient of the input is computed, so the input is freed
// before. The weights are the same, to the bit, as with step() after backward.
//
// Not for what needs all gradients at once or several backwards to a step: clipping by the norm of
// all, accumulation. With retain_graph, a second backward refuses a parameter that has changed;
// with retain_graph, create_graph, anomaly mode or hooks on a parameter, its gradient comes whole.
// The optimiser must outlive it. Throws InvalidArgument where the gradients are taken already.
class UpdatesInBackward {
 public:
  explicit UpdatesInBackward(Optimizer& optimizer);
  ~UpdatesInBackward();
  UpdatesInBackward(const UpdatesInBackward&) = delete;
  UpdatesInBackward& operator=(const UpdatesInBackward&) = delete;

 private:
  void remove();
  std::vector<std::function<void()>> removals_;
};

// Rates and decays are 0 or more.
struct SgdOptions {
  double learning_rate = 1e-2;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;  // added to the gradient
  bool nesterov = false;    // needs momentum, and no dampening
};

// Stochastic gradient descent: v <- momentum v + (1 - dampening) g, the first time v <- g;
// p <- p - rate v, or with Nesterov p - rate (g + momentum v), as PyTorch has it. g is the gradient
// (scaled) + weight_decay p. Throws InvalidArgument for options out of range.
class Sgd final : public Optimizer {
 public:
  Sgd(std::vector<NamedTensor> parameters, const SgdOptions& options);

 private:
  void update(const Update& update) const override;
  bool update_on_device(const Update& update, const DeviceUpdate& tensors,
                        const NextUpdate& next) const override;
  bool updates_in_parts() const override { return options_.momentum != 0 && !options_.nesterov; }
  const SgdOptions options_;
};

// Betas are in [0, 1), the rest is 0 or more.
struct AdamOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled = false;  // decays the parameter instead of the gradient: AdamW
};

// m <- beta1 m + (1 - beta1) g, v <- beta2 v + (1 - beta2) g^2, and with t counting from 1
//
//     p <- p - rate / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
//
// g is the gradient (scaled) + weight_decay p; decoupled, p <- (1 - rate weight_decay) p comes
// first instead. Kingma and Ba 2015. Throws InvalidArgument for options out of range.
class Adam : public Optimizer {
 public:
  Adam(std::vector<NamedTensor> parameters, const AdamOptions& options);

 private:
  void update(const Update& update) const override;
  bool update_on_device(const Update& update, const DeviceUpdate& tensors,
                        const NextUpdate& next) const override;
  AdamNumbers numbers_of(const Update& update) const;
  bool updates_in_parts() const override { return true; }
  const AdamOptions options_;
};

// Adam with decoupled decay: Loshchilov and Hutter 2019. Throws as Adam.
class AdamW final : public Adam {
 public:
  AdamW(std::vector<NamedTensor> parameters, AdamOptions options)
      : Adam(std::move(parameters), [&] {
          options.decoupled = true;
          return options;
        }()) {}
};

// sqrt(sum of g^2) over all elements of all gradients, gathered in f64. It is the same on any
// number of threads. Parameters without a gradient count 0. Throws OutOfMemory. O(elements).
double gradient_norm(std::span<const NamedTensor> parameters);

// min(1, limit / norm): what gradients must be multiplied with so that their norm is at most
// `limit`, which is step's argument. NaN for a norm that is no number. O(1), and nothing throws.
// Requires: limit >= 0.
double clip_factor(double norm, double limit);

// sqrt(sum of g^2) as gradient_norm, as a number on the gradients' Vulkan device, for steps that a
// Capture records: in f64, or in f32 where the device has no f64. Throws InvalidArgument where no
// parameter has a gradient on such a device. O(elements).
Tensor device_gradient_norm(std::span<const NamedTensor> parameters);

// min(1, limit / norm) there, in f32, for step(Tensor). It is 0 or NaN for a norm that is no finite
// number, so that step() changes nothing then. O(1). Requires: limit > 0.
Tensor device_clip_factor(const Tensor& norm, double limit);

}  // namespace tenon::nn
