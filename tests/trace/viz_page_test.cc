#include "tenon/trace/viz_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "support/temporary.h"
#include "tenon/base/error.h"
#include "tenon/trace/load.h"
#include "trace/pickle_writer.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;
using namespace testing::pickled;
using testing::TemporaryFile;

// Of bytes whose number is a multiple of three, as PyTorch fills them up.
std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 3; ++i) bits = bits << 8 | static_cast<std::uint8_t>(bytes[at + i]);
    for (const int shift : {18, 12, 6, 0}) text += kDigits[bits >> shift & 63];
  }
  return text;
}

// As _format_viz in torch/cuda/_memory_viz.py makes it.
std::string page_of(const std::string& base64) {
  return "\n<!DOCTYPE html>\n<html>\n<head>\n</head>\n<body>\n<script type=\"module\">\nimport "
         "{add_local_files} from "
         "\"https://cdn.jsdelivr.net/gh/pytorch/pytorch@main/torch/utils/viz/MemoryViz.js\"\n"
         "const local_files = [{\"name\": \"snapshot.pickle\", \"base64\": \"" +
         base64 + "\"}]\nadd_local_files(local_files, 'Active Memory Timeline')\n</script>\n";
}

std::string snapshot_bytes() {
  std::string bytes = testing::pickled::file(
      dict({{"segments", list({})},
            {"device_traces", list({list({entry("alloc", 0x7FFF00FF, 10)})})}}));
  return bytes.append(3 - bytes.size() % 3, '\0');
}

TEST(VizPage, HoldsTheSnapshotThatItWasMadeFrom) {
  const TemporaryFile file(".html", page_of(base64(snapshot_bytes())));
  const Snapshot snapshot = load_snapshot(file.path());
  ASSERT_THAT(snapshot.traces, SizeIs(1));
  EXPECT_EQ(snapshot.traces[0].live_peak_bytes(), 10u);
  EXPECT_EQ(snapshot.traces[0].addresses[0], 0x7FFF00FFu);
}

TEST(VizPage, ThatIsCutOffOrDamagedIsRefusedWithThePlace) {
  const auto reason_of = [](const std::string& page) {
    try {
      pickle_of_page(page, "x.html");
    } catch (const ParseError& error) {
      return error.reason();
    }
    return std::string();
  };
  const std::string page = page_of(base64(snapshot_bytes()));
  const std::size_t at = page.find("base64\": \"") + 10;
  EXPECT_THAT(reason_of(page.substr(0, at + 8)), HasSubstr("was cut off at byte " +
                                                           std::to_string(at + 8)));
  std::string damaged = page;
  damaged[at + 5] = '<';
  EXPECT_THAT(reason_of(damaged), HasSubstr("no base64 at byte " + std::to_string(at + 5)));
}

}  // namespace
}  // namespace tenon
