#include "tenon/tensor/dim_labels.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tenon/base/error.h"

namespace tenon {
namespace {

constinit thread_local int without_labels = 0;

// Both labels of one dimension.
struct Label {
  std::string name;
  SymInt size;
};
using Labels = std::vector<Label>;

Labels labels_of(const Tensor& t) {
  Labels labels(static_cast<std::size_t>(t.dim()));
  const ExtraMeta* extra = t.impl()->extra_meta();
  for (std::size_t d = 0; d < labels.size(); ++d) {
    labels[d].size = SymInt(t.sizes()[d]);
    if (extra == nullptr) continue;
    if (!extra->names.empty()) labels[d].name = extra->names[d];
    if (!extra->sym_sizes.empty()) labels[d].size = extra->sym_sizes[d];
  }
  return labels;
}

// `owns`: the tensor's storage is its own and as large as its elements.
void give(const Tensor& t, const Labels& labels, bool owns) {
  DimNames names;
  std::vector<SymInt> sizes;
  bool any_name = false, any_symbol = false;
  for (const Label& label : labels) {
    any_name |= !label.name.empty();
    any_symbol |= label.size.is_symbolic();
    names.push_back(label.name);
    sizes.push_back(label.size);
  }
  t.impl()->set_names(any_name ? std::move(names) : DimNames());
  if (any_symbol && owns)
    detail::give_sym_sizes(t, std::move(sizes));
  else
    t.impl()->set_sym_sizes(any_symbol ? std::move(sizes) : std::vector<SymInt>());
}

[[noreturn]] void refuse_names(const char* what, const Labels& a, const Labels& b) {
  const auto names = [](const Labels& labels) {
    DimNames all;
    for (const Label& label : labels) all.push_back(label.name.empty() ? "-" : label.name);
    return all;
  };
  throw InvalidArgument(
      fmt::format("{}: dimensions named [{}] do not go with [{}]; align them (permute, unsqueeze) "
                  "or drop names with set_names({{}})",
                  what, fmt::join(names(a), ", "), fmt::join(names(b), ", ")));
}

// What a program's shapes rest on besides the symbols. A comparison tells the thread's SymGuards.
void assume_hint(const SymInt& size) { static_cast<void>(size == SymInt(size.hint())); }
bool is_one(const SymInt& size) { return size.hint() == 1 && !size.is_symbolic(); }

// The size of a dimension that two broadcast to.
SymInt unified(const SymInt& a, const SymInt& b) {
  if (is_one(b)) return a;
  if (is_one(a)) return b;
  if (a == b) return a.is_symbolic() ? a : b;
  return a == SymInt(1) ? b : a;
}

// Where an index of a slice lies in a dimension of `size` elements.
SymInt clamped(const SymInt& size, std::int64_t index) {
  if (index == INT64_MAX) return size;
  const SymInt at = index < 0 ? size - SymInt(-index) : SymInt(index);
  if (at < SymInt(0)) return SymInt(0);
  return size < at ? size : at;
}

// The length of size[start:end:step].
SymInt sliced(const SymInt& size, std::int64_t start, std::int64_t end, std::int64_t step) {
  const SymInt first = clamped(size, start), last = clamped(size, end);
  if (last < first) return SymInt(0);
  const bool from_zero = first.hint() == 0 && !first.is_symbolic();
  const SymInt reach = from_zero ? last : last - first;
  return step == 1 ? reach : (reach + SymInt(step - 1)) / SymInt(step);
}

// From the right, as shapes broadcast.
Labels unified(const char* what, const Labels& a, const Labels& b) {
  const Labels& longer = a.size() >= b.size() ? a : b;
  const Labels& shorter = a.size() >= b.size() ? b : a;
  Labels out = longer;
  const std::size_t added = longer.size() - shorter.size();
  for (std::size_t d = 0; d < shorter.size(); ++d) {
    Label& to = out[added + d];
    const Label& from = shorter[d];
    if (to.name.empty())
      to.name = from.name;
    else if (!from.name.empty() && from.name != to.name)
      refuse_names(what, a, b);
    to.size = unified(to.size, from.size);
  }
  // A name that both have, at different places.
  for (std::size_t d = 0; d < out.size(); ++d)
    for (std::size_t e = d + 1; e < out.size(); ++e)
      if (!out[d].name.empty() && out[d].name == out[e].name) refuse_names(what, a, b);
  return out;
}

void erase_dim(Labels& labels, std::int64_t dim) { labels.erase(labels.begin() + dim); }

// As many elements in other dimensions. Dimensions that stay (from either end) keep their
// expression; among those that do not, the first takes what the others leave.
Labels reshaped(const Labels& old, IntList sizes) {
  Labels out(sizes.size());
  for (std::size_t d = 0; d < out.size(); ++d) out[d].size = SymInt(sizes[d]);
  std::size_t front = 0, back = 0;
  const std::size_t most = std::min(old.size(), out.size());
  while (front < most && old[front].size.hint() == sizes[front]) {
    out[front].size = old[front].size;
    ++front;
  }
  while (front + back < most &&
         old[old.size() - 1 - back].size.hint() == sizes[sizes.size() - 1 - back]) {
    out[out.size() - 1 - back].size = old[old.size() - 1 - back].size;
    ++back;
  }
  if (front + back >= out.size()) return out;
  SymInt elements(1);
  for (std::size_t d = front; d + back < old.size(); ++d)
    elements = d == front ? old[d].size : elements * old[d].size;
  if (!elements.is_symbolic() || elements.hint() == 0) return out;
  std::int64_t others = 1;
  for (std::size_t d = front + 1; d + back < out.size(); ++d) others *= sizes[d];
  out[front].size = others == 1 ? elements : elements / SymInt(others);
  return out;
}

Labels of_view(const Labels& base, const Tensor& view, const ViewInfo& info) {
  Labels out = base;
  const std::int64_t* numbers = info.numbers;
  const auto dim = [&](int i) { return static_cast<std::size_t>(numbers[i]); };
  const auto new_size = [&](std::size_t d) { return SymInt(view.sizes()[d]); };
  switch (info.kind) {
    case ViewInfo::Kind::kAlias:
      break;
    case ViewInfo::Kind::kSlice:
      if (base[dim(0)].size.is_symbolic())
        out[dim(0)].size = sliced(base[dim(0)].size, numbers[3], numbers[4], numbers[2]);
      else
        out[dim(0)].size = new_size(dim(0));
      break;
    case ViewInfo::Kind::kSelect:
      static_cast<void>(SymInt(numbers[1]) < base[dim(0)].size);
      erase_dim(out, numbers[0]);
      break;
    case ViewInfo::Kind::kPermute:
      for (std::size_t d = 0; d < out.size(); ++d)
        out[d] = base[static_cast<std::size_t>(info.sizes[d])];
      break;
    case ViewInfo::Kind::kUnsqueeze:
      out.insert(out.begin() + numbers[0], Label{"", SymInt(1)});
      break;
    case ViewInfo::Kind::kExpand: {
      const std::size_t added = view.sizes().size() - base.size();
      out.insert(out.begin(), added, Label{});
      for (std::size_t d = 0; d < out.size(); ++d)
        if (out[d].size.hint() != view.sizes()[d]) {
          assume_hint(out[d].size);
          out[d].size = new_size(d);
        }
      break;
    }
    case ViewInfo::Kind::kSqueeze:
      if (numbers[1] != 0) {
        assume_hint(out[dim(0)].size);
        erase_dim(out, numbers[0]);
      } else {
        std::erase_if(out, [](const Label& label) { return label.size == SymInt(1); });
      }
      break;
    case ViewInfo::Kind::kDiagonal:
      assume_hint(base[dim(1)].size);
      assume_hint(base[dim(2)].size);
      erase_dim(out, std::max(numbers[1], numbers[2]));
      erase_dim(out, std::min(numbers[1], numbers[2]));
      out.push_back({"", new_size(out.size())});
      break;
    case ViewInfo::Kind::kUnfold:
      assume_hint(base[dim(0)].size);
      out[dim(0)].size = new_size(dim(0));
      out.push_back({"", new_size(out.size())});
      break;
    case ViewInfo::Kind::kReshape:
      return reshaped(base, view.sizes());
    case ViewInfo::Kind::kAsStrided:
      return {};
  }
  return out;
}

}  // namespace

NoLabels::NoLabels() { ++without_labels; }
NoLabels::~NoLabels() { --without_labels; }

namespace detail {

namespace {

// What goes along with a view besides its gradient.
void hand_on(const Tensor& base, Tensor& view, const ViewInfo& info) {
  if (const ExtraMeta* extra = base.impl()->extra_meta(); extra != nullptr && extra->backend)
    if (IntrusivePtr<BackendMeta> backend = extra->backend->of_view(base, view, info))
      view.impl()->set_followed_backend_meta(std::move(backend));
  if (!is_labelled(base) || without_labels > 0) return;
  Labels labels = of_view(labels_of(base), view, info);
  if (labels.size() == static_cast<std::size_t>(view.dim())) give(view, labels, false);
}

}  // namespace

void follow_view(const Tensor& base, Tensor& view, const ViewInfo& info) {
  if (AutogradMetaInterface* meta = base.impl()->autograd_meta())
    meta->view_created(base, view, info);
  hand_on(base, view, info);
}

void follow_views(const Tensor& base, std::span<Tensor> views, std::span<const ViewInfo> infos) {
  if (AutogradMetaInterface* meta = base.impl()->autograd_meta())
    meta->views_created(base, views, infos);
  // How many views there are, and how long the last is, rests on the whole size.
  if (is_labelled(base) && without_labels == 0)
    assume_hint(labels_of(base)[static_cast<std::size_t>(infos[0].numbers[0])].size);
  for (std::size_t i = 0; i < views.size(); ++i) hand_on(base, views[i], infos[i]);
}

void label_like(const Tensor& result, const Tensor& source) {
  if (without_labels == 0) give(result, labels_of(source), true);
}

void label_broadcast(const char* what, const Tensor& result, const Tensor& a, const Tensor& b,
                     bool fresh) {
  if (without_labels > 0) return;
  const Labels operands = unified(what, labels_of(a), labels_of(b));
  give(result, fresh ? operands : unified(what, labels_of(result), operands), fresh);
}

void label_reduced(const Tensor& result, const Tensor& source, std::uint64_t reduced_dims,
                   bool keepdim) {
  if (without_labels > 0) return;
  const Labels old = labels_of(source);
  Labels left;
  for (std::size_t d = 0; d < old.size(); ++d) {
    if (((reduced_dims >> d) & 1) == 0)
      left.push_back(old[d]);
    else if (keepdim)
      left.push_back({old[d].name, SymInt(1)});
  }
  give(result, left, true);
}

void label_product(const Tensor& result, const Tensor& a, const Tensor& b) {
  if (without_labels > 0) return;
  Labels left = labels_of(a), right = labels_of(b);
  const SymInt& rows_of_right = right[right.size() > 1 ? right.size() - 2 : 0].size;
  static_cast<void>(left.back().size == rows_of_right);
  Labels ends;
  if (left.size() > 1) ends.push_back(left[left.size() - 2]);
  if (right.size() > 1) ends.push_back(right.back());
  left.resize(left.size() > 2 ? left.size() - 2 : 0);
  right.resize(right.size() > 2 ? right.size() - 2 : 0);
  Labels out = unified("matmul", left, right);
  out.insert(out.end(), ends.begin(), ends.end());
  for (std::size_t d = 0; d < out.size(); ++d)
    for (std::size_t e = d + 1; e < out.size(); ++e)
      if (!out[d].name.empty() && out[d].name == out[e].name)
        throw InvalidArgument(
            fmt::format("matmul: the result would have two dimensions named \"{}\"; rename one",
                        out[d].name));
  give(result, out, true);
}

std::vector<SymInt> sym_sizes_of(const Tensor& t) {
  std::vector<SymInt> sizes;
  for (const Label& label : labels_of(t)) sizes.push_back(label.size);
  return sizes;
}

void give_sym_sizes(const Tensor& t, std::vector<SymInt> sizes) {
  SymInt bytes(static_cast<std::int64_t>(t.item_size()));
  for (const SymInt& size : sizes) bytes = bytes * size;
  if (t.is_meta()) t.storage().impl()->set_nbytes(std::move(bytes));
  t.impl()->set_sym_sizes(std::move(sizes));
}

}  // namespace detail
}  // namespace tenon
