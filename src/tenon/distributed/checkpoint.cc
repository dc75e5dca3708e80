#include "tenon/distributed/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tenon/base/error.h"
#include "tenon/base/file_writer.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/interop/safetensors.h"

namespace tenon::distributed {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kUpdates = "optimiser_updates";
constexpr const char* kSuffix = ".safetensors";

std::string index_path(const std::string& folder) {
  return (fs::path(folder) / kIndexName).string();
}

std::string file_name(const char* what, const std::string& label, std::size_t number,
                      std::size_t count) {
  return fmt::format("{}-{}-{:05}-of-{:05}{}", what, label, number + 1, count, kSuffix);
}

// The optimiser's state for part i: its flat tensors, and their slots' names.
struct PartState {
  std::vector<std::string> slots;
  std::vector<Tensor> flats;
};
PartState state_of_part(const nn::Optimizer& optimizer, std::size_t part) {
  const std::vector<nn::NamedTensor> all = optimizer.named_state();
  PartState state;
  for (std::size_t i = part; i < all.size(); i += optimizer.parameters().size()) {
    state.slots.push_back(all[i].name.substr(0, all[i].name.find('.')));
    state.flats.push_back(all[i].tensor);
  }
  return state;
}

// "optimiser.<slot>.<parameter>" in the order of Whole::others.
std::vector<std::string> state_names(const std::vector<std::string>& slots,
                                     const std::vector<std::string>& parameters) {
  std::vector<std::string> names;
  for (const std::string& slot : slots)
    for (const std::string& parameter : parameters)
      names.push_back(fmt::format("optimiser.{}.{}", slot, parameter));
  return names;
}

using NamedTensors = std::map<std::string, Tensor>;

NamedTensors named(const std::vector<std::string>& names, const std::vector<Tensor>& tensors) {
  NamedTensors result;
  for (std::size_t i = 0; i < names.size(); ++i)
    result[names[i]] = to(tensors[i].detach(), Device());
  return result;
}

Json read_index(const std::string& folder) {
  const std::string path = index_path(folder);
  std::ifstream file(path);
  if (!file) throw ParseError(path, 0, 0, "there is no such file, or it cannot be read");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const Json index = Json::parse(text, nullptr, false);
  const auto is_map = [&](const char* key) {
    if (!index.contains(key) || !index[key].is_object()) return false;
    return std::all_of(index[key].begin(), index[key].end(), [](const Json& value) {
      return value.is_string() || value.is_number_unsigned();
    });
  };
  if (!index.is_object() || !is_map("metadata") || !is_map("weight_map") ||
      !is_map("optimiser_map"))
    throw ParseError(path, 0, 0, "it is not an index that tenon train has written");
  return index;
}

// Removes files of earlier checkpoints.
void remove_others(const std::string& folder, const std::set<std::string>& named_files) {
  std::error_code failed;  // files that cannot be removed stay
  for (const auto& entry : fs::directory_iterator(folder, failed)) {
    const std::string name = entry.path().filename().string();
    const bool ours = (name.starts_with("model-") || name.starts_with("optimiser-")) &&
                      name.ends_with(kSuffix);
    if (ours && !named_files.contains(name)) fs::remove(entry.path(), failed);
  }
}

// Reads tensors of a checkpoint. Keeps the last file, so that each file is read once for a unit.
class Files {
 public:
  explicit Files(const std::string& folder) : folder_(folder), index_(read_index(folder)) {}

  // Copies the tensor `name` of the map's file into `target`.
  void read(const char* map, const std::string& name, const Tensor& target) {
    if (!index_[map].contains(name) || !index_[map][name].is_string())
      throw ParseError(index_path(folder_), 0, 0,
                       fmt::format("it does not name \"{}\": it is of another model", name));
    const auto file = index_[map][name].get<std::string>();
    if (file.find('/') != std::string::npos)
      throw ParseError(index_path(folder_), 0, 0,
                       fmt::format("the file of \"{}\" is not in the folder", name));
    const std::string path = (fs::path(folder_) / file).string();
    if (path != path_) {
      tensors_ = load_safetensors(path).tensors;
      path_ = path;
    }
    const auto found = tensors_.find(name);
    if (found == tensors_.end())
      throw ParseError(path_, 0, 0, fmt::format("tensor \"{}\" is missing", name));
    const Tensor& tensor = found->second;
    if (!(tensor.sizes() == target.sizes()) || tensor.dtype() != target.dtype())
      throw ParseError(path_, 0, 0,
                       fmt::format("tensor \"{}\" is {} {}, the model's is {} {}", name,
                                   dtype_name(tensor.dtype()), to_string(tensor.sizes()),
                                   dtype_name(target.dtype()), to_string(target.sizes())));
    copy_(target, to(tensor, target.device()));
  }

  std::uint64_t updates() const {
    const Json& metadata = index_["metadata"];
    return metadata.contains(kUpdates) && metadata[kUpdates].is_number_unsigned()
               ? metadata[kUpdates].get<std::uint64_t>()
               : 0;
  }

 private:
  const std::string folder_;
  const Json index_;
  std::string path_;
  NamedTensors tensors_;
};

}  // namespace

void check_checkpoint(const std::string& folder) {
  fs::create_directories(folder);
  FileWriter::check(index_path(folder));
}

bool is_checkpoint(const std::string& path) { return fs::exists(index_path(path)); }

void save_checkpoint(const std::string& folder, const std::string& label, ShardedModel& model,
                     nn::Optimizer& optimizer, ProcessGroup& group, const nn::Metadata& metadata) {
  fs::create_directories(folder);
  const std::size_t count = model.parts().size();
  Json index = {{"metadata", Json::object()}, {"weight_map", Json::object()},
                {"optimiser_map", Json::object()}};
  std::set<std::string> files;
  std::uint64_t total_bytes = 0;
  model.for_each_unit(
      [&](std::size_t i) { return state_of_part(optimizer, i).flats; },
      [&](std::size_t i, const ShardedModel::Whole& whole) {
        const std::vector<std::string> others =
            state_names(state_of_part(optimizer, i).slots, whole.names);
        const auto save = [&](const char* what, const char* map,
                              const std::vector<std::string>& names,
                              const std::vector<Tensor>& tensors) {
          const std::string file = file_name(what, label, i, count);
          for (const std::string& name : names) index[map][name] = file;
          files.insert(file);
          if (i % static_cast<std::size_t>(group.size()) == static_cast<std::size_t>(group.rank()))
            save_safetensors((fs::path(folder) / file).string(), named(names, tensors),
                             {{"format", "pt"}});
        };
        save("model", "weight_map", whole.names, whole.tensors);
        if (!others.empty()) save("optimiser", "optimiser_map", others, whole.others);
        for (const Tensor& tensor : whole.tensors) total_bytes += tensor.nbytes();
      });
  group.barrier();  // all files are written
  if (group.rank() == 0) {
    for (const auto& [key, value] : metadata) index["metadata"][key] = value;
    index["metadata"]["total_size"] = total_bytes;
    index["metadata"][kUpdates] = optimizer.updates().front();
    FileWriter writer(index_path(folder));
    writer.write(index.dump(2) + "\n");
    writer.commit();
    remove_others(folder, files);
  }
  group.barrier();
}

nn::Metadata load_checkpoint_metadata(const std::string& folder) {
  const Json index = read_index(folder);
  nn::Metadata metadata;
  for (const auto& [key, value] : index["metadata"].items())
    metadata[key] = value.is_string() ? value.get<std::string>() : value.dump();
  return metadata;
}

void load_checkpoint(const std::string& folder, ShardedModel& model, nn::Optimizer& optimizer) {
  Files weights(folder), states(folder);
  model.for_each_unit(
      [&](std::size_t i) { return state_of_part(optimizer, i).flats; },
      [&](std::size_t i, const ShardedModel::Whole& whole) {
        for (std::size_t k = 0; k < whole.names.size(); ++k)
          weights.read("weight_map", whole.names[k], whole.tensors[k]);
        const std::vector<std::string> others =
            state_names(state_of_part(optimizer, i).slots, whole.names);
        for (std::size_t k = 0; k < others.size(); ++k)
          states.read("optimiser_map", others[k], whole.others[k]);
      },
      true);
  const std::vector<std::uint64_t> updates(optimizer.parameters().size(), weights.updates());
  optimizer.set_updates(updates);
}

}  // namespace tenon::distributed
