#include "tenon/distributed/sharded_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <exception>
#include <utility>

#include "tenon/base/check.h"
#include "tenon/base/error.h"
#include "tenon/distributed/exact_sum.h"
#include "tenon/memory/tag.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"

namespace tenon::distributed {
namespace {

// The name up to its first part that is a number: a module of a Sequential.
std::string unit_of(const std::string& parameter) {
  std::size_t begin = 0;
  for (std::size_t end; (end = parameter.find('.', begin)) != std::string::npos; begin = end + 1)
    if (std::all_of(parameter.begin() + static_cast<std::ptrdiff_t>(begin),
                    parameter.begin() + static_cast<std::ptrdiff_t>(end),
                    [](unsigned char c) { return std::isdigit(c) != 0; }))
      return parameter.substr(0, end);
  return "";
}

std::int64_t round_up(std::int64_t number, std::int64_t to) { return (number + to - 1) / to * to; }

Tensor tagged_empty(const char* phase, std::int64_t elements, DType dtype, Device device) {
  const TagGuard tag({phase, nullptr});
  return empty({elements}, dtype, device);
}
Tensor tagged_empty(const char* phase, std::int64_t elements, const Tensor& like) {
  return tagged_empty(phase, elements, like.dtype(), like.device());
}

bool is_16_bit(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }

}  // namespace

struct ShardedModel::Unit {
  std::size_t index = 0;  // in units_
  std::string name;
  std::vector<nn::NamedTensor> parameters;
  std::vector<std::int64_t> offsets;  // in elements of `flat`
  Tensor flat;           // the parameters' storage; 0 bytes while it is not gathered
  Tensor part;           // what the rank updates; in mixed precision wider than `flat`
  bool gathered = true;
  Work gathering;  // of `flat`; with kNothing, of `gradient`
  std::size_t missing = 0;  // gradients that backward has not computed yet
  Tensor gradient;          // all of it, while it is needed; with kGradients never
  Tensor piece;             // the rank's piece of the gradient
  Work reducing;
  TreeSum sum;  // over slices

  std::int64_t elements() const { return flat.numel(); }
  bool has_bytes() const { return flat.storage().nbytes() > 0; }
};

// Watches the calls of a unit's module, or of the model for the first unit.
class ShardedModel::Watcher final : public nn::CallWatcher {
 public:
  Watcher(ShardedModel& model, std::size_t index) : model_(model), index_(index) {}
  void before_call() override { model_.before_forward(index_); }
  void after_call(const Tensor& output) override { model_.after_forward(index_, output); }

 private:
  ShardedModel& model_;
  const std::size_t index_;
};

ShardedModel::ShardedModel(std::shared_ptr<ProcessGroup> group, Shard shard, std::uint64_t slices,
                           bool prefetch, std::optional<DType> compute,
                           std::optional<Device> device)
    : group_(std::move(group)),
      shard_(shard),
      slices_(slices),
      prefetch_(prefetch),
      compute_(compute),
      device_(device),
      exceptions_(std::uncaught_exceptions()) {
  if (compute && !is_16_bit(*compute))
    throw InvalidArgument(fmt::format("mixed precision computes in float16 or bfloat16, not in {}",
                                      dtype_name(*compute)));
}

ShardedModel::ShardedModel(std::shared_ptr<nn::Module> model, std::shared_ptr<ProcessGroup> group,
                           Shard shard, std::uint64_t slices, bool prefetch,
                           std::optional<DType> compute)
    : ShardedModel(std::move(group), shard, slices, prefetch, compute, std::nullopt) {
  model_ = std::move(model);
  divide(nn::DeferredFills());
}

ShardedModel::ShardedModel(const Builder& build, std::shared_ptr<ProcessGroup> group, Shard shard,
                           std::uint64_t slices, bool prefetch, std::optional<DType> compute,
                           Device device)
    : ShardedModel(std::move(group), shard, slices, prefetch, compute, device) {
  const nn::DeferredFills fills;
  model_ = build();
  divide(fills);
}

void ShardedModel::divide(const nn::DeferredFills& fills) {
  const NoGradGuard no_grad;
  // The first unit: it stays gathered while the others are gathered and freed.
  std::vector<std::pair<std::string, std::vector<nn::NamedTensor>>> found = {{"", {}}};
  for (const nn::NamedTensor& parameter : model_->named_parameters()) {
    const std::string name = unit_of(parameter.name);
    auto unit = std::find_if(found.begin(), found.end(), [&](auto& u) { return u.first == name; });
    if (unit == found.end()) unit = found.insert(found.end(), {name, {}});
    unit->second.push_back(parameter);
  }
  for (auto& [name, parameters] : found) add_unit(name, std::move(parameters), fills);
}

ShardedModel::~ShardedModel() {
  if (std::uncaught_exceptions() == exceptions_) wait_for_gathers();
  for (autograd::HookHandle& hook : hooks_) hook.remove();
  for (const auto& unit : units_)
    if (nn::Module* module = model_->find(unit->name)) module->set_call_watcher(nullptr);
}

// MPI writes into the units until then. Where a rank fails, the processes end.
void ShardedModel::wait_for_gathers() noexcept {
  try {
    for (const auto& unit : units_) unit->gathering.wait();
  } catch (const DeviceError&) {
  }
}

void ShardedModel::add_unit(const std::string& name, std::vector<nn::NamedTensor> parameters,
                            const nn::DeferredFills& fills) {
  constexpr std::int64_t kAlignmentBytes = 64;
  auto unit = std::make_unique<Unit>();
  unit->name = name;
  std::int64_t elements = 0;
  for (const nn::NamedTensor& parameter : parameters) {
    const DType dtype = parameters.front().tensor.dtype();
    if (parameter.tensor.dtype() != dtype || (dtype != DType::kF32 && dtype != DType::kF64))
      throw InvalidArgument(fmt::format("parameter {} is {}; those of a layer must all be {}",
                                        parameter.name, dtype_name(parameter.tensor.dtype()),
                                        dtype == DType::kF64 ? "float64" : "float32"));
    unit->offsets.push_back(elements);
    const auto item = static_cast<std::int64_t>(item_size(compute_.value_or(dtype)));
    elements += round_up(parameter.tensor.numel(), kAlignmentBytes / item);
  }
  unit->parameters = std::move(parameters);
  unit->index = units_.size();
  watch(*unit);
  if (elements > 0) {
    make_flats(*unit, round_up(elements, group_->size()), fills);
    unit->part.set_requires_grad(true);
    parts_.push_back({name.empty() ? "outside" : name, unit->part});
  }
  units_.push_back(std::move(unit));
}

// The unit's `flat` and `part`, with the values of its parameters, which get places in `flat`.
void ShardedModel::make_flats(Unit& unit, std::int64_t elements, const nn::DeferredFills& fills) {
  const Tensor& first = unit.parameters.front().tensor;
  const Device source = first.is_meta() ? Device{} : first.device();
  const Device device = device_.value_or(source);
  if (compute_) unit.flat = tagged_empty("parameters", elements, *compute_, device);
  if (compute_) release(unit);
  Tensor full = tagged_empty("parameters", elements, first.dtype(), source);
  zero_(full);
  const std::vector<Tensor> from = cut(unit, full);
  for (std::size_t i = 0; i < from.size(); ++i) {
    const Tensor& parameter = unit.parameters[i].tensor;
    if (!fills.fill(parameter, from[i])) copy_(from[i], parameter.detach());
  }
  if (device != source) {
    const TagGuard tag({"parameters", nullptr});
    full = to(full, device);
  }
  if (!compute_) unit.flat = full;
  const std::vector<Tensor> places = cut(unit, unit.flat);
  for (std::size_t i = 0; i < places.size(); ++i) unit.parameters[i].tensor.set_data(places[i]);
  const Tensor mine = own_piece(full);
  unit.part = mine.detach();
  if (shards(Shard::kParameters) || (compute_ && shards(Shard::kOptimiser))) {
    unit.part = tagged_empty("parameters", mine.numel(), full);
    copy_(unit.part, mine);
  }
  if (shards(Shard::kParameters))
    release(unit);
  else if (compute_)
    copy_(unit.flat, full);
}

// What this rank updates of a unit; with kNothing all of it.
Tensor ShardedModel::own_piece(const Tensor& flat) const {
  if (!shards(Shard::kOptimiser)) return flat;
  const std::int64_t piece = flat.numel() / group_->size();
  return flat.narrow(0, piece * group_->rank(), piece);
}

void ShardedModel::watch(Unit& unit) {
  for (const nn::NamedTensor& parameter : unit.parameters)
    hooks_.push_back(autograd::register_post_accumulate_hook(
        parameter.tensor, [this, &unit](const Tensor&) { gradient_came(unit); }));
  nn::Module* const module = model_->find(unit.name);
  TENON_CHECK(module != nullptr, "no module is called {}", unit.name);
  if (shards(Shard::kOptimiser))
    module->set_call_watcher(std::make_shared<Watcher>(*this, unit.index));
}

std::vector<Tensor> ShardedModel::cut(const Unit& unit, const Tensor& flat) const {
  std::vector<Tensor> pieces;
  for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
    const Tensor& parameter = unit.parameters[i].tensor;
    pieces.push_back(flat.narrow(0, unit.offsets[i], parameter.numel()).view(parameter.sizes()));
  }
  return pieces;
}

std::uint64_t ShardedModel::slice_number(std::uint64_t index) const {
  const auto rank = static_cast<std::uint64_t>(group_->rank());
  return shards(Shard::kGradients) ? index * static_cast<std::uint64_t>(group_->size()) + rank
                                   : rank * slices_ + index;
}

// --- Gathering and freeing parameters.

void ShardedModel::start_gather(Unit& unit) {
  if (unit.gathered || unit.gathering.is_pending()) return;
  const TagGuard tag({"parameters", nullptr});
  unit.flat.storage().resize_(unit.flat.nbytes());
  const Tensor mine = compute_ ? own_piece(unit.flat) : unit.part.detach();
  if (compute_) copy_(mine, unit.part.detach());
  unit.gathering = group_->start_all_gather(unit.flat, mine);
}

void ShardedModel::gather(Unit& unit) {
  start_gather(unit);
  unit.gathering.wait();
  unit.gathered = true;
}

void ShardedModel::release(Unit& unit) {
  if (!shards(Shard::kParameters) || unit.parameters.empty()) return;
  unit.gathering.wait();
  if (unit.has_bytes()) unit.flat.storage().resize_(0);
  unit.gathered = false;
}

// The unit that is used `ahead` units after this one. Backward runs from the last to the first.
void ShardedModel::prefetch(const Unit& unit, std::size_t ahead) {
  if (!prefetch_ || unit.index == 0) return;
  if (in_backward_ && unit.index <= ahead) return;
  const std::size_t next = in_backward_ ? unit.index - ahead : unit.index + ahead;
  if (next >= units_.size()) return;
  const bool is_used = !in_backward_ || units_[next]->missing > 0;
  if (is_used) start_gather(*units_[next]);
}

void ShardedModel::before_forward(std::size_t index) {
  gather(*units_[index]);
  prefetch(*units_[index], 1);
  if (!shards(Shard::kParameters)) prefetch(*units_[index], 2);
}

void ShardedModel::after_forward(std::size_t index, const Tensor& output) {
  if (!shards(Shard::kParameters)) return;
  const autograd::NodePtr node = output.requires_grad() ? autograd::grad_fn(output) : nullptr;
  if (node != nullptr)
    autograd::register_pre_hook(node, [this, index](std::span<Tensor>) { before_backward(index); });
  // Backward begins with the last unit.
  const bool stays =
      in_backward_ || (grad_enabled() && (index == 0 || index + 1 == units_.size()));
  if (stays) return;
  release(*units_[index]);
  prefetch(*units_[index], 2);
}

void ShardedModel::before_backward(std::size_t index) {
  in_backward_ = true;
  before_forward(index);
}

// --- Gradients.

void ShardedModel::begin_slice(std::uint64_t index) {
  last_slice_ = index + 1 == slices_;
  for (const auto& unit : units_) unit->missing = unit->parameters.size();
}

void ShardedModel::gradient_came(Unit& unit) {
  in_backward_ = true;
  if (unit.missing > 0 && --unit.missing == 0) reduce(unit);
}

// The unit's gradient of this slice is complete.
void ShardedModel::reduce(Unit& unit) {
  const NoGradGuard no_grad;
  release(unit);
  const bool adds_here = !shards(Shard::kGradients) && slices_ > 1;
  Tensor whole = tagged_empty("gradients", unit.elements(), adds_here ? unit.part : unit.flat);
  zero_(whole);
  const std::vector<Tensor> places = cut(unit, whole);
  for (std::size_t i = 0; i < places.size(); ++i) {
    const Tensor& parameter = unit.parameters[i].tensor;
    if (parameter.grad().defined()) copy_(places[i], parameter.grad().detach());
    autograd::clear_grad(parameter);
  }
  if (!shards(Shard::kGradients)) {
    unit.sum.add(std::move(whole));
    if (!last_slice_) return;
    whole = unit.sum.take();
  }
  settle();
  const std::int64_t piece = unit.elements() / group_->size();
  const bool is_wide = whole.dtype() == unit.part.dtype();
  if (shards(Shard::kGradients) || (shards(Shard::kOptimiser) && !is_wide)) {
    unit.piece = tagged_empty("gradients", piece, unit.part);
  } else {
    unit.gradient = is_wide ? whole : tagged_empty("gradients", unit.elements(), unit.part);
    unit.piece = unit.gradient.narrow(0, piece * group_->rank(), piece);
  }
  unit.reducing = group_->start_reduce_scatter(unit.piece, whole);
  reducing_ = &unit;
  prefetch(unit, 2);
}

// At most one unit's gradient is being reduced, so the memory in use does not depend on the speed
// of the transfer.
void ShardedModel::settle() {
  if (reducing_ == nullptr) return;
  Unit& unit = *std::exchange(reducing_, nullptr);
  unit.reducing.wait();
  if (!shards(Shard::kOptimiser))
    unit.gathering = group_->start_all_gather(unit.gradient, unit.piece);
  if (shards(Shard::kGradients)) unit.sum.add(std::exchange(unit.piece, Tensor()));
}

void ShardedModel::end_slice() {
  // Units with parameters that have no gradient.
  for (const auto& unit : units_)
    if (std::exchange(unit->missing, 0) > 0) reduce(*unit);
  in_backward_ = false;
  for (const auto& unit : units_) release(*unit);
}

void ShardedModel::finish_gradients() {
  settle();
  for (const auto& unit : units_) {
    if (unit->parameters.empty()) continue;
    if (shards(Shard::kGradients)) unit->piece = unit->sum.take();
    unit->gathering.wait();
    autograd::set_grad(unit->part, shards(Shard::kOptimiser) ? unit->piece : unit->gradient);
  }
}

double ShardedModel::gradient_norm() {
  SquareSum sum;
  for (const nn::NamedTensor& part : parts_) sum.add(contiguous(part.tensor.grad().detach()));
  if (shards(Shard::kOptimiser)) sum.reduce(*group_);
  return std::sqrt(sum.value());
}

void ShardedModel::after_update() {
  for (const auto& unit : units_) {
    unit->gradient = unit->piece = Tensor();
    if (unit->part.defined()) autograd::clear_grad(unit->part);
  }
  share_parts();
}

void ShardedModel::share_parts() {
  const NoGradGuard no_grad;
  if (shards(Shard::kParameters)) return;
  for (const auto& unit : units_) {
    if (!unit->part.defined()) continue;
    unit->gathered = !shards(Shard::kOptimiser);
    if (compute_ && unit->gathered) copy_(unit->flat, unit->part.detach());
  }
  for (std::size_t i = 0; prefetch_ && i < std::min<std::size_t>(units_.size(), 3); ++i)
    start_gather(*units_[i]);
}

std::uint64_t ShardedModel::bytes_to_share() const {
  std::uint64_t bytes = 0;
  for (const auto& unit : units_)
    if (!shards(Shard::kParameters) && !unit->gathered && !unit->gathering.is_pending())
      bytes += unit->flat.nbytes();
  const auto ranks = static_cast<std::uint64_t>(group_->size());
  return bytes / ranks * (ranks - 1);
}

std::uint64_t ShardedModel::part_bytes() const {
  std::uint64_t bytes = 0;
  for (const nn::NamedTensor& part : parts_) bytes += part.tensor.nbytes();
  return bytes;
}

// --- Gathered values, for files and hashes.

// All of a unit's parameters in the dtype of its part: `flat`, or a tensor of their own.
Tensor ShardedModel::gather_full(Unit& unit) {
  if (!compute_) {
    gather(unit);
    return unit.flat;
  }
  if (!shards(Shard::kOptimiser)) return unit.part.detach();
  const Tensor full = tagged_empty("communication", unit.elements(), unit.part);
  group_->all_gather(full, unit.part.detach());
  return full;
}

void ShardedModel::for_each_unit(const std::function<std::vector<Tensor>(std::size_t)>& more,
                                 const std::function<void(std::size_t, const Whole&)>& use,
                                 bool writes) {
  const NoGradGuard no_grad;
  std::size_t number = 0;
  for (const auto& unit : units_) {
    if (unit->parameters.empty()) continue;
    const Tensor full = gather_full(*unit);
    Whole whole{unit->name, {}, cut(*unit, full), {}};
    for (const nn::NamedTensor& parameter : unit->parameters) whole.names.push_back(parameter.name);
    const std::vector<Tensor> parts = more(number);
    std::vector<Tensor> flats = parts;
    for (Tensor& flat : flats) {
      if (shards(Shard::kOptimiser)) {
        const Tensor part = flat;
        flat = tagged_empty("communication", unit->elements(), full);
        group_->all_gather(flat, part);
      }
      for (Tensor& tensor : cut(*unit, flat)) whole.others.push_back(std::move(tensor));
    }
    use(number++, whole);
    if (writes) {
      if (compute_ || shards(Shard::kParameters)) copy_(unit->part.detach(), own_piece(full));
      if (compute_ && !shards(Shard::kParameters)) {
        gather(*unit);
        copy_(unit->flat, full);
      }
      for (std::size_t i = 0; shards(Shard::kOptimiser) && i < parts.size(); ++i)
        copy_(parts[i], own_piece(flats[i]));
    }
    release(*unit);
  }
}

void ShardedModel::with_parameter(const nn::NamedTensor& part,
                                  const std::function<void(const Tensor&)>& use) {
  for (const auto& unit : units_) {
    const auto& all = unit->parameters;
    const auto found =
        std::find_if(all.begin(), all.end(), [&](auto& p) { return p.name == part.name; });
    if (found == all.end()) continue;
    const std::vector<Tensor> full = cut(*unit, gather_full(*unit));
    use(full[static_cast<std::size_t>(found - all.begin())]);
    return release(*unit);
  }
  use(part.tensor);  // a buffer: each rank has it
}

}  // namespace tenon::distributed
