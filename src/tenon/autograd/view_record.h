// A view function written down: to do it to another tensor, and to undo it for gradients.
#pragma once

#include <array>
#include <memory>

#include "tenon/tensor/tensor.h"

namespace tenon::autograd {

// How `view` was made of `base`, by the kinds of ViewInfo.
class ViewRecord {
 public:
  ViewRecord(const Tensor& base, const Tensor& view, const ViewInfo& info);
  // By geometry alone: whatever made it.
  ViewRecord(const Tensor& base, const Tensor& view);

  const char* name() const;
  // The same view of a tensor of the base's shape. Recorded as any view is; where the geometry
  // alone is known, and the tensor lies otherwise than the base did, of a copy.
  Tensor apply(const Tensor& t) const;
  // The gradient of the base from that of the view: the elements go back to their places, others
  // are zero, and what several saw is added up. Recorded.
  Tensor undo(const Tensor& gradient) const;
  // `t`, of the base's shape, with zeros where the view looks. Recorded. Requires: made by geometry
  // alone.
  Tensor without(const Tensor& t) const;

 private:
  struct Geometry {
    DimVector base_sizes, base_strides, sizes, strides;
    std::int64_t shift;    // of the view's first element from the base's
    std::int64_t base_at;  // of the base in memory that holds both
    std::int64_t reach;    // how many elements that memory has, at least one
    bool base_overlaps;
    bool overlaps;
  };

  void set_geometry(const Tensor& base, const Tensor& view);
  Tensor scatter(const Tensor& gradient) const;
  Tensor scatter_strided(const Tensor& gradient) const;
  // `t`, of the base's shape, in memory of its own that is laid as the base's.
  Tensor laid(const Tensor& t) const;
  // The view's places in a tensor that is laid so.
  Tensor strided(const Tensor& t) const;
  // Divides what each element of that memory has by how many elements of the base are there.
  void share_out(const Tensor& memory) const;

  ViewInfo::Kind kind_;
  DType dtype_;
  std::array<std::int64_t, 3> numbers_{};
  DimVector base_sizes_;
  DimVector order_;  // of a permutation; the sizes of a reshape, squeeze or expand
  std::shared_ptr<const Geometry> geometry_;
};

}  // namespace tenon::autograd
