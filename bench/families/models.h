// Models of families that nothing here was tuned on, each written once for two libraries.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tenon::bench {

// The loss of one batch. L is a library: its tensors (L::T), operators by their usual names, and
// parameters, which it makes in the order of the calls and hands out again at the next step.
template <typename L>
struct Families {
  using T = typename L::T;

  L& l;

  T block(const T& x, std::int64_t out, std::int64_t stride) {
    T h = l.relu(l.batch_norm(l.conv(x, out, 3, stride)));
    h = l.batch_norm(l.conv(h, out, 3, 1));
    const bool changes = stride != 1 || l.channels(x) != out;
    return l.relu(l.add(h, changes ? l.batch_norm(l.conv(x, out, 1, stride)) : x));
  }
  // He et al. 2015, as for small images.
  T resnet(T x) {
    x = l.relu(l.batch_norm(l.conv(x, 32, 3, 1)));
    for (const std::int64_t width : {32, 64, 128})
      for (int i = 0; i < 2; ++i) x = block(x, width, i == 0 && width > 32 ? 2 : 1);
    return l.linear(l.mean_of_plane(x), 10);
  }

  T inverted(const T& x, std::int64_t out, std::int64_t stride) {
    const std::int64_t in = l.channels(x);
    T h = l.relu6(l.batch_norm(l.conv(x, 6 * in, 1, 1)));
    h = l.relu6(l.batch_norm(l.conv(h, 6 * in, 3, stride, 6 * in)));
    h = l.batch_norm(l.conv(h, out, 1, 1));
    return stride == 1 && in == out ? l.add(x, h) : h;
  }
  // Sandler et al. 2018 (MobileNetV2).
  T mobilenet(T x) {
    x = l.relu6(l.batch_norm(l.conv(x, 16, 3, 1)));
    for (const std::int64_t width : {24, 32, 64})
      for (int i = 0; i < 2; ++i) x = inverted(x, width, i == 0 ? 2 : 1);
    return l.linear(l.mean_of_plane(x), 10);
  }

  T twice(T x, std::int64_t out) {
    for (int i = 0; i < 2; ++i) x = l.relu(l.batch_norm(l.conv(x, out, 3, 1)));
    return x;
  }
  // Ronneberger et al. 2015: a value for each place.
  T unet(T x) {
    std::vector<T> skips;
    for (const std::int64_t width : {16, 32, 64}) {
      skips.push_back(twice(x, width));
      x = l.max_pool(skips.back());
    }
    x = twice(x, 128);
    for (const std::int64_t width : {64, 32, 16}) {
      x = twice(l.cat(skips.back(), l.up(x, width)), width);
      skips.pop_back();
    }
    return l.conv(x, 3, 1, 1);
  }

  // Dosovitskiy et al. 2020: patches of 4 x 4.
  T vit(T x) {
    constexpr std::int64_t kWidth = 192;
    x = l.rows_of_places(l.conv(x, kWidth, 4, 4));
    x = l.add(x, l.parameter({l.rows(x), kWidth}));
    for (int i = 0; i < 4; ++i) {
      x = l.add(x, l.linear(l.attention(l.linear(l.layer_norm(x), 3 * kWidth), 3), kWidth));
      x = l.add(x, l.linear(l.gelu(l.linear(l.layer_norm(x), 4 * kWidth)), kWidth));
    }
    return l.linear(l.mean_of_rows(l.layer_norm(x)), 10);
  }

  // Hochreiter and Schmidhuber 1997, step by step over [N, steps, features].
  T lstm(const T& x) {
    constexpr std::int64_t kWidth = 256;
    const T of_inputs = l.parameter({4 * kWidth, l.last(x)});
    const T of_state = l.parameter({4 * kWidth, kWidth});
    T h, c;
    for (std::int64_t step = 0; step < l.rows(x); ++step) {
      T gates = l.matmul_t(l.row(x, step), of_inputs);
      if (step > 0) gates = l.add(gates, l.matmul_t(h, of_state));
      const std::vector<T> parts = l.chunk(gates, 4);
      const T fresh = l.mul(l.sigmoid(parts[0]), l.tanh(parts[2]));
      c = step > 0 ? l.add(l.mul(l.sigmoid(parts[1]), c), fresh) : fresh;
      h = l.mul(l.sigmoid(parts[3]), l.tanh(c));
    }
    return l.linear(h, 10);
  }

  T autoencoder(const T& x) {
    T h = l.flat(x);
    for (const std::int64_t width : {1024, 256, 32, 256, 1024}) h = l.relu(l.linear(h, width));
    return l.sigmoid(l.linear(h, l.last(l.flat(x))));
  }

  T deep_mlp(const T& x) {
    T h = l.flat(x);
    for (int i = 0; i < 8; ++i) h = l.gelu(l.linear(h, 512));
    return l.linear(h, 10);
  }

  T loss(const std::string& name, const T& x, const T& y) {
    if (name == "autoencoder") return l.squared_error(autoencoder(x), l.flat(x));
    if (name == "unet") return l.squared_error(unet(x), x);
    const T out = name == "resnet"      ? resnet(x)
                  : name == "mobilenet" ? mobilenet(x)
                  : name == "vit"       ? vit(x)
                  : name == "lstm"      ? lstm(x)
                                        : deep_mlp(x);
    return l.cross_entropy(out, y);
  }
};

}  // namespace tenon::bench
