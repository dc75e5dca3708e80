// Operators, dtypes, shapes and strides beside those of the figures: what else a program asks for.
#pragma once

#include "runner.h"
#include "tenon/ops/operators.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/indexing.h"
#include "tenon/tensor/random.h"

namespace tenon::bench {

inline void breadth_elementwise(Runner& r) {
  const Tensor mask = ops::gt(rand({1024, 1024}), 0.5);
  for (const DType d : {DType::kI32, DType::kF64, DType::kF16, DType::kBF16}) {
    const Tensor x = to(ops::add(ops::mul(rand({1024, 1024}), 90), 1), d), y = contiguous(x.t());
    const Tensor column = y.narrow(1, 0, 1), odd = x.slice(1, 1, 1024, 2);
    const std::string of = fmt::format(" {}", dtype_name(d));
    const auto bytes = static_cast<double>(x.nbytes());
    r.run("mul" + of, 3 * bytes, [&] { return ops::mul(x, y); }, {"mul", {x, y}});
    r.run("remainder" + of, 3 * bytes, [&] { return ops::remainder(x, y); }, {"remainder", {x, y}});
    r.run("clamp" + of, 2 * bytes, [&] { return ops::clamp(x, 1, 50); }, {"clamp", {x}});
    r.run("where" + of, 3 * bytes, [&] { return ops::where(mask, x, y); }, {"where", {mask, x, y}});
    r.run("add column" + of, 2 * bytes, [&] { return ops::add(x, column); }, {"add", {x, column}});
    r.run("add step 2" + of, bytes, [&] { return ops::add(odd, odd); }, {"add", {odd, odd}});
    r.run("flip(0)" + of, 2 * bytes, [&] { return ops::flip(x, {0}); }, {"flip 0", {x}});
    r.run("flip(1)" + of, 2 * bytes, [&] { return ops::flip(x, {1}); }, {"flip 1", {x}});
    r.run("pad" + of, 2 * bytes, [&] { return ops::pad(x, {1, 1, 1, 1}); }, {"pad", {x}});
  }
  const Tensor heads = randn({8, 128, 12, 64}).permute({0, 2, 1, 3});
  r.run("logical_not", 2e6, [&] { return ops::logical_not(mask); }, {"logical_not", {mask}});
  r.run("contiguous heads", 2. * static_cast<double>(heads.nbytes()),
        [&] { return contiguous(heads); }, {"contiguous", {heads}});
}

inline void breadth_reductions(Runner& r) {
  for (const DType d : {DType::kF32, DType::kBF16, DType::kI32}) {
    const Tensor x = to(ops::mul(randn({1024, 1024}), 9), d), cube = x.view({64, 128, 128});
    const Tensor shorts = x.view({-1, 8}), some = x.view({-1, 16});
    const std::string of = fmt::format(" {}", dtype_name(d));
    const auto bytes = static_cast<double>(x.nbytes());
    r.run("sum(1)" + of, bytes, [&] { return ops::sum(x, {1}); }, {"sum_dim 1", {x}});
    r.run("amax(1)" + of, bytes, [&] { return ops::amax(x, {1}); }, {"amax_dim 1", {x}});
    r.run("amax(0)" + of, bytes, [&] { return ops::amax(x, {0}); }, {"amax_dim 0", {x}});
    r.run("sum rows of 8" + of, bytes, [&] { return ops::sum(shorts, {1}); },
          {"sum_dim 1", {shorts}});
    r.run("amax rows of 8" + of, bytes, [&] { return ops::amax(shorts, {1}); },
          {"amax_dim 1", {shorts}});
    r.run("sum(0, 2)" + of, bytes, [&] { return ops::sum(cube, {0, 2}); }, {"sum_02", {cube}});
    r.run("argmax(1)" + of, bytes, [&] { return ops::argmax(x, 1); }, {"argmax_dim 1", {x}});
    r.run("topk(1)" + of, bytes, [&] { return ops::topk(x, 10, 1).first; }, {"topk 1 10", {x}});
    if (!is_floating(d)) continue;
    const Tensor classes = randint(0, 1024, {1024});
    r.run("logsumexp(0)" + of, bytes, [&] { return ops::logsumexp(x, {0}); },
          {"logsumexp_dim 0", {x}});
    r.run("logsumexp(1)" + of, bytes, [&] { return ops::logsumexp(x, {1}); },
          {"logsumexp_dim 1", {x}});
    r.run("softmax rows of 16" + of, 2 * bytes, [&] { return ops::softmax(some, 1); },
          {"softmax 1", {some}});
    r.run("cross_entropy" + of, bytes, [&] { return ops::cross_entropy(x, classes); },
          {"cross_entropy", {x, classes}});
  }
  const Tensor images = randn({8, 64, 56, 56}), ones_64 = ones({64}), zeros_64 = zeros({64});
  const double bytes = 2. * static_cast<double>(images.nbytes());
  r.run("group_norm", bytes, [&] { return ops::group_norm(images, 32, ones_64, zeros_64); },
        {"group_norm 32", {images, ones_64, zeros_64}});
  r.run("batch_norm", bytes,
        [&] { return ops::batch_norm(images, zeros_64, ones_64, ones_64, zeros_64); },
        {"batch_norm 0", {images, zeros_64, ones_64, ones_64, zeros_64}});
  const Tensor rows = randn({16384, 64});
  r.run("layer_norm rows of 64", 8. * static_cast<double>(rows.numel()),
        [&] { return ops::layer_norm(rows, {64}, ones_64, zeros_64); },
        {"layer_norm", {rows, ones_64, zeros_64}});
}

inline void breadth_choices(Runner& r) {
  for (const DType d : {DType::kF32, DType::kF64, DType::kBF16}) {
    const std::string of = fmt::format(" {}", dtype_name(d));
    const Tensor table = to(randn({20000, 256}), d), words = randint(0, 20000, {4096});
    const Tensor line = to(randn({1 << 20}), d), places = randint(0, 1 << 20, {1 << 20});
    const auto bytes = static_cast<double>(line.nbytes());
    r.run("embedding" + of, 2 * bytes, [&] { return ops::embedding(words, table); },
          {"embedding", {table, words}});
    r.run("index rows" + of, 2 * bytes, [&] { return table[{TensorIndex(words)}]; },
          {"index", {table, words}});
    r.run("index_select 1M" + of, 2 * bytes, [&] { return ops::index_select(line, 0, places); },
          {"index_select 0", {line, places}});
  }
}

inline void breadth_products(Runner& r) {
  for (const DType d : {DType::kF32, DType::kF64, DType::kBF16}) {
    const std::string of = fmt::format(" {}", dtype_name(d));
    const Tensor a = to(randn({1024, 1024}), d), v = to(randn({1024}), d);
    r.run("matrix by vector" + of, 2e6, [&] { return ops::matmul(a, v); }, {"matmul", {a, v}});
    r.run("vector by matrix" + of, 2e6, [&] { return ops::matmul(v, a); }, {"matmul", {v, a}});
    const Tensor x = to(randn({10000, 16}), d), w = to(randn({16, 16}), d), b = to(randn({16}), d);
    r.run("linear 10000x16x16" + of, 5e6, [&] { return ops::linear(x, w, b); },
          {"linear", {x, w, b}});
    const Tensor batch = to(randn({512, 16, 16}), d);
    r.run("bmm 512x16x16x16" + of, 4e6, [&] { return ops::bmm(batch, batch); },
          {"matmul", {batch, batch}});
  }
}

inline void breadth_images(Runner& r) {
  struct Layer {
    std::int64_t images, channels, filters, size, kernel, stride, dilation, groups;
  };
  for (const Layer& l :
       {Layer{8, 64, 64, 56, 3, 1, 1, 64}, Layer{8, 128, 128, 28, 3, 1, 1, 32},
        Layer{8, 64, 64, 28, 3, 1, 2, 1}, Layer{8, 32, 64, 28, 5, 1, 1, 1},
        Layer{1, 144, 144, 56, 3, 2, 1, 144}, Layer{1, 512, 512, 14, 3, 1, 1, 1}}) {
    const std::int64_t padding = l.kernel / 2 * l.dilation;
    const Tensor a = randn({l.images, l.channels, l.size, l.size});
    const Tensor w = randn({l.filters, l.channels / l.groups, l.kernel, l.kernel});
    const ops::ConvOptions o{l.stride, padding, l.dilation, l.groups, 0};
    const auto places = static_cast<double>(l.images * l.size * l.size / l.stride / l.stride);
    r.run(fmt::format("conv2d {}x{}x{} {} k{} s{} d{} g{}", l.images, l.channels, l.size, l.filters,
                      l.kernel, l.stride, l.dilation, l.groups),
          2 * places * static_cast<double>(w.numel()), [&] { return ops::conv2d(a, w, {}, o); },
          {fmt::format("conv2d_of {} {} {} {}", l.stride, padding, l.dilation, l.groups), {a, w}});
  }
  const Tensor f = randn({8, 64, 56, 56});
  const auto bytes = static_cast<double>(f.nbytes());
  r.run("max_pool2d 3x3", bytes,
        [&] {
          return ops::max_pool2d(f, {3, 2, 1});
        },
        {"max_pool2d 3 2 1", {f}});
  r.run("avg_pool2d 3x3", bytes,
        [&] {
          return ops::avg_pool2d(f, {3, 1, 1});
        },
        {"avg_pool2d 3 1 1", {f}});
}

// What takes a path of its own: short rows, other layouts, digits, bytes.
inline void breadth_shapes(Runner& r) {
  for (const DType d : {DType::kF32, DType::kF16, DType::kU8}) {
    const Tensor x = to(ops::mul(rand({1 << 17, 5}), 90), d);
    const Tensor column = contiguous(x.narrow(1, 0, 1));
    const std::string of = fmt::format(" {}", dtype_name(d));
    const auto bytes = static_cast<double>(x.nbytes());
    r.run("rows of 5 mul column" + of, 2 * bytes, [&] { return ops::mul(x, column); },
          {"mul", {x, column}});
    const Tensor planes = to(ops::mul(rand({3, 500, 500}), 90), d).permute({1, 2, 0});
    r.run("planes to pixels" + of, 2. * static_cast<double>(planes.nbytes()),
          [&] { return contiguous(planes); }, {"contiguous", {planes}});
    const Tensor rows = to(ops::mul(rand({8000, 127}), 90), d);
    r.run("sum rows of 127" + of, static_cast<double>(rows.nbytes()),
          [&] { return ops::sum(rows, {1}); }, {"sum_dim 1", {rows}});
    r.run("any" + of, static_cast<double>(rows.nbytes()), [&] { return ops::any(rows); },
          {"any", {rows}});
  }
  for (const DType d : {DType::kI32, DType::kF32, DType::kF64}) {
    const Tensor line = to(ops::mul(randn({1 << 19}), 30), d);
    r.run(fmt::format("sort 512k {}", dtype_name(d)), 2. * static_cast<double>(line.nbytes()),
          [&] { return ops::sort(line).first; }, {"sort", {line}});
  }
  const Tensor a = ops::mul(rand({1024, 512}), 90), b = ops::mul(rand({1024, 512}), 90);
  const Tensor half = to(a, DType::kBF16), exponents = to(b, DType::kBF16);
  const Tensor labels = randint(0, 512, {1024, 1}), ones_48 = ones({48}), zeros_48 = zeros({48});
  const Tensor last = rand({8, 28, 28, 48}).permute({0, 3, 1, 2});
  const auto bytes = static_cast<double>(a.nbytes());
  r.run("pow bf16", 1.5 * bytes, [&] { return ops::pow(half, exponents); },
        {"pow", {half, exponents}});
  r.run("bf16 to f64", 2.5 * bytes, [&] { return to(half, DType::kF64); }, {"to_float64", {half}});
  r.run("norm(1)", bytes, [&] { return ops::norm(a, {1}); }, {"norm_dim 1", {a}});
  r.run("huber_loss", 2 * bytes, [&] { return ops::huber_loss(a, b); }, {"huber_loss", {a, b}});
  r.run("gather labels", 1e4, [&] { return ops::gather(a, 1, labels); }, {"gather 1", {a, labels}});
  r.run("batch_norm channels last", 2. * static_cast<double>(last.nbytes()),
        [&] { return ops::batch_norm(last, zeros_48, ones_48, ones_48, zeros_48); },
        {"batch_norm 0", {last, zeros_48, ones_48, ones_48, zeros_48}});
}

inline void breadth(Runner& r) {
  breadth_shapes(r);
  breadth_elementwise(r);
  breadth_reductions(r);
  breadth_choices(r);
  breadth_products(r);
  breadth_images(r);
}

}  // namespace tenon::bench
