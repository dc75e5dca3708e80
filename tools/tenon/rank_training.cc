#include "rank_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "saved_run.h"
#include "tenon/base/hash.h"
#include "tenon/distributed/checkpoint.h"
#include "tenon/memory/tag.h"
#include "tenon/tensor/factories.h"

namespace tenon::command {
namespace {

// A score as numbers that ranks exchange.
constexpr std::size_t kScoreNumbers = 3;
void append(std::vector<double>& row, const Score& score) {
  row.insert(row.end(), {score.loss_sum, static_cast<double>(score.correct),
                         static_cast<double>(score.counted)});
}
Score score_at(const double* row) {
  return {row[0], static_cast<std::uint64_t>(row[1]), static_cast<std::uint64_t>(row[2])};
}

}  // namespace

std::string precision_name(std::optional<DType> compute) {
  if (!compute) return "f32";
  return *compute == DType::kF16 ? "f16" : "bf16";
}

std::optional<DType> precision_of(const std::string& name) {
  if (name == "f32") return std::nullopt;
  return name == "f16" ? DType::kF16 : DType::kBF16;
}

nn::Metadata load_run_metadata(const std::string& path) {
  return distributed::is_checkpoint(path) ? distributed::load_checkpoint_metadata(path)
                                          : nn::load_metadata(path);
}

std::uint64_t count_run_parameters(const std::string& path) {
  return distributed::is_checkpoint(path) ? distributed::count_checkpoint_parameters(path)
                                          : nn::count_saved_parameters(path);
}

RankTraining::RankTraining(const distributed::ShardedModel::Builder& build,
                           const RankSettings& settings, Device device)
    : group_(settings.group),
      slices_(settings.slices),
      slices_here_(settings.slices / static_cast<std::uint64_t>(settings.group->size())),
      model_(std::make_unique<distributed::ShardedModel>(build, settings.group, settings.shard,
                                                         slices_here_, settings.prefetch,
                                                         settings.compute, device)) {}

// The numbers of all ranks, in the order of ranks.
std::vector<double> RankTraining::gather_rows(const std::vector<double>& mine) {
  const TagGuard tag({"communication", nullptr});
  const auto count = static_cast<std::int64_t>(mine.size());
  const Tensor all = empty({group_->size() * count}, DType::kF64);
  group_->all_gather(all, tensor<double>(std::span<const double>(mine), {count}));
  const auto* data = all.const_data_ptr<double>();
  return {data, data + all.numel()};
}

std::vector<Slice> RankTraining::own_slices() const {
  std::vector<Slice> own;
  for (std::uint64_t i = 0; i < slices_here_; ++i)
    own.push_back({model_->slice_number(i), slices_});
  return own;
}

// That this rank has sent, and that the last step leaves to be sent.
std::uint64_t RankTraining::bytes_of_steps() const {
  return group_->bytes_sent() + model_->bytes_to_share();
}

StepNumbers RankTraining::run(const std::function<BatchResult(Slice)>& pass, int stop) {
  constexpr std::size_t kRow = kScoreNumbers + 3;  // and samples, the slice's number, the signal
  sent_before_ = bytes_of_steps();
  waited_before_ = group_->waited_seconds();
  std::vector<double> mine;
  for (std::uint64_t i = 0; i < slices_here_; ++i) {
    const std::uint64_t number = model_->slice_number(i);
    model_->begin_slice(i);
    const BatchResult result = pass({number, slices_});
    model_->end_slice();
    append(mine, result.score);
    mine.insert(mine.end(), {static_cast<double>(result.samples), static_cast<double>(number),
                             static_cast<double>(stop)});
  }
  model_->finish_gradients();
  const std::vector<double> all = gather_rows(mine);
  std::vector<const double*> by_slice(slices_);
  for (std::size_t i = 0; i < all.size(); i += kRow)
    by_slice[static_cast<std::size_t>(all[i + kScoreNumbers + 1]) % slices_] = &all[i];
  StepNumbers numbers;
  stop_signal_ = 0;
  for (const double* row : by_slice) {
    if (row == nullptr) continue;  // in a forecast: a slice of another rank
    numbers.score.add(score_at(row));
    numbers.samples += static_cast<std::uint64_t>(row[kScoreNumbers]);
    stop_signal_ = std::max(stop_signal_, static_cast<int>(row[kScoreNumbers + 2]));
  }
  return numbers;
}

void RankTraining::after_update() {
  model_->after_update();
  sent_bytes_per_step_ = bytes_of_steps() - sent_before_;
  waited_seconds_ += group_->waited_seconds() - waited_before_;
  ++steps_;
}

Score RankTraining::test(std::uint64_t batches,
                         const std::function<Score(std::uint64_t)>& score_of_batch) {
  const auto ranks = static_cast<std::uint64_t>(group_->size());
  Score sum;
  for (std::uint64_t first = 0; first < batches; first += ranks) {
    // A rank without a batch runs one nevertheless: all must gather the layers.
    const std::uint64_t mine = first + static_cast<std::uint64_t>(group_->rank());
    std::vector<double> row;
    append(row, score_of_batch(std::min(mine, batches - 1)));
    const std::vector<double> all = gather_rows(row);
    for (std::uint64_t i = 0; i < std::min(ranks, batches - first); ++i)
      sum.add(score_at(&all[i * kScoreNumbers]));
  }
  return sum;
}

std::uint64_t RankTraining::weights_hash() {
  nn::StateHash hash;
  for (const nn::NamedTensor& part : model()->named_state())
    model_->with_parameter(part, [&](const Tensor& all) { hash.add({part.name, all}); });
  return hash.value();
}

void RankTraining::save(const std::string& folder, std::uint64_t step, nn::Optimizer& optimizer,
                        const nn::Metadata& metadata) {
  distributed::save_checkpoint(folder, fmt::format("step{}", step), *model_, optimizer, *group_,
                               metadata);
}

void RankTraining::load(const std::string& folder, nn::Optimizer& optimizer) {
  distributed::load_checkpoint(folder, *model_, optimizer);
}

RankMemory RankTraining::memory(const StepProfile& profile, std::uint64_t run_peak_bytes,
                                std::uint64_t reserved_peak_bytes) const {
  return {profile.peak_bytes, profile.at_peak, run_peak_bytes, reserved_peak_bytes,
          sent_bytes_per_step_, group_->bytes_sent(),
          waited_seconds_ / static_cast<double>(std::max<std::uint64_t>(steps_, 1))};
}

std::vector<RankMemory> RankTraining::gather(const RankMemory& mine) {
  const nlohmann::json row = {mine.peak_bytes, mine.at_peak, mine.run_peak_bytes,
                              mine.reserved_peak_bytes, mine.sent_bytes_per_step,
                              mine.sent_bytes, mine.waited_seconds_per_step};
  std::vector<RankMemory> all;
  for (const std::string& text : group_->gather_texts(row.dump())) {
    const nlohmann::json other = nlohmann::json::parse(text);
    all.push_back({other[0], other[1].get<decltype(mine.at_peak)>(), other[2], other[3], other[4],
                   other[5], other[6]});
  }
  return all;
}

}  // namespace tenon::command
