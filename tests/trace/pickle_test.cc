#include "tenon/trace/pickle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenon/base/error.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;
using namespace std::string_literals;

using Kind = PickleValue::Kind;

std::string pickle_failure(const std::string& bytes) {
  try {
    PickleDocument(bytes, "x.pickle");
  } catch (const ParseError& error) {
    EXPECT_EQ(error.name(), "x.pickle");
    return error.reason();
  }
  return "";
}

TEST(Pickle, ReadsScalars) {
  // pickle.dumps((None, True, False, 7, 65535, -2, 2**40, -2**40, 2**64-1, 2**70, 1.5, "hé",
  // b"\x00"), 4)
  const std::string bytes =
      "\x80\x04("s + "N\x88\x89K\x07M\xff\xffJ\xfe\xff\xff\xff"s +
      "\x8a\x06\x00\x00\x00\x00\x00\x01"s + "\x8a\x06\x00\x00\x00\x00\x00\xff"s +
      "\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00"s +
      "\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x40"s + "G\x3f\xf8\x00\x00\x00\x00\x00\x00"s +
      "\x8c\x03h\xc3\xa9\x94"s + "C\x01\x00"s + "t\x94."s;
  const PickleDocument document(bytes, "x");
  ASSERT_EQ(document.root().kind(), Kind::kTuple);
  const auto items = document.items(document.root());
  ASSERT_THAT(items, SizeIs(13));
  EXPECT_EQ(items[0].kind(), Kind::kNone);
  EXPECT_EQ(items[1].as_int64(), 1);
  EXPECT_EQ(items[2].as_int64(), 0);
  EXPECT_EQ(items[3].as_uint64(), 7u);
  EXPECT_EQ(items[4].as_uint64(), 65535u);
  EXPECT_EQ(items[5].as_int64(), -2);
  EXPECT_EQ(items[5].as_uint64(), std::nullopt);
  EXPECT_EQ(items[6].as_int64(), std::int64_t{1} << 40);
  EXPECT_EQ(items[7].as_int64(), -(std::int64_t{1} << 40));
  EXPECT_EQ(items[8].as_uint64(), ~std::uint64_t{0});
  EXPECT_EQ(items[8].as_int64(), std::nullopt);
  EXPECT_EQ(items[9].kind(), Kind::kBigInteger);
  EXPECT_EQ(items[9].as_uint64(), std::nullopt);
  EXPECT_EQ(items[10].as_double(), 1.5);
  EXPECT_EQ(items[11].as_string(), "h\xc3\xa9");
  EXPECT_EQ(items[12].kind(), Kind::kBytes);
}

TEST(Pickle, ReadsContainersAndSharesThroughTheMemo) {
  // d = {"a": [1, 2]}; pickle.dumps([d, d, (1, 2), {3}], 4), and protocol 2 for the puts.
  const std::string bytes = "\x80\x04\x95\x23\x00\x00\x00\x00\x00\x00\x00"s +
                            "]\x94(}\x94\x8c\x01" + "a\x94]\x94(K\x01K\x02" +
                            "esh\x01K\x01K\x02\x86\x94\x8f\x94(K\x03\x90" + "e." +
                            "padding past the end"s;
  const PickleDocument document(bytes, "x");
  const auto items = document.items(document.root());
  ASSERT_THAT(items, SizeIs(4));
  const PickleValue* list = document.find(items[0], "a");
  ASSERT_NE(list, nullptr);
  EXPECT_EQ(document.items(*list)[1].as_int64(), 2);
  EXPECT_EQ(document.find(items[1], "a"), list);
  EXPECT_EQ(document.find(items[1], "b"), nullptr);
  EXPECT_EQ(items[2].kind(), Kind::kTuple);
  EXPECT_EQ(items[3].kind(), Kind::kSet);
  EXPECT_THAT(document.items(items[3]), SizeIs(1));
}

TEST(Pickle, LetsTheLastOfTwoEqualKeysWin) {
  const std::string bytes = "\x80\x02}q\x00(U\x01kK\x01U\x01kK\x02u."s;
  const PickleDocument document(bytes, "x");
  EXPECT_EQ(document.find(document.root(), "k")->as_int64(), 2);
}

TEST(Pickle, SurvivesAListThatContainsItself) {
  const std::string bytes = "\x80\x02]q\x00h\x00" "a."s;
  const PickleDocument document(bytes, "x");
  EXPECT_EQ(document.items(document.root())[0].kind(), Kind::kList);
}

TEST(Pickle, RefusesWhateverWouldRunCode) {
  EXPECT_THAT(pickle_failure("\x80\x02" "cos\nsystem\nU\x02lst\x85R."s),
              HasSubstr("opcode 0x63 at byte offset 2: GLOBAL would import"));
  EXPECT_THAT(pickle_failure("\x80\x04\x8c\x02os\x8c\x06system\x93."s), HasSubstr("STACK_GLOBAL"));
  EXPECT_THAT(pickle_failure("\x80\x02)R."s), HasSubstr("offset 3: REDUCE would call"));
  EXPECT_THAT(pickle_failure("\x80\x02}b."s), HasSubstr("BUILD"));
  EXPECT_THAT(pickle_failure("\x80\x02)\x81."s), HasSubstr("NEWOBJ"));
  EXPECT_THAT(pickle_failure("\x80\x02(ios\nsystem\n."s), HasSubstr("INST"));
  EXPECT_THAT(pickle_failure("\x80\x02(o."s), HasSubstr("OBJ"));
  EXPECT_THAT(pickle_failure("\x80\x02K\x01Q."s), HasSubstr("BINPERSID"));
  EXPECT_THAT(pickle_failure("\x80\x02P1\n."s), HasSubstr("PERSID"));
  EXPECT_THAT(pickle_failure("\x80\x02\x82\x01."s), HasSubstr("EXT1"));
  EXPECT_THAT(pickle_failure("\x80\x05\x97."s), HasSubstr("NEXT_BUFFER"));
  EXPECT_THAT(pickle_failure("\x80\x02I1\n."s), HasSubstr("protocols 0 and 1"));
  EXPECT_THAT(pickle_failure("\x80\x02\xff."s), HasSubstr("no pickle opcode"));
}

TEST(Pickle, RefusesWhatIsTruncatedOrMakesNoSense) {
  EXPECT_THAT(pickle_failure("\x80"s), HasSubstr("no pickle"));
  EXPECT_THAT(pickle_failure("(lp0\n."s), HasSubstr("no pickle of protocol 2"));
  EXPECT_THAT(pickle_failure("\x80\x09N."s), HasSubstr("protocol 9 is newer"));
  EXPECT_THAT(pickle_failure("\x80\x04N"s), HasSubstr("truncated"));
  EXPECT_THAT(pickle_failure("\x80\x04X\xff\xff\xff\x7f"
                         "abc"s),
              HasSubstr("2147483647 bytes are claimed"));
  EXPECT_THAT(pickle_failure("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
                         "abc"s),
              HasSubstr("claimed"));
  EXPECT_THAT(pickle_failure("\x80\x04\x95\xff\x00\x00\x00\x00\x00\x00\x00N."s),
              HasSubstr("a frame of 255"));
  EXPECT_THAT(pickle_failure("\x80\x04Na."s), HasSubstr("stack is empty"));
  EXPECT_THAT(pickle_failure("\x80\x04NNa."s), HasSubstr("a list is needed and None"));
  EXPECT_THAT(pickle_failure("\x80\x04}(Nu."s), HasSubstr("key without a value"));
  EXPECT_THAT(pickle_failure("\x80\x04]e."s), HasSubstr("no mark"));
  EXPECT_THAT(pickle_failure("\x80\x04(."s), HasSubstr("STOP with 0 values and 1 open marks"));
  EXPECT_THAT(pickle_failure("\x80\x04h\x05."s), HasSubstr("memo entry 5"));
  EXPECT_THAT(pickle_failure("\x80\x04Nr\xff\xff\xff\xff."s), HasSubstr("memo entry 4294967295"));
  EXPECT_THAT(pickle_failure("\x80\x04]N(0a."s), "");
  EXPECT_THAT(pickle_failure("\x80\x04"s + std::string(20'000, '(') + "."),
              HasSubstr("levels deep"));
}

TEST(Pickle, ReadsDeepNestingWithoutRecursion) {
  constexpr int kDepth = 1'000'000;
  const std::string bytes = "\x80\x02N"s + std::string(kDepth, '\x85') + ".";
  const PickleDocument document(bytes, "x");
  EXPECT_EQ(document.root().kind(), Kind::kTuple);
}

// Takes the numbers of root["long"] and of root["deep"][i], as text.
class Numbers : public PickleSink {
 public:
  bool wants(std::string_view key, std::optional<std::size_t> index) override {
    const bool wanted = (key == "long" && !index) || (key == "deep" && index);
    if (wanted) where = std::string(key) + (index ? std::to_string(*index) : "");
    return wanted;
  }
  void item(const PickleDocument& document, const PickleValue& value) override {
    std::string text = where + ":";
    if (value.is_sequence()) {
      for (const PickleValue& inner : document.items(value)) text += show(document, inner);
    } else {
      text += show(document, value);
    }
    items.push_back(text);
  }
  static std::string show(const PickleDocument& document, const PickleValue& value) {
    if (const auto number = value.as_int64()) return std::to_string(*number);
    if (value.is_dict()) return "{" + std::to_string(document.pairs(value).size()) + "}";
    return "?";
  }

  std::string where;
  std::vector<std::string> items;
};

TEST(PickleSink, GetsItemsOfLongListsOneByOne) {
  // A value that is referred to again stays what it was; others may be gone.
  const std::string shared = std::string("}") + "\x94" + "(" + "\x8c\x01x" + "K\x01" + "u";
  std::string list = "](";
  list += shared;
  list += "](K\x05K\x06" "e";
  list += std::string("h\x00", 2);
  list += "e";
  const std::string bytes = std::string("\x80\x04}(") + "\x8c\x04long" + list +
                            "\x8c\x04" "deep" + "](](K\x01K\x02" "e](K\x03" "ee" +
                            "\x8c\x05other" + "](K\x07" "eu.";
  Numbers sink;
  const PickleDocument document(bytes, "x", &sink);
  EXPECT_THAT(sink.items, ::testing::ElementsAre("long:{1}", "long:56", "long:{1}", "deep0:1",
                                                 "deep0:2", "deep1:3"));
  EXPECT_EQ(document.items(*document.find(document.root(), "long")).size(), 0u);
  EXPECT_EQ(document.items(*document.find(document.root(), "other")).size(), 1u);
}

}  // namespace
}  // namespace tenon
