#include "tenon/nn/module.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "tenon/base/error.h"
#include "tenon/memory/tag.h"
#include "tenon/tensor/copy.h"

namespace tenon::nn {
namespace {

const char* interned(const std::string& text) {
  static std::mutex mutex;
  static auto& known = *new std::set<std::string>;
  const std::lock_guard lock(mutex);
  return known.insert(text).first->c_str();
}

}  // namespace

Tensor Module::operator()(const Tensor& input) {
  const TagGuard tag({nullptr, path_});
  if (watcher_ == nullptr) return forward(input);
  watcher_->before_call();
  Tensor output = forward(input);
  watcher_->after_call(output);
  return output;
}

Module* Module::find(std::string_view path) {
  if (path.empty()) return this;
  const std::string_view first = path.substr(0, path.find('.'));
  const std::string_view rest = path.substr(std::min(first.size() + 1, path.size()));
  for (const auto& [name, module] : modules_)
    if (name == first) return module->find(rest);
  return nullptr;
}

template <typename Own>
void Module::collect(const std::string& prefix, Own&& own, std::vector<NamedTensor>& out) const {
  for (const NamedTensor& mine : own(*this)) out.push_back({prefix + mine.name, mine.tensor});
  for (const auto& [name, module] : modules_) module->collect(prefix + name + ".", own, out);
}

std::vector<NamedTensor> Module::named_parameters() const {
  std::vector<NamedTensor> all;
  collect("", [](const Module& m) -> const auto& { return m.parameters_; }, all);
  return all;
}

std::vector<NamedTensor> Module::named_buffers() const {
  std::vector<NamedTensor> all;
  collect("", [](const Module& m) -> const auto& { return m.buffers_; }, all);
  return all;
}

std::vector<NamedTensor> Module::named_state() const {
  std::vector<NamedTensor> all = named_parameters();
  for (NamedTensor& buffer : named_buffers()) all.push_back(std::move(buffer));
  return all;
}

std::vector<Tensor> Module::parameters() const {
  std::vector<Tensor> all;
  for (NamedTensor& parameter : named_parameters()) all.push_back(std::move(parameter.tensor));
  return all;
}

std::int64_t Module::parameter_count() const {
  std::int64_t count = 0;
  for (const NamedTensor& parameter : named_parameters()) count += parameter.tensor.numel();
  return count;
}

void Module::train(bool training) {
  training_ = training;
  for (const auto& [name, module] : modules_) module->train(training);
}

void Module::set_path(const std::string& path) {
  path_ = interned(path);
  for (const auto& [name, module] : modules_) module->set_path(path + "." + name);
}

void Module::to(Device device) const {
  for (const NamedTensor& entry : named_state()) {
    if (entry.tensor.device() == device) continue;
    entry.tensor.set_data(tenon::to(entry.tensor.detach(), device));
    AutogradMetaInterface* meta = entry.tensor.impl()->autograd_meta();
    if (meta != nullptr && meta->grad().defined())
      meta->mutable_grad() = tenon::to(meta->grad().detach(), device);
  }
}

void Module::zero_grad() const {
  for (const NamedTensor& parameter : named_parameters())
    if (AutogradMetaInterface* meta = parameter.tensor.impl()->autograd_meta())
      meta->mutable_grad() = Tensor();
}

void Module::check_name(const std::string& name) const {
  const auto same = [&](const auto& entry) {
    if constexpr (requires { entry.name; })
      return entry.name == name;
    else
      return entry.first == name;
  };
  bool taken = false;
  for (const NamedTensor& entry : parameters_) taken = taken || same(entry);
  for (const NamedTensor& entry : buffers_) taken = taken || same(entry);
  for (const auto& entry : modules_) taken = taken || same(entry);
  if (taken || name.empty() || name.find('.') != std::string::npos)
    throw InvalidArgument(fmt::format(
        "a module's part may not be called \"{}\": {}", name,
        taken ? "the name is taken" : "names are not empty and have no dots"));
}

Tensor Module::register_parameter(std::string name, Tensor parameter) {
  check_name(name);
  parameter.set_requires_grad(true);
  parameters_.push_back({std::move(name), parameter});
  return parameter;
}

Tensor Module::register_buffer(std::string name, Tensor buffer) {
  check_name(name);
  buffers_.push_back({std::move(name), buffer});
  return buffer;
}

void Module::add_module(std::string name, std::shared_ptr<Module> module) {
  check_name(name);
  if (module == nullptr) throw InvalidArgument(fmt::format("module \"{}\" is null", name));
  modules_.emplace_back(std::move(name), std::move(module));
}

}  // namespace tenon::nn
