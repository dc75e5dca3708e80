#include "tenon/memory/gpu/pytorch_rules.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "tenon/base/align.h"
#include "tenon/base/error.h"

namespace tenon {
namespace {

TEST(CachingSettings, AreTheDefaultsWhenNothingIsSaid) {
  for (const char* text : {"", "  ", ","}) {
    const CachingSettings s = parse_caching_settings(text);
    EXPECT_EQ(s.max_split_size, CachingSettings::kNoLimit);
    EXPECT_EQ(s.large_segment_size, 20 * kMiB);
    EXPECT_EQ(s.garbage_collection_threshold, 0);
    EXPECT_FALSE(s.expandable_segments);
  }
}

TEST(CachingSettings, ReadEveryKey) {
  const CachingSettings s = parse_caching_settings(
      "max_split_size_mb:128, max_non_split_rounding_mb:48,large_segment_size_mb:40,"
      "garbage_collection_threshold:0.8,per_process_memory_fraction:0.5,expandable_segments:True,"
      "backend:native,release_lock_on_cudamalloc:False,pinned_use_cuda_host_register:True,"
      "pinned_num_register_threads:8,pinned_use_background_threads:True,"
      "pinned_reserve_segment_size_mb:0,graph_capture_record_stream_reuse:True,"
      "pinned_free_catch_all:True,pinned_max_round_threshold_mb:64,pinned_max_cached_size_mb:64,"
      "throw_on_cudamalloc_oom:True,expandable_segments_reserve:40G,"
      "expandable_segments_reserve_by_class:[serving:0.25,ads:8G]");
  EXPECT_EQ(s.max_split_size, 128 * kMiB);
  EXPECT_EQ(s.max_non_split_rounding, 48 * kMiB);
  EXPECT_EQ(s.large_segment_size, 40 * kMiB);
  EXPECT_EQ(s.garbage_collection_threshold, 0.8);
  EXPECT_EQ(s.per_process_memory_fraction, 0.5);
  EXPECT_TRUE(s.expandable_segments);
}

TEST(CachingSettings, OversizeRoundingFollowsTheLargeSegment) {
  EXPECT_EQ(parse_caching_settings("").max_non_split_rounding, 20 * kMiB);
  EXPECT_EQ(parse_caching_settings("large_segment_size_mb:12").max_non_split_rounding, 12 * kMiB);
  EXPECT_EQ(parse_caching_settings("max_non_split_rounding_mb:64,large_segment_size_mb:40")
                .max_non_split_rounding,
            64 * kMiB);
  EXPECT_EQ(parse_caching_settings("max_split_size_mb:12,large_segment_size_mb:12").max_split_size,
            12 * kMiB);
}

TEST(CachingSettings, ATwentyMebibyteSplitIsTheLeastThatIsAccepted) {
  EXPECT_EQ(parse_caching_settings("max_split_size_mb:20").max_split_size, 20 * kMiB);
  EXPECT_EQ(parse_caching_settings("max_non_split_rounding_mb:20").max_non_split_rounding,
            20 * kMiB);
}

TEST(CachingSettings, NeverRoundASizeDown) {
  for (int power = 0; power <= 54; ++power) {
    const CachingSettings s =
        parse_caching_settings(fmt::format("roundup_power2_divisions:{}", 1ull << power));
    for (const std::uint64_t size : {std::uint64_t{1}, 513 * kKiB, 3 * kMiB + 1, 5 * kGiB + 7,
                                     2 * kTiB - 1, kMaxRequestBytes})
      EXPECT_GE(s.round_size(size), size) << power;
  }
}

TEST(CachingSettings, RoundToDivisionsOfPowersOfTwo) {
  const CachingSettings four = parse_caching_settings("roundup_power2_divisions:4");
  EXPECT_EQ(four.round_size(1200), 1536u);  // too small for divisions: to 512 bytes
  EXPECT_EQ(four.round_size(1200 * 1024), 1280u * 1024);
  EXPECT_EQ(four.round_size(1024 * 1024), 1024u * 1024);
  EXPECT_EQ(four.round_size(1600 * kMiB), 1792 * kMiB);
}

TEST(CachingSettings, RoundByIntervals) {
  const CachingSettings s =
      parse_caching_settings("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]");
  EXPECT_EQ(s.round_size(100 * kMiB + 1), 100 * kMiB + 512);  // below 256 MiB: one division
  EXPECT_EQ(s.round_size(300 * kMiB + 1), 300 * kMiB + 512);
  EXPECT_EQ(s.round_size(520 * kMiB), 768 * kMiB);            // 512 MiB to 1 GiB in halves
  EXPECT_EQ(s.round_size(1100 * kMiB), 1280 * kMiB);          // in quarters
  EXPECT_EQ(s.round_size(2100 * kMiB), 2304 * kMiB);          // beyond: in eighths
}

TEST(CachingSettings, ChooseSegmentsAsPyTorchDoes) {
  const CachingSettings s;
  EXPECT_EQ(s.segment_size(512), 2 * kMiB);
  EXPECT_EQ(s.segment_size(kMiB), 2 * kMiB);
  EXPECT_EQ(s.segment_size(kMiB + 512), 20 * kMiB);
  EXPECT_EQ(s.segment_size(10 * kMiB - 512), 20 * kMiB);
  EXPECT_EQ(s.segment_size(10 * kMiB), 10 * kMiB);
  EXPECT_EQ(s.segment_size(10 * kMiB + 512), 12 * kMiB);
}

// The text, and what the message must name.
class BadSettings : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(BadSettings, AreRefusedByName) {
  const auto& [text, named] = GetParam();
  try {
    parse_caching_settings(text);
    FAIL() << text << " was accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find(named), std::string::npos) << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, BadSettings,
    ::testing::Values(std::pair{"max_split_size_mb:19", "20 or more"},
                      std::pair{"max_non_split_rounding_mb:19", "20 or more"},
                      std::pair{"max_split_size_mb:-5", "max_split_size_mb"},
                      std::pair{"max_split_size_mb:abc", "abc"},
                      std::pair{"max_split_size_mb:99999999999999999999", "max_split_size_mb"},
                      std::pair{"max_split_size_mb", "max_split_size_mb:VALUE"},
                      std::pair{"garbage_collection_threshold:1.5", "garbage_collection_threshold"},
                      std::pair{"garbage_collection_threshold:0", "garbage_collection_threshold"},
                      std::pair{"expandable_segments:maybe", "True or False"},
                      std::pair{"roundup_power2_divisions:3", "power of two"},
                      std::pair{"roundup_power2_divisions:36028797018963968", "2^54"},
                      std::pair{"roundup_power2_divisions:9223372036854775808", "2^54"},
                      std::pair{"roundup_power2_divisions:[256:36028797018963968]", "2^54"},
                      std::pair{"roundup_power2_divisions:[256:1,>:72057594037927936]", "2^54"},
                      std::pair{"large_segment_size_mb:10", "11 or more"},
                      std::pair{"max_split_size_mb:32,large_segment_size_mb:40", "40 or more"},
                      std::pair{"garbage_collection_threshold:nan", "between 0 and 1"},
                      std::pair{"garbage_collection_threshold:1", "between 0 and 1"},
                      std::pair{"per_process_memory_fraction:0", "up to 1"},
                      std::pair{"roundup_power2_divisions:[256:1,512", "]"},
                      std::pair{"roundup_power2_divisions:[300:1]", "300"},
                      std::pair{"roundup_power2_divisions:[256]", "256"},
                      std::pair{"backend:other", "cudaMallocAsync"},
                      std::pair{"pinned_num_register_threads:3", "power of two"},
                      std::pair{"no_such_key:1", "max_split_size_mb"}));

}  // namespace
}  // namespace tenon
