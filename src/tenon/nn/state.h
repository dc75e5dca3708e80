// Models and training runs in files. Thread-safe while no thread writes the model. O(bytes of the
// file). Besides what each function says, lack of memory throws std::bad_alloc.
#pragma once

#include <map>
#include <span>
#include <string>

#include "tenon/base/hash.h"
#include "tenon/nn/optimizer.h"

namespace tenon::nn {

// What a program keeps beside the tensors, by name.
using Metadata = std::map<std::string, std::string>;

// A safetensors file with the model's parameters and buffers as "model.<name>". With an optimiser,
// also its state as "optimiser.<name>" and its numbers of updates as "optimiser.updates". With
// `metadata` besides, it is all that an exact resume needs: what the program keeps there (the step,
// seeds, the vocabulary) comes back from load_state.
//
// The file is written beside its name and renamed: when the disk is full, or the program dies, an
// earlier file stays as it was. Throws std::runtime_error with the path and the reason.
void save_state(const std::string& path, const Module& model, const Optimizer* optimizer = nullptr,
                const Metadata& metadata = {});

// What a file says beside its tensors. Throws ParseError for one that cannot be read.
Metadata load_metadata(const std::string& path);

// Numbers in the tensors of the model: what a program can compare a file's metadata with before it
// builds what they describe. Throws as load_metadata.
std::uint64_t count_saved_parameters(const std::string& path);

// Fills a model (and an optimiser) made alike with what save_state wrote, and returns the metadata.
// Throws ParseError, with the path, the tensor and both shapes, if a tensor is missing, left over
// or of another shape or dtype. Then nothing is changed.
Metadata load_state(const std::string& path, const Module& model, Optimizer* optimizer = nullptr);

// The hash below, of tensors that come one after another. O(bytes).
class StateHash {
 public:
  // Counts a tensor in. The order of tensors counts.
  void add(const NamedTensor& part);
  // The hash of all so far.
  std::uint64_t value() const { return hash_.value(); }

 private:
  void add_bytes(std::string_view bytes);
  RunningHash hash_;
};

// A hash over names, shapes and bytes, of tensors of any dtype, equal on every machine for equal
// bits.
std::uint64_t state_hash(std::span<const NamedTensor> state);

}  // namespace tenon::nn
