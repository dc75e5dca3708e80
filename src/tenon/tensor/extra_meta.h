// What few tensors have, behind one pointer.
#pragma once

#include <string>
#include <vector>

#include "tenon/base/intrusive_ptr.h"
#include "tenon/tensor/sym_int.h"

namespace tenon {

class Tensor;
struct ViewInfo;

// Something a backend keeps with a tensor (a handle, a packed layout).
class BackendMeta : public IntrusiveTarget {
 public:
  // For a tensor that shares the metadata by detach(): the same object, or a copy.
  virtual IntrusivePtr<BackendMeta> clone() const = 0;
  // For a view of a tensor that got it by set_followed_backend_meta; null: the view has none.
  virtual IntrusivePtr<BackendMeta> of_view(const Tensor& base, const Tensor& view,
                                            const ViewInfo& info) const {
    static_cast<void>(base), static_cast<void>(view), static_cast<void>(info);
    return {};
  }
};

struct ExtraMeta {
  std::vector<std::string> names;  // of the dimensions, "" for none; empty when unnamed
  std::vector<SymInt> sym_sizes;   // of a meta tensor made with symbols; empty otherwise
  IntrusivePtr<BackendMeta> backend;
};

}  // namespace tenon
