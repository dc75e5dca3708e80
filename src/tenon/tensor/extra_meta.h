// What few tensors have, behind one pointer.
#pragma once

#include <string>
#include <vector>

#include "tenon/base/intrusive_ptr.h"
#include "tenon/tensor/sym_int.h"

namespace tenon {

// Something a backend keeps with a tensor (a handle, a packed layout).
class BackendMeta : public IntrusiveTarget {
 public:
  // For a tensor that shares the metadata by detach(): the same object, or a copy.
  virtual IntrusivePtr<BackendMeta> clone() const = 0;
};

struct ExtraMeta {
  std::vector<std::string> names;  // of the dimensions, "" for none; empty when unnamed
  std::vector<SymInt> sym_sizes;   // of a meta tensor made with symbols; empty otherwise
  IntrusivePtr<BackendMeta> backend;
};

}  // namespace tenon
