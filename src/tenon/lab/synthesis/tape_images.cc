// Operators on images.
#include <algorithm>

#include "tenon/lab/synthesis/tape.h"

namespace tenon::synthesis {
namespace {

// What cuDNN may take for a convolution on top of its tensors.
constexpr std::uint64_t kMostWorkspace = std::uint64_t{256} << 20;

std::uint64_t workspace_bytes(const Image& x, std::uint64_t kernel, std::uint64_t weight_bytes) {
  if (kernel == 1) return 0;
  // Transformed filters, and a tile of the input for each.
  return std::min(kMostWorkspace, 4 * weight_bytes + x.tensor.bytes() / x.n);
}

}  // namespace

Image Tape::conv(const Image& image, std::uint64_t out_channels, std::uint64_t kernel,
                 std::uint64_t stride, Parameter& weight) {
  Image x = image;
  x.tensor = cast(image.tensor, compute_width());
  const Tensor w = weight_of(weight);
  Image y = x;
  y.channels = out_channels;
  y.height = (x.height + stride - 1) / stride;
  y.width = (x.width + stride - 1) / stride;
  y.tensor = make(y.n * y.channels * y.height * y.width, compute_width());
  const std::uint64_t operations = 2 * y.tensor.elements * x.channels * kernel * kernel;
  const std::uint64_t workspace = workspace_bytes(x, kernel, w.bytes());
  {
    const StoragePtr held = program_.allocate(workspace);
    program_.run(x.tensor.bytes() + y.tensor.bytes() + w.bytes(), operations);
  }
  push([this, x = x.tensor, w, operations, workspace, &weight](const Tensor& gradient) {
    Tensor gx = make(x.elements, compute_width());
    {
      const StoragePtr held = program_.allocate(workspace);
      program_.run(gradient.bytes() + gx.bytes(), operations);
    }
    if (!weight.trained) return gx;
    Tensor gw = make(weight.elements, compute_width());
    {
      const StoragePtr held = program_.allocate(workspace + workspace / 2);
      program_.run(gradient.bytes() + x.bytes(), operations);
    }
    accumulate(weight, std::move(gw));
    return gx;
  });
  return y;
}

Image Tape::batch_norm(const Image& x, Parameter& scale) {
  Image y = x;
  y.tensor = make(x.tensor.elements, x.tensor.width);
  const StoragePtr mean = program_.allocate(x.channels * 4);
  const StoragePtr deviation = program_.allocate(x.channels * 4);
  program_.run(2 * x.tensor.bytes());
  push([this, x = x.tensor, mean, deviation, &scale](const Tensor&) {
    Tensor gx = make(x.elements, x.width);
    Tensor gs = make(scale.elements, parameter_width());
    program_.run(3 * gx.bytes());
    accumulate(scale, std::move(gs));
    return gx;
  });
  return y;
}

Image Tape::pointwise(const Image& x, bool in_place) {
  Image y = x;
  if (!in_place) {
    y.tensor = pointwise(x.tensor);
    return y;
  }
  program_.run(2 * x.tensor.bytes());
  push([this, x = x.tensor](const Tensor& gradient) {
    Tensor gx = make(x.elements, gradient.width);
    program_.run(3 * gx.bytes());
    return gx;
  });
  return y;
}

Image Tape::halve(const Image& x) {
  Image y = x;
  y.height = (x.height + 1) / 2;
  y.width = (x.width + 1) / 2;
  y.tensor = make(y.n * y.channels * y.height * y.width, x.tensor.width);
  const StoragePtr indices = program_.allocate(y.tensor.elements * 8);
  program_.run(x.tensor.bytes() + y.tensor.bytes());
  push([this, x = x.tensor, indices](const Tensor& gradient) {
    Tensor gx = make(x.elements, gradient.width);
    program_.run(gx.bytes() + gradient.bytes());
    return gx;
  });
  return y;
}

Image Tape::twice(const Image& x) {
  Image y = x;
  y.height = 2 * x.height;
  y.width = 2 * x.width;
  y.tensor = make(4 * x.tensor.elements, x.tensor.width);
  program_.run(x.tensor.bytes() + y.tensor.bytes());
  push([this, elements = x.tensor.elements](const Tensor& gradient) {
    Tensor gx = make(elements, gradient.width);
    program_.run(gx.bytes() + gradient.bytes());
    return gx;
  });
  return y;
}

// Backward of a join gives each part its own gradient; that of the earlier one waits for it.
Image Tape::join(const Image& x, const Image& from) {
  Image y = x;
  y.channels = x.channels + from.channels;
  y.tensor = make(x.tensor.elements + from.tensor.elements, x.tensor.width);
  program_.run(2 * y.tensor.bytes());
  push([this, now = x.tensor.elements, earlier = from.tensor.elements](const Tensor& gradient) {
    Tensor gx = make(now, gradient.width);
    program_.run(2 * gx.bytes());
    skips_.push_back(make(earlier, gradient.width));
    program_.run(2 * skips_.back().bytes());
    return gx;
  });
  return y;
}

void Tape::mark_skip() {
  push([this](const Tensor& gradient) {
    const Tensor skip = std::move(skips_.back());
    skips_.pop_back();
    return add(gradient, skip);
  });
}

}  // namespace tenon::synthesis
