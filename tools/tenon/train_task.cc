// What tasks share, and the images.
#include "train_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "tenon/autograd/autograd.h"
#include "tenon/base/check.h"
#include "tenon/base/error.h"
#include "tenon/nn/data/order.h"
#include "tenon/nn/data/prefetcher.h"
#include "tenon/nn/loss.h"
#include "tenon/tensor/copy.h"

namespace tenon::command {

Score score_of(const Tensor& logits, const Tensor& classes) {
  const Tensor dense = contiguous(to_host(logits.detach()));
  const Tensor wanted = contiguous(to_host(classes));
  const auto* row = dense.const_data_ptr<float>();
  const auto* target = wanted.const_data_ptr<std::int64_t>();
  const std::int64_t width = dense.size(-1);
  Score score;
  for (std::int64_t i = 0; i < wanted.numel(); ++i, row += width)
    score.correct += std::max_element(row, row + width) - row == target[i] ? 1u : 0u;
  score.counted = static_cast<std::uint64_t>(wanted.numel());
  return score;
}

SliceRows::SliceRows(Slice slice, std::int64_t batch) {
  const auto count = static_cast<std::int64_t>(slice.count);
  const auto number = static_cast<std::int64_t>(slice.number);
  first = batch * number / count;
  counted = batch * (number + 1) / count - first;
  rows = std::max<std::int64_t>(counted, 1);
  first = std::min(first, batch - rows);
  share = static_cast<double>(counted) / static_cast<double>(batch);
}

std::int64_t OwnRows::most(std::int64_t batch) const {
  std::int64_t rows = 0;
  for (const Slice& slice : slices_) {
    const auto count = static_cast<std::int64_t>(slice.count);
    rows += (batch + count - 1) / count;
  }
  return rows;
}

std::vector<std::int64_t> OwnRows::of(std::int64_t batch) const {
  std::vector<std::int64_t> numbers;
  for (const Slice& slice : slices_) {
    const SliceRows rows(slice, batch);
    for (std::int64_t i = 0; i < rows.rows; ++i) numbers.push_back(rows.first + i);
  }
  return numbers;
}

SliceRows OwnRows::of(Slice slice, std::int64_t batch) const {
  std::int64_t before = 0;
  for (const Slice& own : slices_) {
    SliceRows rows(own, batch);
    if (own.number != slice.number) {
      before += rows.rows;
      continue;
    }
    rows.first = before;
    return rows;
  }
  TENON_CHECK(false, "slice {} is of another rank", slice.number);
  return {slice, batch};
}

BatchResult TrainTask::run(Slice slice) {
  const ExampleBatch of = batch(slice);
  const Tensor logits = logits_of(to(of.input, device_));
  BatchResult result{ops::cross_entropy(logits, to(of.targets, device_)),
                     score_of(logits, of.targets), static_cast<std::uint64_t>(of.rows.counted),
                     of.rows.share};
  if (of.rows.counted == 0) result.score = {};
  return result;
}

namespace {

class ImageTask final : public TrainTask {
 public:
  explicit ImageTask(const ImageTaskOptions& options)
      : TrainTask(options.device),
        options_(options),
        data_(nn::load_images(options.folder)),
        statistics_(nn::pixel_statistics(data_.train)),
        order_(data_.train.count(), options.batch, options.seed) {
    if (options.model != "cnn" && options.model != "mlp")
      throw InvalidArgument(fmt::format("--model {}: the models are mlp and cnn", options.model));
  }

  std::string title() const override {
    return fmt::format("{} on {} images of {} x {} in {} classes", options_.model,
                       data_.train.count(), data_.train.images.size(1), data_.train.images.size(2),
                       data_.classes);
  }
  std::uint64_t steps_per_epoch() const override { return order_.batches_per_epoch(); }
  double learning_rate() const override { return 2e-3; }

  std::shared_ptr<nn::Module> build(Generator& generator) override {
    const nn::ImageShape shape{data_.train.images.size(1), data_.train.images.size(2),
                               data_.classes};
    model_ =
        options_.model == "cnn" ? nn::make_cnn(shape, generator) : nn::make_mlp(shape, generator);
    return model_;
  }
  void use_checkpoints() override {
    model_->set_checkpoints(
        static_cast<std::int64_t>(std::lround(std::sqrt(static_cast<double>(model_->size())))));
  }

  void compute_in(DType dtype) override { compute_ = dtype; }

  void make_room(const OwnRows& rows) override {
    rows_ = rows;
    for (int i = 0; i < kSlots; ++i)
      rooms_.push_back({nn::make_image_batch(data_.train, rows.most(options_.batch))});
    test_room_ = nn::make_image_batch(data_.test, options_.batch);
  }
  void start(std::uint64_t first, std::uint64_t end) override {
    prefetcher_ = std::make_unique<nn::Prefetcher<Batch>>(
        rooms_, first, end, [this](std::uint64_t number, Batch& room) {
          const std::vector<std::int64_t> all = order_.examples_of(number);
          std::vector<std::int64_t> own = rows_.of(static_cast<std::int64_t>(all.size()));
          for (std::int64_t& row : own) row = all[static_cast<std::size_t>(row)];
          return Batch{nn::fill_image_batch(data_.train, statistics_, own, room.own),
                       static_cast<std::int64_t>(all.size())};
        });
  }
  void next() override { batch_ = prefetcher_->next(); }
  ExampleBatch batch(Slice slice) const override {
    const SliceRows of = rows_.of(slice, batch_->examples);
    return {batch_->own.images.narrow(0, of.first, of.rows),
            batch_->own.labels.narrow(0, of.first, of.rows), of};
  }
  Tensor logits_of(const Tensor& images) override {
    return to((*model_)(to(images, compute_)), DType::kF32);
  }

  std::uint64_t test_batches() const override {
    return static_cast<std::uint64_t>((data_.test.count() + options_.batch - 1) / options_.batch);
  }
  Score test(std::uint64_t number) override {
    const auto begin = static_cast<std::int64_t>(number) * options_.batch;
    std::vector<std::int64_t> numbers(
        static_cast<std::size_t>(std::min(options_.batch, data_.test.count() - begin)));
    std::iota(numbers.begin(), numbers.end(), begin);
    const nn::ImageBatch batch = nn::fill_image_batch(data_.test, statistics_, numbers, test_room_);
    const Tensor logits = logits_of(to(batch.images, device_));
    const Tensor labels = to(batch.labels, device_);
    Score score = score_of(logits, labels);
    score.loss_sum = ops::cross_entropy(logits, labels, ops::Reduction::kSum).item<double>();
    return score;
  }

  std::uint64_t data_hash() const override {
    return nn::state_hash(std::vector<nn::NamedTensor>{{"images", data_.train.images},
                                                       {"labels", data_.train.labels},
                                                       {"test", data_.test.images}});
  }
  nn::Metadata metadata() const override { return {{"task", "images"}, {"model", options_.model}}; }
  void finish() override {
    prefetcher_.reset();
    batch_ = nullptr;
    rooms_.clear();
    test_room_ = {};
    model_.reset();
  }

 private:
  static constexpr int kSlots = 3;

  struct Batch {
    nn::ImageBatch own;         // rows_ of it
    std::int64_t examples = 0;  // in the whole batch
  };

  const ImageTaskOptions options_;
  DType compute_ = DType::kF32;
  const nn::ImageData data_;
  const nn::PixelStatistics statistics_;
  nn::BatchOrder order_;
  std::shared_ptr<nn::Sequential> model_;
  OwnRows rows_;
  std::vector<Batch> rooms_;
  nn::ImageBatch test_room_;
  std::unique_ptr<nn::Prefetcher<Batch>> prefetcher_;
  const Batch* batch_ = nullptr;
};

}  // namespace

std::unique_ptr<TrainTask> make_image_task(const ImageTaskOptions& options) {
  return std::make_unique<ImageTask>(options);
}

}  // namespace tenon::command
