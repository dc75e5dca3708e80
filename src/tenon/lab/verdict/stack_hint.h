// What names on a stack say about the memory that was asked for.
#pragma once

#include <cstdint>
#include <vector>

#include "tenon/trace/call_site.h"

namespace tenon {

// One bit each; a stack may have several.
struct StackHint {
  bool optimizer = false;       // an optimiser's step or set-up
  bool optimizer_init = false;  // the part that makes its state
  bool optimizer_scratch = false;  // clipping and unscaling of gradients
  bool weights = false;         // a module is built, moved or loaded
  bool gradients = false;       // buckets and shards of gradients
  bool module = false;          // inside a module's forward
  bool boundary = false;        // the program's own step: what stands outside says nothing
  bool loss = false;
  bool cache = false;           // of keys and values
  bool inputs = false;          // a batch is loaded or moved
  bool makes_or_moves = false;  // the operator copies, fills or draws numbers
  bool cast_of_weight = false;  // autocast's low-precision copy
  bool convolution = false;
};

// By stack number. O(frames of all stacks): names are looked up once a frame.
std::vector<StackHint> stack_hints(const SiteTable& sites, const CallSiteTable& table);

}  // namespace tenon
