#include "tenon/tensor/dim_labels.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "tenon/base/check.h"
#include "tenon/base/error.h"

namespace tenon {
namespace {

using detail::assume_hint;

constinit thread_local int without_names = 0;
constinit thread_local std::span<const SymSizes> known_shapes;

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

const std::string* repeated_name(const Labels& labels) {
  for (std::size_t d = 0; d < labels.size(); ++d)
    for (std::size_t e = d + 1; e < labels.size(); ++e)
      if (!labels[d].name.empty() && labels[d].name == labels[e].name) return &labels[d].name;
  return nullptr;
}

SymInt product_of(std::span<const SymInt> sizes) {
  SymInt product(1);
  for (const SymInt& size : sizes) product = product * size;
  return product;
}

bool has_hints(const SymSizes& shape, IntList sizes) {
  return std::ranges::equal(shape, sizes, {}, &SymInt::hint);
}

// The known shape that plain sizes stand for, or its number of elements as one size. None where
// there is no such shape, or two that a symbol tells apart: then that is guarded.
std::optional<SymSizes> known_sizes(IntList sizes) {
  std::optional<SymSizes> found;
  const auto consider = [&](const SymSizes& shape) {
    if (!found) {
      found = shape;
    } else if (!std::ranges::equal(*found, shape, [](auto& a, auto& b) { return is_same(a, b); })) {
      for (const SymInt& size : *found) assume_hint(size);
      for (const SymInt& size : shape) assume_hint(size);
      found = SymSizes(sizes.begin(), sizes.end());
    }
  };
  for (const SymSizes& shape : known_shapes)
    if (has_hints(shape, sizes)) consider(shape);
  if (!found && sizes.size() == 1)
    for (const SymSizes& shape : known_shapes)
      if (SymInt elements = product_of(shape); elements.hint() == sizes[0])
        consider({std::move(elements)});
  return found;
}

bool is_one(const SymInt& size) { return size.hint() == 1 && !size.is_symbolic(); }

// The size of a dimension that two broadcast to.
SymInt joined(const SymInt& a, const SymInt& b) {
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

void erase_dim(Labels& labels, std::int64_t dim) { labels.erase(labels.begin() + dim); }

// Each size takes the atoms of the product whose hints divide it. What is left over stays in
// `elements`.
void take_atoms(SymInt& elements, std::span<Label> out) {
  SymSizes atoms = atoms_of(elements);
  for (Label& label : out) {
    const std::int64_t size = label.size.hint();
    SymInt taken(1);
    for (auto it = atoms.begin(); it != atoms.end();) {
      const std::int64_t product = taken.hint() * it->hint();
      if (product == 0 || size % product != 0) {
        ++it;
        continue;
      }
      taken = taken * *it;
      it = atoms.erase(it);
    }
    if (!taken.is_symbolic()) continue;
    label.size = taken * SymInt(size / taken.hint());
    elements = elements / label.size;
  }
}

// As many elements in other dimensions. Dimensions that stay (from either end) keep their
// expression. Among those that do not, all symbols go to the first size that leaves whole numbers
// to the others, or each to a size that its hint divides; what finds no place is guarded.
Labels reshaped(std::span<const Label> old, IntList sizes) {
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
  SymInt elements(1);
  for (std::size_t d = front; d + back < old.size(); ++d) elements = elements * old[d].size;
  if (!elements.is_symbolic()) return out;
  const std::span<Label> fresh(out.data() + front, out.size() - front - back);
  std::uint64_t of_fresh = 1;  // may wrap, beside a dimension of size 0, where any sizes go
  for (const Label& label : fresh) of_fresh *= static_cast<std::uint64_t>(label.size.hint());
  if (fresh.empty() || elements.hint() == 0 ||
      of_fresh != static_cast<std::uint64_t>(elements.hint())) {
    assume_hint(elements);
    return out;
  }
  if (fresh.size() == 1) {
    fresh[0].size = elements;
    return out;
  }
  for (Label& label : fresh) {
    const SymInt others(elements.hint() / label.size.hint());
    const SymInt share = elements / others;
    if (!is_same(share * others, elements)) continue;
    label.size = share;
    return out;
  }
  take_atoms(elements, fresh);
  assume_hint(elements);
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
      if (!base[dim(0)].size.is_symbolic())
        out[dim(0)].size = new_size(dim(0));
      else if (const std::optional<SymSizes> known = known_sizes(view.sizes()))
        out[dim(0)].size = (*known)[dim(0)];
      else
        out[dim(0)].size = sliced(base[dim(0)].size, numbers[3], numbers[4], numbers[2]);
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
      const std::optional<SymSizes> known = known_sizes(view.sizes());
      for (std::size_t d = 0; d < out.size(); ++d)
        if (known && out[d].size.hint() != view.sizes()[d]) {
          out[d].size = (*known)[d];
        } else if (out[d].size.hint() != view.sizes()[d]) {
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
      static_cast<void>(base[dim(0)].size < SymInt(numbers[1]));
      out[dim(0)].size =
          (base[dim(0)].size - SymInt(numbers[1])) / SymInt(numbers[2]) + SymInt(1);
      out.push_back({"", new_size(out.size())});
      break;
    case ViewInfo::Kind::kReshape:
      return reshaped(base, view.sizes());
    case ViewInfo::Kind::kAsStrided:
      for (std::size_t d = 0; d < base.size(); ++d) assume_hint(base[d].size);
      return {};
  }
  return out;
}

}  // namespace

NoNames::NoNames() { ++without_names; }
NoNames::~NoNames() { --without_names; }

KnownShapes::KnownShapes(std::span<const SymSizes> shapes)
    : outer_(std::exchange(known_shapes, shapes)) {}
KnownShapes::~KnownShapes() { known_shapes = outer_; }

namespace detail {

namespace {

// What goes along with a view besides its gradient.
void hand_on(const Tensor& base, Tensor& view, const ViewInfo& info) {
  if (const ExtraMeta* extra = base.impl()->extra_meta(); extra != nullptr && extra->backend)
    if (IntrusivePtr<BackendMeta> backend = extra->backend->of_view(base, view, info))
      view.impl()->set_followed_backend_meta(std::move(backend));
  if (!is_labelled(base)) return;
  const Labels labels = of_view(labels_of(base), view, info);
  if (info.kind != ViewInfo::Kind::kAsStrided) give_labels("view", view, labels, false);
}

}  // namespace

void follow_view(const Tensor& base, Tensor& view, const ViewInfo& info) {
  hand_on(base, view, info);
  if (AutogradMetaInterface* meta = base.impl()->autograd_meta())
    meta->view_created(base, view, info);
}

void follow_views(const Tensor& base, std::span<Tensor> views, std::span<const ViewInfo> infos) {
  if (AutogradMetaInterface* meta = base.impl()->autograd_meta())
    meta->views_created(base, views, infos);
  // How many views there are, and how long the last is, rests on the whole size.
  if (is_labelled(base))
    assume_hint(labels_of(base)[static_cast<std::size_t>(infos[0].numbers[0])].size);
  for (std::size_t i = 0; i < views.size(); ++i) hand_on(base, views[i], infos[i]);
}

void label_like(const Tensor& result, const Tensor& source) {
  give_labels("copy", result, labels_of(source), true);
}

void label_written(const char* what, const Tensor& target, const Tensor& source) {
  const Labels old = labels_of(target);
  give_labels(what, target, unified(what, old, labels_of(source)), false);
}

void label_known(const Tensor& t) {
  if (known_shapes.empty()) return;
  if (std::optional<SymSizes> sizes = known_sizes(t.sizes())) {
    if (std::ranges::none_of(*sizes, &SymInt::is_symbolic)) return;
    Labels labels;
    for (SymInt& size : *sizes) labels.push_back({"", std::move(size)});
    give_labels("empty", t, labels, t.storage().use_count() == 1);
  }
}

Labels labels_of(const Tensor& t) {
  Labels labels(static_cast<std::size_t>(t.dim()));
  const ExtraMeta* extra = t.impl()->extra_meta();
  for (std::size_t d = 0; d < labels.size(); ++d) {
    labels[d].size = SymInt(t.sizes()[d]);
    if (extra == nullptr) continue;
    if (!extra->names.empty() && without_names == 0) labels[d].name = extra->names[d];
    if (!extra->sym_sizes.empty()) labels[d].size = extra->sym_sizes[d];
  }
  return labels;
}

void give_labels(const char* what, const Tensor& result, const Labels& labels, bool fresh) {
  bool fits = labels.size() == static_cast<std::size_t>(result.dim());
  bool any_name = false, any_symbol = false;
  DimNames names;
  SymSizes sizes;
  for (std::size_t d = 0; fits && d < labels.size(); ++d) {
    fits = labels[d].size.hint() == result.sizes()[d];
    any_name |= !labels[d].name.empty();
    any_symbol |= labels[d].size.is_symbolic();
    names.push_back(labels[d].name);
    sizes.push_back(labels[d].size);
  }
  TENON_CHECK(fits, "{}: the label rule does not give a result of shape {}", what,
              to_string(result.sizes()));
  if (without_names == 0 || fresh)
    result.impl()->set_names(any_name ? std::move(names) : DimNames());
  if (any_symbol && fresh)
    give_sym_sizes(result, std::move(sizes));
  else
    result.impl()->set_sym_sizes(any_symbol ? std::move(sizes) : SymSizes());
}

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
    to.size = joined(to.size, from.size);
  }
  // A name that both have, at different places.
  if (repeated_name(out) != nullptr) refuse_names(what, a, b);
  return out;
}

void check_distinct(const char* what, const Labels& labels) {
  if (const std::string* name = repeated_name(labels))
    throw InvalidArgument(
        fmt::format("{}: the result would have two dimensions named \"{}\"; rename one", what,
                    *name));
}

void assume_hint(const SymInt& size) { static_cast<void>(size == SymInt(size.hint())); }

SymInt sym_numel(const Tensor& t) {
  SymInt elements(1);
  for (const SymInt& size : sym_sizes_of(t)) elements = elements * size;
  return elements;
}

SymSizes sym_sizes_of(const Tensor& t) {
  SymSizes sizes;
  for (const Label& label : labels_of(t)) sizes.push_back(label.size);
  return sizes;
}

void give_sym_sizes(const Tensor& t, SymSizes sizes) {
  SymInt bytes = product_of(sizes) * SymInt(static_cast<std::int64_t>(t.item_size()));
  if (t.is_meta() && t.storage().nbytes() == static_cast<std::size_t>(bytes.hint()))
    t.storage().impl()->set_nbytes(std::move(bytes));
  t.impl()->set_sym_sizes(std::move(sizes));
}

}  // namespace detail
}  // namespace tenon
