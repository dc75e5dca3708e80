#include "tenon/distributed/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "tenon/base/error.h"
#include "tenon/base/file_writer.h"
#include "tenon/base/hash.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/interop/safetensors.h"

namespace tenon::distributed {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kUpdates = "optimiser_updates";
constexpr const char* kTotalSize = "total_size";
constexpr const char* kChecksum = "checksum";
constexpr const char* kKept = "kept";
constexpr std::string_view kSuffix = ".safetensors";
constexpr std::uintmax_t kMostIndexBytes = 64 << 20;

std::string index_path(const std::string& folder) {
  return (fs::path(folder) / kIndexName).string();
}

// Is there while a save is under way.
fs::path saving_path(const std::string& folder) {
  return fs::path(folder) / "model.safetensors.saving.json";
}

void end_save(const std::string& folder) {
  std::error_code failed;  // then the next run removes it
  fs::remove(saving_path(folder), failed);
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

std::string hash_of(const NamedTensors& tensors) {
  nn::StateHash hash;
  for (const auto& [name, tensor] : tensors) hash.add({name, tensor});
  return fmt::format("{:016x}", hash.value());
}

// Of an index, whatever its own "checksum" is.
std::string checksum_of(Json index) {
  index.erase(kChecksum);
  return fmt::format("{:016x}", hash_of_text(index.dump()));
}

std::string read_regular_file(const std::string& path, std::uintmax_t most_bytes) {
  std::error_code failed;
  const fs::file_status status = fs::status(path, failed);
  if (status.type() == fs::file_type::not_found)
    throw ParseError(path, 0, 0, "there is no such file");
  if (failed) throw ParseError(path, 0, 0, failed.message());
  if (!fs::is_regular_file(status)) throw ParseError(path, 0, 0, "it is no regular file");
  const std::uintmax_t bytes = fs::file_size(path, failed);
  if (bytes > most_bytes)
    throw ParseError(path, 0, 0, fmt::format("it has {} bytes; at most {} are read", bytes,
                                             most_bytes));
  std::ifstream file(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (!file) throw ParseError(path, 0, 0, "it cannot be read");
  return text;
}

// JSON without the objects and arrays inside more than `levels` others: each byte of a deep file
// would take dozens of bytes. Throws Json::exception.
Json parse_levels(const std::string& text, int levels) {
  return Json::parse(text, [levels](int depth, Json::parse_event_t event, const Json&) {
    const bool begins = event == Json::parse_event_t::object_start ||
                        event == Json::parse_event_t::array_start;
    return !begins || depth <= levels;
  });
}

// A name that save_checkpoint gives: nothing that leads out of the folder.
bool is_shard_name(const std::string& name) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '-' || c == '_' || c == '.';
  };
  return (name.starts_with("model-") || name.starts_with("optimiser-")) &&
         name.ends_with(kSuffix) && std::all_of(name.begin(), name.end(), plain);
}

// What is wrong with an index; empty: nothing.
std::string fault_of(const Json& index) {
  for (const char* key : {"metadata", "weight_map", "optimiser_map", "files"})
    if (!index.is_object() || !index.contains(key) || !index[key].is_object())
      return fmt::format("\"{}\" is missing or no object", key);
  for (const auto& [key, value] : index["metadata"].items())
    if (!value.is_string() && !value.is_number_unsigned())
      return fmt::format("\"{}\" of its metadata is neither text nor a number", key);
  for (const char* key : {kTotalSize, kUpdates})
    if (!index["metadata"].contains(key) || !index["metadata"][key].is_number_unsigned())
      return fmt::format("\"{}\" of its metadata is no number", key);
  for (const auto& [name, file] : index["files"].items())
    if (!is_shard_name(name) || !file.is_object() || !file.contains("bytes") ||
        !file["bytes"].is_number_unsigned() || !file.contains("hash") || !file["hash"].is_string())
      return fmt::format("\"files\": {} is no file of a checkpoint, with its bytes and hash",
                         Json(name).dump());
  for (const char* map : {"weight_map", "optimiser_map"})
    for (const auto& [name, file] : index[map].items())
      if (!file.is_string() || !index["files"].contains(file.get_ref<const std::string&>()))
        return fmt::format("\"{}\": \"{}\" is in {}, which \"files\" does not have", map, name,
                           file.dump());
  if (!index.contains(kChecksum) || index[kChecksum] != checksum_of(index))
    return "it was changed after it was saved";
  return "";
}

Json read_index(const std::string& folder) {
  const std::string path = index_path(folder);
  const std::string text = read_regular_file(path, kMostIndexBytes);
  const auto fail = [&](const std::string& reason) {
    throw ParseError(path, 0, 0, "it is no index that tenon train wrote: " + reason);
  };
  const std::size_t zero = text.find('\0');  // which the parser takes for the end
  if (zero != std::string::npos) fail(fmt::format("it is no JSON at its byte {}", zero + 1));
  Json index;
  try {
    index = parse_levels(text, 2);
  } catch (const Json::exception& error) {
    const auto* place = dynamic_cast<const Json::parse_error*>(&error);
    fail(fmt::format("it is no JSON at its byte {}", place == nullptr ? 0 : place->byte));
  }
  const std::string fault = fault_of(index);
  if (!fault.empty()) fail(fault);
  return index;
}

bool has_index(const std::string& folder) {
  std::error_code failed;  // a link that leads nowhere is one, too
  const fs::file_status status = fs::symlink_status(index_path(folder), failed);
  return status.type() != fs::file_type::not_found && status.type() != fs::file_type::none;
}

// The index of a folder that is saved to, before that; null where there is none.
Json earlier_index(const std::string& folder) {
  if (!has_index(folder)) return nullptr;
  try {
    return read_index(folder);
  } catch (const ParseError& error) {
    throw InvalidArgument(fmt::format("{}; save into another folder", error.what()));
  }
}

// One file of a checkpoint, as long as its index says. Its tensors are mapped, not read.
NamedTensors open_shard(const std::string& folder, const Json& index, const std::string& file) {
  const std::string path = (fs::path(folder) / file).string();
  std::error_code failed;
  if (!fs::is_regular_file(path, failed))
    throw ParseError(path, 0, 0, "there is no such file, or it is no regular file");
  const std::uintmax_t bytes = fs::file_size(path, failed);
  if (index["files"][file]["bytes"] != bytes)
    throw ParseError(path, 0, 0, fmt::format("it has {} bytes, {} were saved", bytes,
                                             index["files"][file]["bytes"].dump()));
  return load_safetensors(path).tensors;
}

// Files of a checkpoint, each opened once while its unit is read.
class Files {
 public:
  Files(const std::string& folder, const Json& index) : folder_(folder), index_(index) {}

  // Copies the tensor `name` of the map's file into `target`.
  void read(const char* map, const std::string& name, const Tensor& target) {
    if (!index_[map].contains(name))
      throw ParseError(index_path(folder_), 0, 0,
                       fmt::format("it does not name \"{}\": it is of another model", name));
    open(index_[map][name]);
    const std::string path = (fs::path(folder_) / file_).string();
    const auto found = tensors_.find(name);
    if (found == tensors_.end())
      throw ParseError(path, 0, 0, fmt::format("tensor \"{}\" is missing", name));
    const Tensor& tensor = found->second;
    if (!(tensor.sizes() == target.sizes()) || tensor.dtype() != target.dtype())
      throw ParseError(path, 0, 0,
                       fmt::format("tensor \"{}\" is {} {}, the model's is {} {}", name,
                                   dtype_name(tensor.dtype()), to_string(tensor.sizes()),
                                   dtype_name(target.dtype()), to_string(target.sizes())));
    copy_(target, to(tensor, target.device()));
  }

 private:
  void open(const std::string& file) {
    if (file == file_) return;
    tensors_ = open_shard(folder_, index_, file);
    if (index_["files"][file]["hash"] != hash_of(tensors_))
      throw ParseError((fs::path(folder_) / file).string(), 0, 0,
                       "its tensors are not those that were saved: it is damaged");
    file_ = file;
  }

  const std::string folder_;
  const Json& index_;
  std::string file_;
  NamedTensors tensors_;
};

// What one rank writes of a checkpoint, up to its first failure.
class Shards {
 public:
  Shards(const std::string& folder, const std::string& label, std::size_t units)
      : folder_(folder), label_(label), units_(units) {}

  void write(const char* what, const char* map, std::size_t unit, const NamedTensors& tensors) {
    attempt([&] {
      const std::string hash = hash_of(tensors);
      const std::string file = fmt::format("{}-{}-{:05}-of-{:05}-{}{}", what, label_, unit + 1,
                                           units_, hash, kSuffix);
      const fs::path path = folder_ / file;
      if (!fs::exists(path)) new_.push_back(path);
      save_safetensors(path.string(), tensors, {{"format", "pt"}});
      for (const auto& [name, tensor] : tensors) index_[map][name] = file;
      index_["files"][file] = {{"bytes", fs::file_size(path)}, {"hash", hash}};
    });
  }

  // Unless something failed. What it throws about files is the failure.
  void attempt(const std::function<void()>& action) {
    if (!failure_.empty()) return;
    try {
      action();
    } catch (const std::system_error& error) {
      failure_ = error.what();
    } catch (const InvalidArgument& error) {
      failure_ = error.what();
    }
  }

  // Where a rank failed, throws on all of them; their new files are gone then.
  void fail_together(ProcessGroup& group) {
    const std::vector<std::string> failures = group.gather_texts(failure_);
    const auto first = std::find_if(failures.begin(), failures.end(),
                                    [](const std::string& text) { return !text.empty(); });
    if (first == failures.end()) return;
    remove_new();
    group.barrier();
    if (group.rank() == 0) end_save(folder_.string());
    const auto rank = first - failures.begin();
    throw std::runtime_error(rank == group.rank() ? *first
                                                  : fmt::format("rank {}: {}", rank, *first));
  }

  // Of this rank's files.
  const Json& index() const { return index_; }

 private:
  // Except what an index names that was replaced all the same.
  void remove_new() {
    Json named = Json::object();
    try {
      named = read_index(folder_.string())["files"];
    } catch (const ParseError&) {
    }
    std::error_code failed;  // then they stay
    for (const fs::path& path : new_)
      if (!named.contains(path.filename().string())) fs::remove(path, failed);
  }

  const fs::path folder_;
  const std::string label_;
  const std::size_t units_;
  std::vector<fs::path> new_;
  Json index_ = {{"weight_map", Json::object()}, {"optimiser_map", Json::object()},
                 {"files", Json::object()}};
  std::string failure_;
};

// Throws std::system_error where this process does not see a file that a rank has written.
void require_files(const std::string& folder, const Json& index) {
  for (const auto& [name, file] : index["files"].items()) {
    const fs::path path = fs::path(folder) / name;
    std::error_code failed;
    if (fs::file_size(path, failed) != file["bytes"])
      throw std::system_error(
          std::make_error_code(std::errc::no_such_file_or_directory),
          fmt::format("{}: a rank has written it, and rank 0 does not see it: all ranks must see "
                      "one folder",
                      path.string()));
  }
}

// Whether a folder's file has a name with the hash of its contents, or was being written under such
// a name; `shard` is that name.
bool is_written_shard(const fs::directory_entry& entry, std::string& shard) {
  constexpr std::size_t kHashDigits = 16;
  const std::string name = entry.path().filename().string();
  const std::size_t end = name.find(kSuffix);
  if (end == std::string::npos || end < kHashDigits + 1 || entry.is_symlink()) return false;
  shard = name.substr(0, end + kSuffix.size());
  const std::string_view hash = std::string_view(name).substr(end - kHashDigits, kHashDigits);
  return is_shard_name(shard) && name[end - kHashDigits - 1] == '-' &&
         hash.find_first_not_of("0123456789abcdef") == hash.npos &&
         (name == shard || name.ends_with(".tenon-tmp")) && entry.is_regular_file();
}

// Note [Saves that were killed]. Files that no index names could also be a user's, whose index is
// elsewhere. So a save first writes which of them are there. What comes to them until it ends is
// its own, or was named by the index that it replaced; the next run that saves there removes those.
void begin_save(const std::string& folder) {
  const Json earlier = earlier_index(folder);
  Json kept = Json::array();
  std::string shard;
  for (const auto& entry : fs::directory_iterator(folder))
    if (is_written_shard(entry, shard) && (earlier.is_null() || !earlier["files"].contains(shard)))
      kept.push_back(shard);
  write_whole_file(saving_path(folder).string(), Json{{kKept, kept}}.dump());
}

// Requires: no save is under way. `index`: the folder's, null where there is none.
void remove_unfinished(const std::string& folder, const Json& index) {
  Json saving;
  try {
    saving = parse_levels(read_regular_file(saving_path(folder).string(), kMostIndexBytes), 1);
    if (!saving.at(kKept).is_array()) return;
  } catch (const ParseError&) {  // there is none
    return;
  } catch (const Json::exception&) {  // another program's
    return;
  }
  std::set<Json> named(saving[kKept].begin(), saving[kKept].end());
  if (!index.is_null())
    for (const auto& [name, file] : index["files"].items()) named.insert(name);
  std::error_code failed;  // then they stay
  std::string shard;
  for (const auto& entry : fs::directory_iterator(folder))
    if (is_written_shard(entry, shard) && !named.contains(shard)) fs::remove(entry.path(), failed);
  end_save(folder);
}

// Replaces the folder's index. Files that only the earlier one named go.
void replace_index(const std::string& folder, Json index) {
  const Json earlier = earlier_index(folder);
  require_files(folder, index);
  index[kChecksum] = checksum_of(index);
  write_whole_file(index_path(folder), index.dump(2) + "\n");
  if (earlier.is_null()) return;
  std::error_code failed;  // then they stay
  for (const auto& [name, file] : earlier["files"].items())
    if (!index["files"].contains(name)) fs::remove(fs::path(folder) / name, failed);
}

}  // namespace

CheckpointFolder::CheckpointFolder(const std::string& path, ProcessGroup& group)
    : CheckpointFolder() {
  if (group.rank() == 0) take(path);
  group.barrier();
  std::error_code failed;
  if (!fs::is_directory(path, failed))
    throw std::runtime_error(fmt::format(
        "{}: rank 0 made it, and rank {} does not see it: all ranks must see one folder", path,
        group.rank()));
  FileWriter::check(index_path(path));
}

void CheckpointFolder::take(const std::string& path) {
  std::error_code failed;
  const bool was_there = fs::exists(path, failed);
  fs::create_directories(path, failed);
  if (failed && !fs::is_directory(path))
    throw std::runtime_error(
        fmt::format("{}: the folder cannot be made: {}", path, failed.message()));
  if (!was_there) made_ = path;
  lock_ = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_ >= 0 && ::flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw InvalidArgument(fmt::format("{}: another run saves there; give each run its own folder",
                                      path));
  remove_unfinished(path, earlier_index(path));
}

CheckpointFolder::~CheckpointFolder() {
  if (!made_.empty()) ::rmdir(made_.c_str());  // unless there is something in it
  if (lock_ >= 0) ::close(lock_);
}

bool is_checkpoint(const std::string& path) { return has_index(path); }

void save_checkpoint(const std::string& folder, const std::string& label, ShardedModel& model,
                     nn::Optimizer& optimizer, ProcessGroup& group, const nn::Metadata& metadata) {
  Shards mine(folder, label, model.parts().size());
  mine.attempt([&] {
    fs::create_directories(folder);
    if (group.rank() == 0) begin_save(folder);
  });
  group.barrier();
  std::uint64_t total_bytes = 0;
  model.for_each_unit(
      [&](std::size_t i) { return state_of_part(optimizer, i).flats; },
      [&](std::size_t i, const ShardedModel::Whole& whole) {
        for (const Tensor& tensor : whole.tensors) total_bytes += tensor.nbytes();
        if (i % static_cast<std::size_t>(group.size()) != static_cast<std::size_t>(group.rank()))
          return;
        mine.write("model", "weight_map", i, named(whole.names, whole.tensors));
        const std::vector<std::string> others =
            state_names(state_of_part(optimizer, i).slots, whole.names);
        if (!others.empty())
          mine.write("optimiser", "optimiser_map", i, named(others, whole.others));
      });
  mine.fail_together(group);
  const std::vector<std::string> all = group.gather_texts(mine.index().dump());
  if (group.rank() == 0) {
    Json index = {{"metadata", metadata}};
    for (const std::string& part : all) index.update(Json::parse(part), true);
    index["metadata"][kTotalSize] = total_bytes;
    index["metadata"][kUpdates] = optimizer.updates().front();
    mine.attempt([&] {
      replace_index(folder, std::move(index));
      end_save(folder);
    });
  }
  mine.fail_together(group);
}

nn::Metadata load_checkpoint_metadata(const std::string& folder) {
  const Json index = read_index(folder);
  nn::Metadata metadata;
  for (const auto& [key, value] : index["metadata"].items())
    metadata[key] = value.is_string() ? value.get<std::string>() : value.dump();
  return metadata;
}

std::uint64_t count_checkpoint_parameters(const std::string& folder) {
  const Json index = read_index(folder);
  std::set<std::string> files;
  for (const auto& [name, file] : index["weight_map"].items()) files.insert(file);
  std::uint64_t numbers = 0, bytes = 0;
  for (const std::string& file : files)
    for (const auto& [name, tensor] : open_shard(folder, index, file)) {
      numbers += static_cast<std::uint64_t>(tensor.numel());
      bytes += tensor.nbytes();
    }
  if (index["metadata"][kTotalSize] != bytes)
    throw ParseError(index_path(folder), 0, 0,
                     fmt::format("its \"{}\" is {}; its files hold {} bytes", kTotalSize,
                                 index["metadata"][kTotalSize].dump(), bytes));
  return numbers;
}

void load_checkpoint(const std::string& folder, ShardedModel& model, nn::Optimizer& optimizer) {
  const Json index = read_index(folder);
  Files weights(folder, index), states(folder, index);
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
  const std::vector<std::uint64_t> updates(optimizer.parameters().size(),
                                           index["metadata"][kUpdates]);
  optimizer.set_updates(updates);
}

void load_checkpoint_weights(const std::string& folder, nn::Module& model) {
  const NoGradGuard no_grad;
  const Json index = read_index(folder);
  Files weights(folder, index);
  for (const nn::NamedTensor& parameter : model.named_parameters())
    weights.read("weight_map", parameter.name, parameter.tensor.detach());
}

}  // namespace tenon::distributed
