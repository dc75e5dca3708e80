// The viewer's data: packed numbers, the summary, the page.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <nlohmann/json.hpp>

#include "lab/traces.h"
#include "tenon/base/error.h"
#include "tenon/lab/survey.h"
#include "tenon/lab/view/page.h"
#include "tenon/lab/view/view_data.h"

namespace tenon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::random_trace;
using testing::TraceMaker;
using Json = nlohmann::json;

constexpr const char* kViewer =
    "<title>%TENON_TITLE%</title><script>%TENON_SUMMARY%</script>\n<!--%TENON_COLUMNS%-->\nend";

std::string inflate_raw(const std::string& packed) {
  std::string out;
  z_stream stream{};
  EXPECT_EQ(inflateInit2(&stream, -15), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  int result = Z_OK;
  while (result == Z_OK) {
    char buffer[65536];
    stream.next_out = reinterpret_cast<Bytef*>(buffer);
    stream.avail_out = sizeof buffer;
    result = inflate(&stream, Z_NO_FLUSH);
    out.append(buffer, sizeof buffer - stream.avail_out);
  }
  inflateEnd(&stream);
  EXPECT_EQ(result, Z_STREAM_END);
  return out;
}

// As docs/view.md describes it, and as the viewer does it.
std::vector<std::uint64_t> unpack(const Column& column) {
  const std::size_t width = std::stoul(column.type.substr(1)) / 8;
  std::vector<std::uint64_t> numbers;
  std::uint64_t before = 0;
  for (const std::string& piece : column.pieces) {
    const std::string planes = inflate_raw(piece);
    const std::size_t n = planes.size() / width;
    for (std::size_t i = 0; i < n; ++i) {
      std::uint64_t value = 0;
      for (std::size_t plane = 0; plane < width; ++plane)
        value |= std::uint64_t{static_cast<unsigned char>(planes[plane * n + i])} << (8 * plane);
      if (column.delta) value += before;
      numbers.push_back(before = value);
    }
  }
  return numbers;
}

const Column& column_of(const ViewData& data, const std::string& name) {
  for (const Column& column : data.columns)
    if (column.name == name) return column;
  throw std::out_of_range(name);
}

TEST(ViewColumn, GivesBackWhatWasPacked) {
  Random random(3);
  for (const int bits : {1, 8, 9, 16, 17, 32, 33, 63}) {
    std::vector<std::uint64_t> numbers(bits == 17 ? 600'000 : 1000);
    for (auto& number : numbers) number = random.below(std::uint64_t{1} << bits);
    const auto number = [&](std::uint64_t i) { return numbers[i]; };
    const Column column = pack_numbers("x", numbers.size(), false, number);
    EXPECT_EQ(unpack(column), numbers) << bits;
    EXPECT_EQ(column.pieces.size(), numbers.size() > kPieceNumbers ? 3u : 1u);
    std::sort(numbers.begin(), numbers.end());
    EXPECT_EQ(unpack(pack_numbers("x", numbers.size(), true, number)), numbers) << bits;
  }
  EXPECT_EQ(unpack(pack_numbers("none", 0, true, [](auto) { return 0; })).size(), 0u);
}

TEST(ViewColumn, TakesTheSmallestType) {
  const auto type = [](std::uint64_t largest, bool delta) {
    return pack_numbers("x", 2, delta, [&](auto i) { return i == 0 ? largest - 1 : largest; }).type;
  };
  EXPECT_EQ(type(255, false), "u8");
  EXPECT_EQ(type(256, false), "u16");
  EXPECT_EQ(type(65536, false), "u32");
  EXPECT_EQ(type(std::uint64_t{1} << 32, false), "u64");
  EXPECT_EQ(type(200, true), "u8");
}

TEST(ViewColumn, WritesBase64) {  // RFC 4648, section 10
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(base64(std::string("\0\xff\xfe", 3)), "AP/+");
}

TEST(ViewData, SaysWhatASurveySays) {
  const Trace trace = random_trace(11, 3000, 2);
  ViewOptions options;
  options.policies = {"caching", "stitched", "plan"};
  const Json figures = Json::parse(make_view(trace, options, ColumnsAt::kPage).figures);

  std::vector<Workload> workloads;
  workloads.emplace_back(trace);
  SurveyOptions survey_options;
  survey_options.policies = options.policies;
  survey_options.passes = 0;
  const auto results = survey(workloads, survey_options);
  EXPECT_EQ(figures["events"], results[0].events);
  EXPECT_EQ(figures["live_peak_bytes"], results[0].live_peak_bytes);
  EXPECT_EQ(figures["trace_duration_us"], results[0].trace_duration_us);
  ASSERT_EQ(figures["policies"].size(), results.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(figures["policies"][i]["policy"], results[i].policy);
    EXPECT_EQ(figures["policies"][i]["reserved_peak_bytes"], results[i].reserved_peak_bytes);
    EXPECT_EQ(figures["policies"][i]["driver_calls"], results[i].driver_calls);
  }
}

TEST(ViewData, FindsThePeakAndWhatWasLiveThen) {
  TraceMaker maker;
  maker.alloc(1, 10, 100).alloc(2, 20, 100).alloc(3, 30, 5000);
  maker.free(3, 40).request(1, 45).free(1, 50).alloc(4, 60, 100);
  const Trace trace = maker.make();
  const ViewData data = make_view(trace, {}, ColumnsAt::kPage);
  const Json figures = Json::parse(data.figures);
  EXPECT_EQ(figures["live_peak_bytes"], 5200);
  EXPECT_EQ(figures["live_peak_event"], 3);
  EXPECT_EQ(figures["live_peak_time_us"], 20);
  EXPECT_EQ(figures["live_peak_allocations"], 3);
  EXPECT_EQ(figures["live_at_end_bytes"], 200);
  EXPECT_EQ(figures["grouped_by"], "size");
  EXPECT_EQ(figures["largest_at_peak"][0]["bytes"], 5000);
  EXPECT_EQ(figures["largest_at_peak"][1]["allocations"], 2);
  const auto column = [&](const char* name) { return unpack(column_of(data, name)); };
  EXPECT_THAT(column("time_us"), ElementsAre(0, 10, 20, 30, 40, 50));
  EXPECT_THAT(column("event"), ElementsAre(1, 2, 3, 4, 6, 7));
  EXPECT_THAT(column("freed"), ElementsAre(0, 0, 0, 1, 3, 0));
  EXPECT_THAT(column("size"), ElementsAre(100, 100, 5000, 100));
  EXPECT_THAT(column("wait_us"), ElementsAre(5, 0, 0, 0));
}

TEST(ViewData, TakesATraceWithoutEvents) {
  ViewOptions options;
  options.policies = {"caching"};
  const Json figures = Json::parse(make_view(Trace(), options, ColumnsAt::kPage).figures);
  EXPECT_EQ(figures["events"], 0);
  EXPECT_EQ(figures["live_peak_bytes"], 0);
}

TEST(ViewData, RefusesAnUnknownPolicy) {
  ViewOptions options;
  options.policies = {"fast"};
  EXPECT_THROW(make_view(random_trace(1, 10), options, ColumnsAt::kPage), InvalidArgument);
}

TEST(ViewPage, EscapesNamesWhereverTheyStand) {
  Trace trace = random_trace(2, 50);
  trace.name = "</script><script>alert(1)</script>\"'&\xff";
  trace.warnings = {"<!--<script>", "\xe2\x80\xa8"};
  ViewOptions options;
  options.file = "<img src=x onerror=alert(1)>";
  const std::string page = make_page(kViewer, make_view(trace, options, ColumnsAt::kPage));
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, Not(HasSubstr("<!--<")));
  EXPECT_THAT(page, HasSubstr("<title>&lt;/script&gt;&lt;script&gt;alert(1)"));
  const std::string opening = "<script>";
  const std::size_t from = page.find(opening) + opening.size();
  const Json summary = Json::parse(page.substr(from, page.find("</script>", from) - from));
  EXPECT_EQ(summary["file"], options.file);
  EXPECT_EQ(summary["trace"], "</script><script>alert(1)</script>\"'&\xef\xbf\xbd");
}

TEST(ViewPage, HoldsEveryPieceOrNone) {
  const Trace trace = random_trace(2, 50);
  const ViewData inside = make_view(trace, {}, ColumnsAt::kPage);
  const std::string page = make_page(kViewer, inside);
  for (const Column& column : inside.columns)
    for (std::size_t i = 0; i < column.pieces.size(); ++i)
      EXPECT_THAT(page, HasSubstr("data-piece=\"" + column.name + "/" + std::to_string(i) + "\">" +
                                  base64(column.pieces[i]) + "</script>"));
  EXPECT_TRUE(page.ends_with("\nend"));
  EXPECT_THAT(make_page(kViewer, make_view(trace, {}, ColumnsAt::kServer)),
              Not(HasSubstr("data-piece")));
}

TEST(ViewPage, RefusesAViewerWithoutItsMarks) {
  const ViewData data = make_view(random_trace(2, 50), {}, ColumnsAt::kPage);
  EXPECT_THROW(make_page("<title>%TENON_TITLE%</title>", data), InvalidArgument);
}

}  // namespace
}  // namespace tenon
