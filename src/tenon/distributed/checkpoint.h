// Runs of sharded models in folders.
#pragma once

#include <string>

#include "tenon/distributed/sharded_model.h"
#include "tenon/nn/optimizer.h"
#include "tenon/nn/state.h"

namespace tenon::distributed {

// The file of a folder that makes the others one run.
inline constexpr const char* kIndexName = "model.safetensors.index.json";

// Writes the model and the optimiser over its parts() into `folder`, which is made at need: two
// safetensors files for each unit, parameters by their names and "optimiser.<slot>.<name>", and an
// index as Hugging Face has it ("weight_map": the file of each parameter), with the metadata and,
// for the optimiser's files, "optimiser_map". Units are divided among the ranks, which write at
// once, and hold one unit at a time.
//
// Files have `label` in their names and reach the disk before the index is replaced, in one step,
// so a rank that dies, or a full disk, leaves the run that was there. What the new index does not
// name goes after that. `label` differs from one save to the next (the step). Every rank calls it,
// with the same arguments and a folder that all ranks see. Throws std::runtime_error with the path
// and the reason on the ranks that fail: then the processes must end.
void save_checkpoint(const std::string& folder, const std::string& label, ShardedModel& model,
                     nn::Optimizer& optimizer, ProcessGroup& group, const nn::Metadata& metadata);

// Throws as save_checkpoint would where nothing can be written there; makes the folder.
void check_checkpoint(const std::string& folder);

// Whether the path is such a folder; what save_checkpoint was given. Throws ParseError for an index
// that cannot be read.
bool is_checkpoint(const std::string& path);
nn::Metadata load_checkpoint_metadata(const std::string& folder);

// Fills a model, sharded in any way over any number of ranks, and its optimiser. Throws ParseError,
// with the file, the tensor and both shapes, where something does not fit: then the model is not to
// be used.
void load_checkpoint(const std::string& folder, ShardedModel& model, nn::Optimizer& optimizer);

}  // namespace tenon::distributed
