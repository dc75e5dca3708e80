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
// each parameter), the metadata, and "optimiser_map" for the optimiser's files. The units are
// divided among the ranks, which write at the same time, with one unit in memory.
//
// File names contain `label`, which must differ from the last save's (the step). The files are on
// disk before the index is replaced atomically, so a rank that dies, or a full disk, leaves the
// previous run. Then the files that the new index does not name are removed. All ranks call it with
// the same arguments and a folder that all see. A rank that fails throws std::runtime_error with
// the path and the reason; then all processes must end.
void save_checkpoint(const std::string& folder, const std::string& label, ShardedModel& model,
                     nn::Optimizer& optimizer, ProcessGroup& group, const nn::Metadata& metadata);

// Creates the folder. Throws like save_checkpoint where files cannot be written there.
void check_checkpoint(const std::string& folder);

// Whether the path is a folder with an index; the metadata of its index. Throws ParseError where
// the index cannot be read.
bool is_checkpoint(const std::string& path);
nn::Metadata load_checkpoint_metadata(const std::string& folder);

// Loads a run into a model, with any Shard and any number of ranks, and into its optimiser. Throws
// ParseError with the file, the tensor and both shapes where a tensor does not match; then the
// model must not be used.
void load_checkpoint(const std::string& folder, ShardedModel& model, nn::Optimizer& optimizer);

}  // namespace tenon::distributed
