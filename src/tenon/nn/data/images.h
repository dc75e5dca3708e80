// Labelled images, in batches. Thread-safe while no thread writes the tensors. Filling a batch is
// O(pixels of the batch). Making memory for one throws OutOfMemory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tenon/tensor/tensor.h"

namespace tenon::nn {

// Labelled images as IDX files have them.
struct ImageSet {
  Tensor images;  // u8 [count, height, width]
  Tensor labels;  // u8 [count]
  // How many there are.
  std::int64_t count() const { return images.size(0); }
};

// A data set: what to train on and what to test on.
struct ImageData {
  ImageSet train, test;
  std::int64_t classes = 0;  // 1 + the largest label
};

// The four files of MNIST and its relatives in a folder: train-images-idx3-ubyte,
// train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte, each as it is or with
// ".gz". Throws ParseError, with the path, where one is missing or damaged, where counts or shapes
// do not fit, or where there is nothing in it.
ImageData load_images(const std::string& folder);

// A batch as models take it. Its memory is made once and filled over and over.
struct ImageBatch {
  Tensor images;  // f32 [n, 1, height, width]: pixel / 255, mean and deviation taken out
  Tensor labels;  // i64 [n]
};

// Mean and deviation of all pixels / 255.
struct PixelStatistics {
  double mean = 0;
  double deviation = 1;
};
// Of a set. O(pixels).
PixelStatistics pixel_statistics(const ImageSet& set);

// Room for batches of up to `size` images.
ImageBatch make_image_batch(const ImageSet& set, std::int64_t size);
// Copies the images with these numbers into the first places of a batch's memory and returns that
// part of it. Requires: numbers in range, not more than there is room for.
ImageBatch fill_image_batch(const ImageSet& set, const PixelStatistics& statistics,
                            const std::vector<std::int64_t>& numbers, const ImageBatch& room);

}  // namespace tenon::nn
