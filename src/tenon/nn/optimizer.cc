#include "tenon/nn/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tenon/autograd/autograd.h"
#include "tenon/autograd/gradient_taker.h"
#include "tenon/base/error.h"
#include "tenon/base/parallel.h"
#include "tenon/memory/tag.h"
#include "tenon/nn/optimizer_blocks.h"
#include "tenon/ops/binary.h"
#include "tenon/ops/kernels/vulkan/device_kernels.h"
#include "tenon/ops/unary.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/fallback.h"
#include "tenon/tensor/host_access.h"
#include "tenon/tensor/kernels/vulkan/elements.h"

namespace tenon::nn {
namespace {

constexpr std::int64_t kGrain = 65536;  // elements that one thread updates at a time

void require(bool holds, const char* what, const std::string& wrong) {
  if (!holds) throw InvalidArgument(fmt::format("{}: {}", what, wrong));
}

// A rate, decay or the like.
void check_number(const char* what, const char* name, double number, double below) {
  require(number >= 0 && number < below, what,
          fmt::format("{} of {}; it may be 0 up to {}", name, number,
                      std::isinf(below) ? "infinity" : fmt::format("{}", below)));
}
constexpr double kAny = std::numeric_limits<double>::infinity();

// The same elements at `offset`; null stays null.
void* at(void* data, std::int64_t offset, std::int64_t item) {
  return data == nullptr ? nullptr : static_cast<char*>(data) + offset * item;
}
const void* at(const void* data, std::int64_t offset, std::int64_t item) {
  return data == nullptr ? nullptr : static_cast<const char*>(data) + offset * item;
}

}  // namespace

Optimizer::Optimizer(const char* name, std::vector<NamedTensor> parameters, double learning_rate)
    : name_(name), parameters_(std::move(parameters)), updates_(parameters_.size(), 0) {
  require(!parameters_.empty(), name_, "there are no parameters");
  for (const NamedTensor& p : parameters_) {
    const DType dtype = p.tensor.dtype();
    require(has_operators(p.tensor.device()) && p.tensor.is_contiguous() &&
                (dtype == DType::kF32 || dtype == DType::kF64),
            name_,
            fmt::format("parameter {} is {} on {}; it must be contiguous float32 or float64 on "
                        "the cpu or a Vulkan device",
                        p.name, dtype_name(dtype), to_string(p.tensor.device())));
  }
  state_.resize(parameters_.size());
  set_learning_rate(learning_rate);
}

void Optimizer::set_learning_rate(double rate) {
  check_number(name_, "a learning rate", rate, kAny);
  learning_rate_ = rate;
}

void Optimizer::add_slot(const std::string& slot) {
  const TagGuard tag({"optimiser", nullptr});
  slots_.push_back(slot);
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    state_[i].push_back(zeros(parameters_[i].tensor.sizes(), parameters_[i].tensor.dtype(),
                              parameters_[i].tensor.device()));
}

void Optimizer::step(double gradient_scale) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) step_parameter(i, gradient_scale);
}

void Optimizer::step(const Tensor& gradient_scale) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) step_parameter(i, 1, gradient_scale);
}

void Optimizer::step_parameter(std::size_t index, double gradient_scale,
                               const Tensor& device_scale) {
  const NamedTensor& parameter = parameters_.at(index);
  const TagGuard tag({"optimiser", nullptr});
  const Tensor& found = parameter.tensor.grad();
  if (!found.defined()) return;
  require(found.sizes() == parameter.tensor.sizes() && found.dtype() == parameter.tensor.dtype(),
          name_,
          fmt::format("parameter {} of shape {} has a gradient of {} {}", parameter.name,
                      to_string(parameter.tensor.sizes()), dtype_name(found.dtype()),
                      to_string(found.sizes())));
  const Tensor gradient = contiguous(found);
  ++updates_[index];
  const Update whole{gradient.dtype(),       gradient.numel(), nullptr, nullptr, {},
                     updates_[index], gradient_scale,   UpdatePart::kBoth};
  const auto next = [this, index, whole] {
    Update later = whole;
    later.number = ++updates_[index];
    return later;
  };
  if (!vulkan::holds(parameter.tensor) ||
      !update_on_device(whole, {parameter.tensor, gradient, state_[index], device_scale}, next)) {
    HostTurn host;
    if (vulkan::holds(parameter.tensor)) host.take(name_, parameter.tensor.device());
    const double scale = device_scale.defined() ? device_scale.item<double>() : 1;
    if (device_scale.defined() && !(scale > 0)) return;
    update_elements(index, 0, gradient.numel(), gradient.const_data_ptr(), UpdatePart::kBoth,
                    gradient_scale * scale);
  }
  parameter.tensor.impl()->bump_version();
}

void Optimizer::update_elements(std::size_t index, std::int64_t first, std::int64_t count,
                                const void* gradient, UpdatePart part, double scale) {
  const Tensor& parameter = parameters_[index].tensor;
  const auto item = static_cast<std::int64_t>(parameter.item_size());
  const auto place = [&](const Tensor& t) {
    return static_cast<char*>(t.impl()->mutable_data()) + first * item;
  };
  Update whole{
      parameter.dtype(), count, place(parameter), gradient, {}, updates_[index], scale, part};
  for (std::size_t slot = 0; slot < state_[index].size(); ++slot)
    whole.state[slot] = place(state_[index][slot]);
  parallel_for(0, count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    Update some = whole;
    some.count = end - begin;
    some.parameter = at(whole.parameter, begin, item);
    some.gradient = at(whole.gradient, begin, item);
    for (void*& state : some.state) state = at(state, begin, item);
    update(some);
  });
}

void Optimizer::zero_grad() const {
  for (const NamedTensor& parameter : parameters_)
    if (AutogradMetaInterface* meta = parameter.tensor.impl()->autograd_meta())
      meta->mutable_grad() = Tensor();
}

std::vector<NamedTensor> Optimizer::named_state() const {
  std::vector<NamedTensor> all;
  for (std::size_t slot = 0; slot < slots_.size(); ++slot)
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      all.push_back({slots_[slot] + "." + parameters_[i].name, state_[i][slot]});
  return all;
}

void Optimizer::set_updates(std::span<const std::uint64_t> updates) {
  require(updates.size() == updates_.size(), name_,
          fmt::format("{} numbers of updates for {} parameters", updates.size(), updates_.size()));
  std::copy(updates.begin(), updates.end(), updates_.begin());
}

// Updates one parameter while its gradient comes.
class PiecewiseUpdate final : public autograd::GradientTaker {
 public:
  PiecewiseUpdate(Optimizer& optimizer, std::size_t index)
      : optimizer_(optimizer), index_(index), parts_(optimizer.updates_in_parts()) {}

  bool keeps_leaf_until_finish() const override { return parts_; }
  void begin() override { ++optimizer_.updates_[index_]; }
  void take(std::int64_t first, std::int64_t count, const void* gradient) override {
    optimizer_.update_elements(index_, first, count, gradient,
                               parts_ ? UpdatePart::kState : UpdatePart::kBoth, 1);
  }
  void finish() override {
    const Tensor& parameter = optimizer_.parameters_[index_].tensor;
    if (parts_)
      optimizer_.update_elements(index_, 0, parameter.numel(), nullptr, UpdatePart::kParameter, 1);
    parameter.impl()->bump_version();
  }
  void take_whole(const Tensor& leaf) override {
    optimizer_.step_parameter(index_);
    autograd::clear_grad(leaf);
  }

 private:
  Optimizer& optimizer_;
  const std::size_t index_;
  const bool parts_;
};

UpdatesInBackward::UpdatesInBackward(Optimizer& optimizer) {
  const std::vector<NamedTensor>& parameters = optimizer.parameters();
  try {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const auto handle = std::make_shared<autograd::HookHandle>(autograd::set_gradient_taker(
          parameters[i].tensor, std::make_shared<PiecewiseUpdate>(optimizer, i)));
      removals_.push_back([handle] { handle->remove(); });
    }
  } catch (...) {
    remove();
    throw;
  }
}

UpdatesInBackward::~UpdatesInBackward() { remove(); }

void UpdatesInBackward::remove() {
  for (const auto& removal : removals_) removal();
}

// --- Stochastic gradient descent.

Sgd::Sgd(std::vector<NamedTensor> parameters, const SgdOptions& options)
    : Optimizer("Sgd", std::move(parameters), options.learning_rate), options_(options) {
  check_number("Sgd", "a momentum", options.momentum, kAny);
  check_number("Sgd", "a weight decay", options.weight_decay, kAny);
  require(!options.nesterov || (options.momentum > 0 && options.dampening == 0), "Sgd",
          "Nesterov's form needs momentum and no dampening");
  if (options.momentum != 0) add_slot("momentum");
}

void Sgd::update(const Update& u) const {
  const SgdNumbers numbers = {
      u.scale,         options_.weight_decay, options_.momentum, 1 - options_.dampening,
      learning_rate(), options_.nesterov,     u.number == 1};
  optimizer_blocks(u.dtype).sgd(u.parameter, u.gradient, u.state[0], u.count, numbers, u.part);
}

bool Sgd::update_on_device(const Update& u, const DeviceUpdate& t, const NextUpdate& next) const {
  using vulkan::UpdateKind;
  const auto numbers = [this](const Update& of) {
    const bool is_first = of.number == 1;
    return vulkan::UpdateNumbers{of.scale,
                                 options_.weight_decay,
                                 learning_rate(),
                                 is_first ? 0 : options_.momentum,
                                 is_first ? 1 : 1 - options_.dampening,
                                 options_.momentum};
  };
  return vulkan::update(t.state.empty()     ? UpdateKind::kSgd
                        : options_.nesterov ? UpdateKind::kNesterov
                                            : UpdateKind::kMomentum,
                        t.parameter, t.gradient, t.state.empty() ? Tensor() : t.state[0], {},
                        t.scale, numbers(u), [numbers, next] { return numbers(next()); });
}

// --- Adam.

Adam::Adam(std::vector<NamedTensor> parameters, const AdamOptions& options)
    : Optimizer("Adam", std::move(parameters), options.learning_rate), options_(options) {
  check_number("Adam", "beta1", options.beta1, 1);
  check_number("Adam", "beta2", options.beta2, 1);
  check_number("Adam", "eps", options.eps, kAny);
  check_number("Adam", "a weight decay", options.weight_decay, kAny);
  add_slot("mean");
  add_slot("square");
}

AdamNumbers Adam::numbers_of(const Update& u) const {
  const auto t = static_cast<double>(u.number);
  const double decay = options_.weight_decay;
  AdamNumbers numbers{};
  numbers.scale = u.scale;
  numbers.gradient_decay = options_.decoupled ? 0 : decay;
  numbers.parameter_factor = options_.decoupled ? 1 - learning_rate() * decay : 1;
  numbers.beta1 = options_.beta1;
  numbers.beta2 = options_.beta2;
  numbers.eps = options_.eps;
  numbers.step = learning_rate() / (1 - std::pow(options_.beta1, t));
  numbers.root_correction = std::sqrt(1 - std::pow(options_.beta2, t));
  return numbers;
}

void Adam::update(const Update& u) const {
  optimizer_blocks(u.dtype).adam(u.parameter, u.gradient, u.state[0], u.state[1], u.count,
                                 numbers_of(u), u.part);
}

bool Adam::update_on_device(const Update& u, const DeviceUpdate& t, const NextUpdate& next) const {
  const auto numbers = [this](const Update& of) {
    const AdamNumbers n = numbers_of(of);
    return vulkan::UpdateNumbers{n.scale,
                                 n.gradient_decay,
                                 n.parameter_factor,
                                 n.beta1,
                                 1 - n.beta1,
                                 n.beta2,
                                 1 - n.beta2,
                                 n.eps * n.root_correction,
                                 n.step * n.root_correction};
  };
  return vulkan::update(vulkan::UpdateKind::kAdam, t.parameter, t.gradient, t.state[0], t.state[1],
                        t.scale, numbers(u), [numbers, next] { return numbers(next()); });
}

// --- Clipping.

namespace {

// Of the gradients on Vulkan devices; undefined: there are none.
Tensor device_squares(std::span<const NamedTensor> parameters) {
  Tensor there;
  for (const NamedTensor& parameter : parameters) {
    if (!parameter.tensor.grad().defined() || !vulkan::holds(parameter.tensor.grad())) continue;
    const Tensor gradient = contiguous(parameter.tensor.grad().detach());
    const std::uint64_t all = ops::detail::reduced_dims("gradient_norm", gradient, {});
    const Tensor sum =
        ops::detail::gather(ops::Gather::kSumOfSquares, gradient, all, {}).reshape({});
    there = there.defined() ? ops::add(there, sum) : sum;
  }
  return there;
}

}  // namespace

double gradient_norm(std::span<const NamedTensor> parameters) {
  double total = 0;
  for (const NamedTensor& parameter : parameters) {
    if (!parameter.tensor.grad().defined() || vulkan::holds(parameter.tensor.grad())) continue;
    const Tensor gradient = contiguous(parameter.tensor.grad().detach());
    const auto squares = optimizer_blocks(gradient.dtype()).sum_of_squares;
    const auto item = static_cast<std::int64_t>(gradient.item_size());
    const void* const data = gradient.const_data_ptr();
    // By grains of fixed length, added in order.
    std::vector<double> sums(static_cast<std::size_t>((gradient.numel() + kGrain - 1) / kGrain));
    parallel_for(0, gradient.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; i += kGrain)
        sums[static_cast<std::size_t>(i / kGrain)] =
            squares(at(data, i, item), std::min(kGrain, end - i));
    });
    for (const double sum : sums) total += sum;
  }
  const Tensor there = device_squares(parameters);
  return std::sqrt(there.defined() ? total + there.item<double>() : total);
}

double clip_factor(double norm, double limit) {
  if (std::isnan(norm)) return norm;
  return norm > limit ? limit / norm : 1;
}

Tensor device_gradient_norm(std::span<const NamedTensor> parameters) {
  const Tensor squares = device_squares(parameters);
  require(squares.defined(), "device_gradient_norm",
          "no parameter has a gradient on a Vulkan device; take gradient_norm");
  return ops::sqrt(squares);
}

Tensor device_clip_factor(const Tensor& norm, double limit) {
  return to(ops::minimum(ops::mul(ops::reciprocal(norm), limit), 1), DType::kF32);
}

}  // namespace tenon::nn
