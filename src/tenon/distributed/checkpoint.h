// Saves training runs of sharded models in folders.
#pragma once

#include <string>

#include "tenon/distributed/sharded_model.h"
#include "tenon/nn/optimizer.h"
#include "tenon/nn/state.h"

namespace tenon::distributed {

// The index: it names the other files of the run.
inline constexpr const char* kIndexName = "model.safetensors.index.json";

// Writes the model and the state of the optimiser over its parts() into `folder`, which is created
// where it does not exist. Each unit has two safetensors files: its parameters, and
// "optimiser.<slot>.<parameter>". The index has Hugging Face's format ("weight_map": the file of
// each parameter), the metadata, "optimiser_map" for the optimiser's files, the size and a hash of
// each file ("files"), and a checksum of itself. The units are divided among the ranks, which write
// at the same time, with one unit in memory.
//
// File names contain `label` (the step) and a hash of the contents, so that no file is replaced by
// another one. The files are on disk before the index is replaced atomically, so a rank that dies
// leaves the previous checkpoint. Then the files that only the previous index named are removed; no
// others are. What a killed save leaves, the next CheckpointFolder removes. All ranks call it with
// the same arguments and a folder that all see. Where a rank fails, all remove the files that they
// wrote and throw std::runtime_error with the rank, the path and the reason; the previous
// checkpoint stays.
void save_checkpoint(const std::string& folder, const std::string& label, ShardedModel& model,
                     nn::Optimizer& optimizer, ProcessGroup& group, const nn::Metadata& metadata);

// A folder for checkpoints, for the time of a run: rank 0 creates it where it does not exist, and
// locks it (flock, where the file system has it). All ranks construct one. Throws InvalidArgument
// where another run has the lock, or the folder has an index that save_checkpoint did not write;
// std::runtime_error where files cannot be written, or a rank does not see the folder. Files that a
// killed save left, which no index names, are removed: Note [Saves that were killed]. The
// destructor removes a folder that it created and that is empty. Not thread-safe.
class CheckpointFolder {
 public:
  CheckpointFolder(const std::string& path, ProcessGroup& group);
  ~CheckpointFolder();
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

 private:
  CheckpointFolder() = default;
  void take(const std::string& path);

  std::string made_;  // empty: it was there
  int lock_ = -1;
};

// Whether the path is a folder with an index; the metadata of its index. Throws ParseError where
// the index cannot be read, or was changed after it was saved.
bool is_checkpoint(const std::string& path);
nn::Metadata load_checkpoint_metadata(const std::string& folder);

// The number of elements of the parameters, from the headers of their files. Throws ParseError
// also where the index has another "total_size".
std::uint64_t count_checkpoint_parameters(const std::string& folder);

// Loads a run into a model, with any Shard and any number of ranks, and into its optimiser. Throws
// ParseError with the file, the tensor and both shapes where a tensor does not match, or with the
// file where its contents are not those that were saved; then the model must not be used.
void load_checkpoint(const std::string& folder, ShardedModel& model, nn::Optimizer& optimizer);
// The same for the parameters alone, into a model that is not divided.
void load_checkpoint_weights(const std::string& folder, nn::Module& model);

}  // namespace tenon::distributed
