#include "tenon/nn/data/images.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include "tenon/base/error.h"
#include "tenon/nn/data/idx.h"
#include "tenon/tensor/factories.h"

namespace tenon::nn {
namespace {

std::string find_file(const std::string& folder, const std::string& name) {
  const std::filesystem::path plain = std::filesystem::path(folder) / name;
  const std::filesystem::path packed = plain.string() + ".gz";
  std::error_code ignored;
  if (std::filesystem::exists(plain, ignored)) return plain.string();
  if (std::filesystem::exists(packed, ignored)) return packed.string();
  throw ParseError(plain.string(), 0, 0,
                   "there is no such file, nor one with .gz; name the folder that has it, or "
                   "install Debian's package dataset-fashion-mnist");
}

ImageSet load_set(const std::string& folder, const std::string& which) {
  const std::string image_file = find_file(folder, which + "-images-idx3-ubyte");
  const std::string label_file = find_file(folder, which + "-labels-idx1-ubyte");
  ImageSet set{load_idx(image_file), load_idx(label_file)};
  const auto describe = [](const Tensor& t) {
    return fmt::format("{} {}", dtype_name(t.dtype()), to_string(t.sizes()));
  };
  if (set.images.dim() != 3 || set.images.dtype() != DType::kU8)
    throw ParseError(
        image_file, 0, 0,
        fmt::format("it has {}; images are uint8 [count, height, width]", describe(set.images)));
  if (set.images.numel() == 0) throw ParseError(image_file, 0, 0, "there are no images in it");
  if (set.labels.dtype() != DType::kU8 || !(set.labels.sizes() == IntList{set.count()}))
    throw ParseError(label_file, 0, 0,
                     fmt::format("it has {}; labels for the images are uint8 [{}]",
                                 describe(set.labels), set.count()));
  return set;
}

std::int64_t largest_label(const ImageSet& set) {
  const auto* labels = set.labels.const_data_ptr<std::uint8_t>();
  return *std::max_element(labels, labels + set.count());
}

}  // namespace

ImageData load_images(const std::string& folder) {
  ImageData data{load_set(folder, "train"), load_set(folder, "t10k"), 0};
  if (!(data.train.images.sizes().size() == 3 &&
        data.train.images.size(1) == data.test.images.size(1) &&
        data.train.images.size(2) == data.test.images.size(2)))
    throw ParseError(
        folder, 0, 0,
        fmt::format("the images for training are {}, those for testing {}",
                    to_string(data.train.images.sizes()), to_string(data.test.images.sizes())));
  data.classes = 1 + largest_label(data.train);
  if (largest_label(data.test) >= data.classes)
    throw ParseError(folder, 0, 0,
                     fmt::format("a label of {} for testing; training knows 0 to {}",
                                 largest_label(data.test), data.classes - 1));
  return data;
}

PixelStatistics pixel_statistics(const ImageSet& set) {
  std::array<std::uint64_t, 256> histogram{};
  const auto* pixels = set.images.const_data_ptr<std::uint8_t>();
  for (std::int64_t i = 0; i < set.images.numel(); ++i) ++histogram[pixels[i]];
  const auto count = static_cast<double>(set.images.numel());
  double sum = 0;
  double squares = 0;
  for (std::size_t value = 0; value < histogram.size(); ++value) {
    const double x = static_cast<double>(value) / 255;
    sum += x * static_cast<double>(histogram[value]);
    squares += x * x * static_cast<double>(histogram[value]);
  }
  const double mean = sum / count;
  const double variance = squares / count - mean * mean;
  return {mean, variance > 1e-12 ? std::sqrt(variance) : 1};
}

ImageBatch make_image_batch(const ImageSet& set, std::int64_t size) {
  return {empty({size, 1, set.images.size(1), set.images.size(2)}), empty({size}, DType::kI64)};
}

ImageBatch fill_image_batch(const ImageSet& set, const PixelStatistics& statistics,
                            const std::vector<std::int64_t>& numbers, const ImageBatch& room) {
  std::array<float, 256> value_of;
  for (std::size_t i = 0; i < value_of.size(); ++i)
    value_of[i] =
        static_cast<float>((static_cast<double>(i) / 255 - statistics.mean) / statistics.deviation);
  const std::int64_t pixels = set.images.size(1) * set.images.size(2);
  const auto* from = set.images.const_data_ptr<std::uint8_t>();
  const auto* labels = set.labels.const_data_ptr<std::uint8_t>();
  auto* to = room.images.data_ptr<float>();
  auto* to_label = room.labels.data_ptr<std::int64_t>();
  for (const std::int64_t number : numbers) {
    const std::uint8_t* image = from + number * pixels;
    for (std::int64_t i = 0; i < pixels; ++i) *to++ = value_of[image[i]];
    *to_label++ = labels[number];
  }
  const auto count = static_cast<std::int64_t>(numbers.size());
  return {room.images.narrow(0, 0, count), room.labels.narrow(0, 0, count)};
}

}  // namespace tenon::nn
