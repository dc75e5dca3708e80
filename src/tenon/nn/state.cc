#include "tenon/nn/state.h"

#include <fmt/format.h>

#include <algorithm>

#include "tenon/base/error.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/interop/safetensors.h"

namespace tenon::nn {
namespace {

constexpr const char* kUpdates = "optimiser.updates";

std::vector<NamedTensor> all_state(const Module& model, const Optimizer* optimizer) {
  std::vector<NamedTensor> all;
  for (const NamedTensor& part : model.named_state())
    all.push_back({"model." + part.name, part.tensor.detach()});
  if (optimizer == nullptr) return all;
  for (const NamedTensor& part : optimizer->named_state())
    all.push_back({"optimiser." + part.name, part.tensor});
  return all;
}

}  // namespace

void save_state(const std::string& path, const Module& model, const Optimizer* optimizer,
                const Metadata& metadata) {
  std::map<std::string, Tensor> tensors;
  for (const NamedTensor& part : all_state(model, optimizer)) tensors[part.name] = part.tensor;
  if (optimizer != nullptr) {
    const std::vector<std::uint64_t> updates = optimizer->updates();
    const std::vector<std::int64_t> numbers(updates.begin(), updates.end());
    tensors[kUpdates] = tensor<std::int64_t>(std::span<const std::int64_t>(numbers),
                                             {static_cast<std::int64_t>(numbers.size())});
  }
  save_safetensors(path, tensors, metadata);
}

Metadata load_metadata(const std::string& path) { return load_safetensors(path).metadata; }

std::uint64_t count_saved_parameters(const std::string& path) {
  std::uint64_t count = 0;
  for (const auto& [name, tensor] : load_safetensors(path).tensors)
    if (name.starts_with("model.")) count += static_cast<std::uint64_t>(tensor.numel());
  return count;
}

Metadata load_state(const std::string& path, const Module& model, Optimizer* optimizer) {
  SafeTensors file = load_safetensors(path);
  const auto fail = [&](const std::string& reason) { return ParseError(path, 0, 0, reason); };
  const auto find = [&](const std::string& name, IntList sizes, DType dtype) {
    const auto found = file.tensors.find(name);
    if (found == file.tensors.end())
      throw fail(fmt::format("tensor \"{}\" is missing: the file was written for another model or "
                             "optimiser",
                             name));
    if (!(found->second.sizes() == sizes) || found->second.dtype() != dtype)
      throw fail(fmt::format("tensor \"{}\" is {} {}, the model's is {} {}", name,
                             dtype_name(found->second.dtype()), to_string(found->second.sizes()),
                             dtype_name(dtype), to_string(sizes)));
    return found->second;
  };
  const std::vector<NamedTensor> parts = all_state(model, optimizer);
  std::vector<Tensor> found;
  for (const NamedTensor& part : parts)
    found.push_back(find(part.name, part.tensor.sizes(), part.tensor.dtype()));
  std::vector<std::uint64_t> updates;
  if (optimizer != nullptr) {
    const auto count = static_cast<std::int64_t>(optimizer->parameters().size());
    const Tensor numbers = find(kUpdates, {count}, DType::kI64);
    for (std::int64_t i = 0; i < count; ++i)
      updates.push_back(static_cast<std::uint64_t>(numbers.const_data_ptr<std::int64_t>()[i]));
  }
  for (const auto& [name, tensor] : file.tensors) {
    const bool of_model = name.starts_with("model.");
    const bool known = name == kUpdates || std::any_of(parts.begin(), parts.end(),
                                                       [&name = name](const auto& part) {
                                                         return part.name == name;
                                                       });
    if (!known && (of_model || optimizer != nullptr))
      throw fail(fmt::format("tensor \"{}\" is left over: the file was written for another model "
                             "or optimiser",
                             name));
  }
  for (std::size_t i = 0; i < parts.size(); ++i) copy_(parts[i].tensor, found[i]);
  if (optimizer != nullptr) optimizer->set_updates(updates);
  return file.metadata;
}

void StateHash::add_bytes(std::string_view bytes) {
  hash_.add(bytes.size());
  hash_.add_bytes(bytes);
}

void StateHash::add(const NamedTensor& part) {
  add_bytes(part.name);
  for (const std::int64_t size : part.tensor.sizes()) hash_.add(static_cast<std::uint64_t>(size));
  const Tensor dense = contiguous(to_host(part.tensor.detach()));
  add_bytes({static_cast<const char*>(dense.const_data_ptr()), dense.nbytes()});
}

std::uint64_t state_hash(std::span<const NamedTensor> state) {
  StateHash hash;
  for (const NamedTensor& part : state) hash.add(part);
  return hash.value();
}

}  // namespace tenon::nn
