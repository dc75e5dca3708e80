// Models of images: residual networks, detectors, and the U of diffusion.
#include <algorithm>
#include <array>
#include <vector>

#include "tenon/lab/synthesis/model.h"

namespace tenon::synthesis {
namespace {

struct NetShape {
  std::uint64_t channels;             // of the first stage; doubled at each
  std::array<std::uint64_t, 4> blocks;
  std::uint64_t pixels;               // of a side
};
constexpr std::array<NetShape, 6> kNets = {{
    {16, {1, 1, 1, 1}, 96},
    {32, {2, 2, 2, 2}, 128},
    {64, {2, 2, 2, 2}, 160},
    {64, {3, 4, 6, 3}, 224},
    {96, {3, 4, 6, 3}, 256},
    {128, {3, 4, 23, 3}, 288},
}};

// Convolution, normalisation, activation.
struct Unit {
  Parameter* weight = nullptr;
  Parameter* scale = nullptr;
  std::uint64_t out = 0, kernel = 3, stride = 1;
};

class ImageModel : public Model {
 public:
  ImageModel(Tape& tape, const Recipe& recipe)
      : tape_(tape), recipe_(recipe), net_(kNets[std::min<std::size_t>(recipe.size, 5)]) {}

  Tensor input(std::uint64_t batch, Random& shapes) override {
    images_ = batch;
    height_ = width_ = net_.pixels;
    if (recipe_.varying) {
      height_ = 32 * shapes.between(net_.pixels / 64, net_.pixels / 32);
      width_ = recipe_.kind == Kind::kDetection
                   ? 32 * shapes.between(net_.pixels / 64, net_.pixels / 32) : height_;
    }
    objects_ = shapes.between(8, 120);
    Tensor made = tape_.make(images_ * 3 * height_ * width_, 4);
    tape_.program().run(made.bytes());
    return made;
  }

 protected:
  Unit make_unit(std::uint64_t in, std::uint64_t out, std::uint64_t kernel, std::uint64_t stride) {
    return {&tape_.parameter(in * out * kernel * kernel), &tape_.parameter(2 * out), out, kernel,
            stride};
  }
  Image run_unit(const Image& x, const Unit& unit, bool in_place) {
    Image y = tape_.conv(x, unit.out, unit.kernel, unit.stride, *unit.weight);
    y = tape_.batch_norm(y, *unit.scale);
    return tape_.pointwise(y, in_place);
  }
  Image image(const Tensor& x) const { return {x, images_, 3, height_, width_}; }

  Tape& tape_;
  const Recipe recipe_;
  const NetShape net_;
  std::uint64_t images_ = 1, height_ = 1, width_ = 1;
  std::uint64_t objects_ = 0;  // found in an image
};

// Bottlenecks in four stages; a detector has a pyramid and heads on top.
class ResidualNet final : public ImageModel {
 public:
  ResidualNet(Tape& tape, const Recipe& recipe) : ImageModel(tape, recipe) {
    std::uint64_t channels = net_.channels;
    stem_ = make_unit(3, channels, 7, 2);
    for (std::size_t stage = 0; stage < net_.blocks.size(); ++stage) {
      const std::uint64_t inner = net_.channels << stage;
      for (std::uint64_t i = 0; i < net_.blocks[stage]; ++i) {
        const std::uint64_t stride = stage > 0 && i == 0 ? 2 : 1;
        blocks_.push_back({make_unit(channels, inner, 1, 1), make_unit(inner, inner, 3, stride),
                           make_unit(inner, 4 * inner, 1, 1),
                           make_unit(channels, 4 * inner, 1, stride), i == 0});
        channels = 4 * inner;
      }
    }
    features_ = channels;
    if (recipe.kind == Kind::kDetection) make_heads();
    classifier_ = &tape.parameter(features_ * kClasses);
  }

  Tensor forward(Tensor input) override {
    Image x = image(input);
    input = {};
    x = run_unit(x, stem_, true);
    x = tape_.halve(x);
    for (const Bottleneck& block : blocks_) x = run_block(x, block);
    if (recipe_.kind == Kind::kDetection) return detect(x);
    const Tensor pooled = pool(x);
    return tape_.loss(tape_.linear(pooled, features_, kClasses, *classifier_, nullptr), images_);
  }

 private:
  static constexpr std::uint64_t kClasses = 1'000;
  static constexpr std::uint64_t kRegions = 512;   // looked at in each image
  static constexpr std::uint64_t kPyramid = 256;

  struct Bottleneck {
    Unit first, second, third, shortcut;
    bool has_shortcut;
  };

  void make_heads() {
    lateral_ = make_unit(features_, kPyramid, 1, 1);
    proposals_ = make_unit(kPyramid, kPyramid, 3, 1);
    box_ = &tape_.parameter(kPyramid * 49 * 1'024);
    features_ = 1'024;
  }

  Image run_block(const Image& x, const Bottleneck& block) {
    Image y = x;
    y.tensor = tape_.residual(x.tensor, [&](Tensor) {
      y = run_unit(x, block.first, true);
      y = run_unit(y, block.second, true);
      y = tape_.conv(y, block.third.out, 1, 1, *block.third.weight);
      y = tape_.batch_norm(y, *block.third.scale);
      if (block.has_shortcut) {
        Image s = tape_.conv(x, block.shortcut.out, 1, block.shortcut.stride,
                             *block.shortcut.weight);
        s = tape_.batch_norm(s, *block.shortcut.scale);
      }
      return y.tensor;
    });
    return tape_.pointwise(y, true);
  }

  Tensor pool(const Image& x) {
    Tensor y = tape_.make(x.n * x.channels, x.tensor.width);
    tape_.program().run(x.tensor.bytes());
    return y;
  }

  // Boxes are selected by tensors whose sizes depend on the data.
  Tensor detect(const Image& features) {
    Image p = run_unit(features, lateral_, false);
    p = tape_.twice(p);
    p = run_unit(p, proposals_, false);
    for (std::uint64_t i = 0; i < images_; ++i) suppress(p.height * p.width * 3);
    const std::uint64_t regions = images_ * kRegions;
    const Tensor pooled = tape_.make(regions * kPyramid * 49, tape_.compute_width());
    tape_.program().run(2 * pooled.bytes());
    const Tensor h = tape_.pointwise(tape_.linear(pooled, kPyramid * 49, 1'024, *box_, nullptr));
    const Tensor masks = tape_.make(images_ * objects_ * kPyramid * 14 * 14, 4);
    tape_.program().run(masks.bytes());
    return tape_.loss(tape_.linear(h, 1'024, kClasses, *classifier_, nullptr), regions);
  }

  void suppress(std::uint64_t boxes) {
    const Tensor all = tape_.make(boxes * 4, 4);
    const Tensor order = tape_.make(boxes, 8);
    tape_.program().run(all.bytes());
    const std::uint64_t kept = std::min<std::uint64_t>(boxes, 2'000);
    const Tensor best = tape_.make(kept * 4, 4);
    {
      const Tensor overlaps = tape_.make(kept * ((kept + 63) / 64), 8);
      tape_.program().run(overlaps.bytes());
    }
    const Tensor final_boxes = tape_.make(objects_ * 5, 4);
    tape_.program().run(best.bytes());
  }

  Unit stem_;
  std::vector<Bottleneck> blocks_;
  std::uint64_t features_ = 0;
  Unit lateral_, proposals_;
  Parameter* box_ = nullptr;
  Parameter* classifier_ = nullptr;
};

// Down, attention at the bottom, up again with what the way down kept.
class DiffusionNet final : public ImageModel {
 public:
  DiffusionNet(Tape& tape, const Recipe& recipe) : ImageModel(tape, recipe) {
    const std::uint64_t base = net_.channels;
    stem_ = make_unit(3, base, 3, 1);
    std::uint64_t channels = base;
    for (std::size_t stage = 0; stage < kStages; ++stage) {
      down_.push_back(make_unit(channels, base << stage, 3, 1));
      channels = base << stage;
    }
    qkv_ = &tape.parameter(channels * 3 * channels);
    out_ = &tape.parameter(channels * channels);
    norm_ = &tape.parameter(2 * channels);
    for (std::size_t stage = kStages; stage-- > 0;) {
      up_.push_back(make_unit(channels + (base << stage), base << stage, 3, 1));
      channels = base << stage;
    }
    last_ = make_unit(channels, 3, 3, 1);
    for (Parameter& parameter : tape.parameters())  // their moving average
      averages_.push_back(tape.make(parameter.elements, parameter.data.width));
  }

  Tensor forward(Tensor input) override {
    Image x = run_unit(image(input), stem_, false);
    std::vector<Image> kept;
    for (const Unit& unit : down_) {
      x = run_unit(x, unit, false);
      tape_.mark_skip();
      kept.push_back(x);
      x = tape_.halve(x);
    }
    x.tensor = tape_.residual(x.tensor, [&](Tensor h) { return attend(h, x); });
    for (const Unit& unit : up_) {
      x = tape_.twice(x);
      x.height = kept.back().height;
      x.width = kept.back().width;
      x = tape_.join(x, kept.back());
      kept.pop_back();
      x = run_unit(x, unit, false);
    }
    x = run_unit(x, last_, false);
    return tape_.loss(x.tensor, images_);
  }

 private:
  static constexpr std::size_t kStages = 4;

  Tensor attend(const Tensor& in, const Image& x) {
    const std::uint64_t width = x.channels;
    const std::uint64_t tokens = x.height * x.width;
    Tensor h = tape_.norm(in, x.n * 32, *norm_);
    const Tensor qkv = tape_.linear(h, width, 3 * width, *qkv_, nullptr);
    const Tensor part{qkv.storage, qkv.elements / 3, qkv.width};
    const Tensor y = tape_.attention(part, part, part,
                                     {x.n, 8, tokens, width / 8, tokens, recipe_.flash});
    return tape_.linear(y, width, width, *out_, nullptr);
  }

  Unit stem_, last_;
  std::vector<Unit> down_, up_;
  Parameter *qkv_, *out_, *norm_;
  std::vector<Tensor> averages_;
};

}  // namespace

std::unique_ptr<Model> make_image_model(Tape& tape, const Recipe& recipe) {
  if (recipe.kind == Kind::kDiffusion) return std::make_unique<DiffusionNet>(tape, recipe);
  return std::make_unique<ResidualNet>(tape, recipe);
}

}  // namespace tenon::synthesis
