#include "tenon/lab/cost_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "support/temporary.h"
#include "tenon/base/error.h"

namespace tenon {
namespace {

constexpr char kShipped[] = TENON_SOURCE_DIR "/data/driver_costs.json";

std::string shipped_text() {
  std::ifstream file(kShipped);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Reads the shipped model with one piece of its text replaced; returns what the error says.
std::string error_after(const std::string& from, const std::string& to) {
  std::string text = shipped_text();
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  const testing::TemporaryFile file(".json", text);
  std::string error;
  try {
    read_cost_model(file.path());
  } catch (const ParseError& e) {
    EXPECT_EQ(e.name(), file.path());
    error = e.reason();
  }
  return error;
}

TEST(CostModel, IsLinearBetweenPointsFlatBelowAndKeepsItsLastSlope) {
  const CostCurve curve = {{100, 1.0}, {200, 3.0}, {400, 4.0}};
  EXPECT_EQ(CostModel::cost_ns(curve, 0), 1000u);
  EXPECT_EQ(CostModel::cost_ns(curve, 100), 1000u);
  EXPECT_EQ(CostModel::cost_ns(curve, 150), 2000u);
  EXPECT_EQ(CostModel::cost_ns(curve, 200), 3000u);
  EXPECT_EQ(CostModel::cost_ns(curve, 300), 3500u);
  EXPECT_EQ(CostModel::cost_ns(curve, 400), 4000u);
  EXPECT_EQ(CostModel::cost_ns(curve, 1000), 7000u);
  EXPECT_EQ(CostModel::cost_ns({{100, 1.5}}, 1000), 1500u);
  EXPECT_EQ(CostModel::cost_ns({}, 1000), 0u);
}

TEST(CostModel, NeverGoesBelowNothing) {
  EXPECT_EQ(CostModel::cost_ns({{100, 2.0}, {200, 1.0}}, 1000), 0u);
}

TEST(CostModel, NeverGoesBeyondAnHour) {
  EXPECT_EQ(CostModel::cost_ns({{1, 0}, {2, 1e9}}, std::uint64_t{1} << 63), 3'600'000'000'000u);
}

TEST(CostModel, BuiltInFiguresAreTheShippedOnes) {
  const CostModel shipped = read_cost_model(kShipped);
  const CostModel& built_in = h200_costs();
  EXPECT_EQ(shipped.source, built_in.source);
  EXPECT_EQ(shipped.allocate, built_in.allocate);
  EXPECT_EQ(shipped.free, built_in.free);
  EXPECT_EQ(shipped.create, built_in.create);
  EXPECT_EQ(shipped.map, built_in.map);
  EXPECT_EQ(shipped.set_access_per_handle, built_in.set_access_per_handle);
  EXPECT_EQ(shipped.unmap_per_handle, built_in.unmap_per_handle);
  EXPECT_EQ(shipped.release, built_in.release);
  EXPECT_EQ(shipped.reserve_address_us, built_in.reserve_address_us);
  EXPECT_EQ(shipped.event_record_us, built_in.event_record_us);
  EXPECT_EQ(shipped.event_query_us, built_in.event_query_us);
  EXPECT_EQ(shipped.stream_wait_event_us, built_in.stream_wait_event_us);
}

TEST(CostModel, NamesTheKeyAtFault) {
  using ::testing::HasSubstr;
  EXPECT_THAT(error_after("\"map\"", "\"mop\""), HasSubstr("\"map\" is missing"));
  EXPECT_THAT(error_after("\"event_query\"", "\"e\""), HasSubstr("\"event_query\" is missing"));
  EXPECT_THAT(error_after("[2097152, 0.85]", "[2097152]"), HasSubstr("\"map\" holds [2097152]"));
  EXPECT_THAT(error_after("[2097152, 0.85]", "[2097152, \"x\"]"), HasSubstr("\"map\" must be"));
  EXPECT_THAT(error_after("[2097152, 0.85]", "[1073741824, 1]"), HasSubstr("must rise in bytes"));
  EXPECT_THAT(error_after("0.26", "-1"), HasSubstr("\"event_record\" must be microseconds"));
  EXPECT_THAT(error_after("0.26", "4e9"), HasSubstr("\"event_record\" must be microseconds"));
  EXPECT_THAT(error_after("0.26", "1e999"), HasSubstr("a number that is too large"));
  EXPECT_THAT(error_after("[[2097152, 0.85], [1073741824, 0.9]]", "7"),
              HasSubstr("\"map\" must be a list"));
  EXPECT_THAT(error_after("\"map\":", "\"map\""), HasSubstr("not JSON"));
}

TEST(CostModel, SaysThatAFileCannotBeOpened) {
  EXPECT_THROW(read_cost_model("/nowhere/costs.json"), ParseError);
  EXPECT_THROW(read_cost_model(TENON_SOURCE_DIR), ParseError);
}

}  // namespace
}  // namespace tenon
