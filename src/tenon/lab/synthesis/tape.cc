#include "tenon/lab/synthesis/tape.h"

#include <algorithm>
#include <utility>

namespace tenon::synthesis {

Parameter& Tape::parameter(std::uint64_t elements, bool trained) {
  Parameter& made = parameters_.emplace_back();
  made.elements = elements;
  made.trained = trained;
  made.data = make((elements + shards_ - 1) / shards_, parameter_width());
  return made;
}

void Tape::end_forward() {
  for (Parameter& parameter : parameters_) parameter.cast = {};
}

Tensor Tape::make(std::uint64_t elements, std::uint64_t width) {
  return {program_.allocate(elements * width), elements, width};
}

void Tape::scratch(std::uint64_t bytes) {
  const StoragePtr held = program_.allocate(bytes);
  program_.run(bytes);
}

void Tape::push(Node node) {
  if (recording_) nodes_.push_back(std::move(node));
}

Tensor Tape::run_nodes(Tensor gradient) {
  while (!nodes_.empty()) {
    const Node node = std::move(nodes_.back());
    nodes_.pop_back();
    gradient = node(std::move(gradient));
  }
  return gradient;
}

// The nodes that f pushes, apart from the others.
std::vector<Tape::Node> Tape::record(const std::function<void()>& f) {
  std::vector<Node> outer;
  outer.swap(nodes_);
  f();
  outer.swap(nodes_);
  return outer;
}

void Tape::backward() { run_nodes(make(1, 4)); }

// The first gradient is kept as it is, later ones are added in place.
void Tape::accumulate(Parameter& parameter, Tensor gradient) {
  if (!parameter.trained) return;
  const std::uint64_t width = parameter.data.width;
  if (gradient.width != width) {
    Tensor wide = make(gradient.elements, width);
    program_.run(gradient.bytes() + wide.bytes());
    gradient = std::move(wide);
  }
  if (parameter.gradient.storage == nullptr)
    parameter.gradient = std::move(gradient);
  else
    program_.run(3 * gradient.bytes());
}

// Of a's shape.
Tensor Tape::add(const Tensor& a, const Tensor& b) {
  Tensor sum = make(a.elements, std::max(a.width, b.width));
  program_.run(3 * sum.bytes());
  return sum;
}

// ------------------------------------------------------------------------------------------------
// Operators

Tensor Tape::cast(const Tensor& x, std::uint64_t width) {
  if (x.width == width) return x;
  Tensor y = make(x.elements, width);
  program_.run(x.bytes() + y.bytes());
  push([this, before = x.width](const Tensor& gradient) {
    Tensor back = make(gradient.elements, before);
    program_.run(gradient.bytes() + back.bytes());
    return back;
  });
  return y;
}

// Mixed precision casts a weight once for each forward pass.
Tensor Tape::weight_of(Parameter& weight) {
  if (weight.data.width == compute_width()) return weight.data;
  if (weight.cast.storage != nullptr) return weight.cast;
  Tensor copy = make(weight.elements, compute_width());
  program_.run(weight.elements * 6);
  if (recording_ && weight.trained) weight.cast = copy;
  return copy;
}

Tensor Tape::pointwise(const Tensor& x, std::uint64_t saved_bytes) {
  Tensor y = make(x.elements, x.width);
  const StoragePtr extra = program_.allocate(saved_bytes);
  program_.run(x.bytes() + y.bytes() + saved_bytes);
  push([this, x, extra](const Tensor& gradient) {
    Tensor gx = make(x.elements, gradient.width);
    program_.run(3 * gx.bytes());
    return gx;
  });
  return y;
}

// Backward leaves one gradient of a and b together, as the product before them wants it.
Tensor Tape::gate(const Tensor& a, const Tensor& b) {
  const Tensor active = make(a.elements, a.width);
  program_.run(2 * a.bytes());
  Tensor y = make(a.elements, a.width);
  program_.run(3 * a.bytes());
  push([this, a, b, active](const Tensor& gradient) {
    const Tensor ga = make(a.elements, gradient.width);
    program_.run(3 * ga.bytes());
    const Tensor gb = make(b.elements, gradient.width);
    program_.run(3 * gb.bytes());
    Tensor both = make(a.elements + b.elements, gradient.width);
    program_.run(2 * both.bytes());
    return both;
  });
  return y;
}

Tensor Tape::linear(const Tensor& input, std::uint64_t in, std::uint64_t out, Parameter& weight,
                    Parameter* bias) {
  const Tensor x = cast(input, compute_width());
  const Tensor w = weight_of(weight);
  const std::uint64_t rows = x.elements / in;
  const std::uint64_t operations = 2 * rows * in * out;
  Tensor y = make(rows * out, compute_width());
  program_.run(x.bytes() + w.bytes() + y.bytes(), operations);
  // A frozen weight's product saves no input.
  const Tensor saved = weight.trained ? x : Tensor{nullptr, x.elements, x.width};
  push([this, saved, w, rows, in, out, operations, &weight, bias](const Tensor& gradient) {
    Tensor gx = make(rows * in, compute_width());
    program_.run(gradient.bytes() + w.bytes() + gx.bytes(), operations);
    if (weight.trained) {
      Tensor gw = make(in * out, compute_width());
      program_.run(gradient.bytes() + saved.bytes() + gw.bytes(), operations);
      accumulate(weight, std::move(gw));
    }
    if (bias != nullptr && bias->trained) {
      Tensor gb = make(out, compute_width());
      program_.run(gradient.bytes());
      accumulate(*bias, std::move(gb));
    }
    return gx;
  });
  return y;
}

Tensor Tape::norm(const Tensor& x, std::uint64_t rows, Parameter& scale) {
  // Mixed precision normalises in 4 bytes.
  Tensor y = make(x.elements, precision_ == Precision::kMixed ? 4 : x.width);
  const StoragePtr mean = program_.allocate(rows * 4);
  const StoragePtr deviation = program_.allocate(rows * 4);
  program_.run(x.bytes() + y.bytes());
  push([this, x, mean, deviation, &scale](const Tensor&) {
    Tensor gx = make(x.elements, x.width);
    Tensor gs = make(scale.elements, parameter_width());
    scratch(std::min<std::uint64_t>(scale.elements * 256, x.bytes()));
    program_.run(3 * gx.bytes());
    accumulate(scale, std::move(gs));
    return gx;
  });
  return y;
}

Tensor Tape::embed(std::uint64_t rows, std::uint64_t columns, Parameter& table, bool sparse) {
  Tensor y = make(rows * columns, table.data.width);
  program_.run(2 * y.bytes());
  push([this, rows, columns, sparse, &table](Tensor gradient) {
    if (!table.trained) return gradient;
    // Indices are sorted before rows are added up.
    const StoragePtr sorted = program_.allocate(rows * 8);
    const StoragePtr original = program_.allocate(rows * 8);
    scratch(rows * 16 + 4096);
    Tensor gt = make(sparse ? rows * columns : table.elements, table.data.width);
    program_.run(gradient.bytes() + gt.bytes());
    accumulate(table, std::move(gt));
    return gradient;
  });
  return y;
}

Tensor Tape::loss(const Tensor& logits, std::uint64_t rows) {
  const Tensor wide = cast(logits, 4);
  const Tensor log_softmax = make(wide.elements, 4);
  program_.run(2 * wide.bytes());
  const Tensor total = make(1, 4);
  Tensor value = make(1, 4);
  program_.run(rows * 8);
  push([this, log_softmax, total](const Tensor&) {
    const Tensor picked = make(log_softmax.elements, 4);
    program_.run(picked.bytes());
    Tensor gradient = make(log_softmax.elements, 4);
    program_.run(3 * gradient.bytes());
    return gradient;
  });
  return value;
}

Tensor Tape::attention(const Tensor& q, const Tensor& k, const Tensor& v,
                       const AttentionShape& shape) {
  const std::uint64_t rows = shape.batch * shape.heads * shape.tokens;
  const std::uint64_t scores = rows * shape.keys;
  const std::uint64_t operations = 4 * scores * shape.head_size;
  Tensor kept;  // of scores: probabilities, or one number for each row
  if (shape.flash) {
    kept = make(rows, 4);
  } else {
    const Tensor raw = make(scores, q.width);
    program_.run(raw.bytes(), operations / 2);
    kept = make(scores, precision_ == Precision::kMixed ? 4 : q.width);
    program_.run(raw.bytes() + kept.bytes());
  }
  Tensor y = make(q.elements, q.width);
  program_.run(q.bytes() + k.bytes() + v.bytes() + y.bytes(), operations);
  push([this, q, k, v, y, kept, scores, operations, flash = shape.flash](const Tensor& gradient) {
    Tensor product;
    if (flash) {
      product = make(q.elements, 4);  // gradients of queries are summed in 4 bytes
    } else {
      const Tensor gp = make(scores, q.width);
      program_.run(gp.bytes(), operations / 2);
      product = make(scores, q.width);
      program_.run(3 * gp.bytes());
    }
    const Tensor gq = make(q.elements, gradient.width);
    const Tensor gk = make(k.elements, gradient.width);
    const Tensor gv = make(v.elements, gradient.width);
    program_.run(2 * (q.bytes() + k.bytes() + v.bytes()), 2 * operations);
    product = {};
    Tensor packed = make(q.elements + k.elements + v.elements, gradient.width);
    program_.run(2 * packed.bytes());
    return packed;
  });
  return y;
}

// ------------------------------------------------------------------------------------------------
// Structure

Tensor Tape::residual(const Tensor& x, const Function& f) {
  push([this](Tensor gradient) {
    const Tensor skip = std::move(skips_.back());
    skips_.pop_back();
    return add(gradient, skip);
  });
  const Tensor y = f(x);
  Tensor sum = add(y, x);
  push([this](Tensor gradient) {
    skips_.push_back(gradient);
    return gradient;
  });
  return sum;
}

Tensor Tape::checkpoint(const Tensor& x, const Function& f) {
  if (!recording_) return f(x);
  recording_ = false;
  Tensor y = f(x);
  recording_ = true;
  push([this, x, f](const Tensor& gradient) {
    std::vector<Node> outer;
    outer.swap(nodes_);
    f(x);
    Tensor gx = run_nodes(gradient);
    outer.swap(nodes_);
    return gx;
  });
  return y;
}

Tensor Tape::branches(const Tensor& x, const std::vector<Function>& ways, std::uint64_t elements) {
  std::vector<std::vector<Node>> nodes(ways.size());
  std::vector<Tensor> results;
  for (std::size_t i = 0; i < ways.size(); ++i)
    nodes[i] = record([&] { results.push_back(ways[i](x)); });
  Tensor joined = make(elements, results.empty() ? x.width : results.front().width);
  program_.run(2 * joined.bytes());
  std::vector<std::uint64_t> parts;
  for (const Tensor& result : results) parts.push_back(result.elements);
  push([this, nodes = std::move(nodes), parts, whole = x.elements](
           const Tensor& gradient) mutable {
    Tensor sum;
    for (std::size_t i = nodes.size(); i-- > 0;) {
      std::vector<Node> outer = std::exchange(nodes_, std::move(nodes[i]));
      Tensor gx = make(parts[i], gradient.width);
      program_.run(2 * gx.bytes());
      gx = run_nodes(std::move(gx));
      nodes_ = std::move(outer);
      if (sum.storage == nullptr) sum = make(whole, gradient.width);
      program_.run(2 * gx.bytes());  // added to its rows
    }
    return sum;
  });
  free_in_order(results);
  return joined;
}

// Shards: a parameter's gradient is whole until the layer is over, then the others get theirs.
Tensor Tape::gathered(const Tensor& x, const std::vector<Parameter*>& layer, std::uint32_t stream,
                      const Function& f) {
  std::uint64_t bytes = 0;
  for (const Parameter* parameter : layer) bytes += parameter->elements * parameter_width();
  const auto gather = [this, stream, bytes] {
    const OnStream scope(program_, stream);
    StoragePtr whole = program_.allocate(bytes);
    program_.run(bytes);
    if (whole != nullptr) whole->record_use(0);
    return whole;
  };
  push([this, layer, stream, bytes](Tensor gradient) {
    gathered_.pop_back();
    const StoragePtr flat = program_.allocate(bytes);
    program_.run(2 * bytes);
    flat->record_use(stream);
    for (Parameter* parameter : layer) {
      if (parameter->gradient.storage == nullptr) continue;
      const OnStream scope(program_, stream);
      parameter->gradient = make(parameter->data.elements, parameter_width());
      parameter->gradient.storage->record_use(0);
    }
    return gradient;
  });
  StoragePtr whole = gather();
  Tensor y = f(x);
  whole = nullptr;
  push([this, gather](Tensor gradient) {
    gathered_.push_back(gather());
    return gradient;
  });
  return y;
}

}  // namespace tenon::synthesis
