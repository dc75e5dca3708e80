// IDX files, batches and the thread that makes them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <set>
#include <thread>

#include "support/temporary.h"
#include "tenon/base/error.h"
#include "tenon/base/gzip.h"
#include "tenon/nn/data/idx.h"
#include "tenon/nn/data/images.h"
#include "tenon/nn/data/order.h"
#include "tenon/nn/data/prefetcher.h"
#include "tenon/nn/data/text.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/random.h"

namespace tenon::nn {
namespace {

using tenon::testing::TemporaryFile;
using tenon::testing::TemporaryFolder;
using ::testing::HasSubstr;

std::string gzipped(const std::string& bytes) {
  std::string out(bytes.size() + 256, '\0');
  z_stream z{};
  EXPECT_EQ(::deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  z.avail_in = static_cast<uInt>(bytes.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(::deflate(&z, Z_FINISH), Z_STREAM_END);
  out.resize(out.size() - z.avail_out);
  ::deflateEnd(&z);
  return out;
}

template <typename Call>
std::string parse_error(Call&& call) {
  try {
    call();
  } catch (const ParseError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Idx, ReadsWhatItWrites) {
  for (const DType dtype :
       {DType::kU8, DType::kI8, DType::kI16, DType::kI32, DType::kF32, DType::kF64}) {
    const Tensor t = to(randint(0, 100, {3, 4, 5}), dtype);
    const Tensor back = parse_idx(format_idx(t), "memory");
    ASSERT_EQ(back.sizes(), t.sizes());
    ASSERT_EQ(back.dtype(), dtype);
    EXPECT_EQ(std::memcmp(back.const_data_ptr(), t.const_data_ptr(), t.nbytes()), 0);
  }
}

TEST(Idx, NumbersAreBigEndian) {
  const std::string bytes("\0\0\x0c\x01\0\0\0\x02\0\0\0\x07\xff\xff\xff\xfe", 16);
  const Tensor t = parse_idx(bytes, "memory");
  EXPECT_EQ(t.const_data_ptr<std::int32_t>()[0], 7);
  EXPECT_EQ(t.const_data_ptr<std::int32_t>()[1], -2);
}

TEST(Idx, ReadsGzipOfSeveralMembers) {
  const Tensor t = to(randint(0, 256, {1000}), DType::kU8);
  const std::string bytes = format_idx(t);
  const TemporaryFile file(".gz", gzipped(bytes.substr(0, 100)) + gzipped(bytes.substr(100)));
  const Tensor back = load_idx(file.path());
  EXPECT_EQ(std::memcmp(back.const_data_ptr(), t.const_data_ptr(), t.nbytes()), 0);
}

TEST(Idx, NamesTheFileAndWhatIsWrongWithIt) {
  const std::string good = format_idx(zeros({2, 3}, DType::kU8));
  const auto error_of = [](const std::string& bytes) {
    const TemporaryFile file(".idx", bytes);
    const std::string error = parse_error([&] { load_idx(file.path()); });
    EXPECT_THAT(error, HasSubstr(file.path()));
    return error;
  };
  EXPECT_THAT(error_of(""), HasSubstr("no IDX file"));
  EXPECT_THAT(error_of("hello there"), HasSubstr("no IDX file"));
  EXPECT_THAT(error_of(good.substr(0, 10)), HasSubstr("cut off at 10"));
  EXPECT_THAT(error_of(good.substr(0, good.size() - 1)), HasSubstr("takes 6 bytes, but 5"));
  EXPECT_THAT(error_of(good + "x"), HasSubstr("takes 6 bytes, but 7"));
  std::string unknown = good;
  unknown[2] = 0x0a;
  EXPECT_THAT(error_of(unknown), HasSubstr("type 0x0a is unknown"));
  std::string huge = good;
  for (std::size_t i = 4; i < 12; ++i) huge[i] = '\xff';
  EXPECT_THAT(error_of(huge), HasSubstr("more than 4 GiB"));
  const std::string packed = gzipped(good);
  EXPECT_THAT(error_of(packed.substr(0, packed.size() / 2)), HasSubstr("ends too early"));
  std::string damaged = packed;
  damaged[damaged.size() / 2] ^= 0x55;
  EXPECT_THAT(error_of(damaged), HasSubstr("gzip"));
  EXPECT_THAT(parse_error([] { load_idx("/no/such/file"); }), HasSubstr("/no/such/file"));
}

// The other sizes must not overflow beside one of 0.
TEST(Idx, ASizeOfZeroDoesNotHideOthers) {
  std::string bytes("\0\0\x08\x04\0\0\0\0", 8);
  bytes += std::string(12, '\xff');
  EXPECT_THAT(parse_error([&] { parse_idx(bytes, "memory"); }), HasSubstr("more than 4 GiB"));
  EXPECT_EQ(parse_idx(std::string("\0\0\x08\x02\0\0\0\0\0\0\0\x05", 12), "memory").sizes(),
            IntList({0, 5}));
}

TEST(Idx, NeverCrashesOnDamagedBytes) {
  const std::string good = format_idx(to(randint(0, 256, {4, 5}), DType::kI16));
  Generator generator(7);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = good;
    const Tensor where =
        randint(0, static_cast<std::int64_t>(good.size()), {2}, DType::kI64, generator);
    const auto* at = where.const_data_ptr<std::int64_t>();
    bytes[static_cast<std::size_t>(at[0])] = static_cast<char>(i * 37);
    if (i % 3 == 0) bytes.resize(static_cast<std::size_t>(at[1]));
    try {
      parse_idx(bytes, "damaged");
    } catch (const ParseError&) {
    }
  }
}

TEST(Gzip, RefusesMoreThanItMayUnpack) {
  const std::string packed = gzipped(std::string(80 << 20, 'a'));
  EXPECT_THAT(parse_error([&] { inflate_gzip(packed, "bomb"); }),
              ::testing::AllOf(HasSubstr("of gzip data unpack to more than"),
                    HasSubstr("TENON_READ_LIMIT=1GiB allows more")));
  ::setenv("TENON_READ_LIMIT", "80MiB", 1);
  EXPECT_EQ(inflate_gzip(packed, "bomb").size(), std::size_t{80} << 20);
  ::unsetenv("TENON_READ_LIMIT");
}

void write_set(const std::string& folder, const std::string& which, const Tensor& images,
               const Tensor& labels) {
  std::ofstream(folder + "/" + which + "-images-idx3-ubyte") << format_idx(images);
  std::ofstream(folder + "/" + which + "-labels-idx1-ubyte") << format_idx(labels);
}

TEST(Images, ChecksThatThePartsFit) {
  const TemporaryFolder folder;
  EXPECT_THAT(parse_error([&] { load_images(folder.path()); }),
              HasSubstr("train-images-idx3-ubyte"));
  const Tensor images = to(randint(0, 256, {5, 4, 6}), DType::kU8);
  const Tensor labels = to(arange(5), DType::kU8);
  write_set(folder.path(), "train", images, labels);
  write_set(folder.path(), "t10k", images, labels);
  const ImageData data = load_images(folder.path());
  EXPECT_EQ(data.train.count(), 5);
  EXPECT_EQ(data.classes, 5);
  write_set(folder.path(), "t10k", images, to(arange(1, 6), DType::kU8));
  EXPECT_THAT(parse_error([&] { load_images(folder.path()); }), HasSubstr("label of 5"));
  write_set(folder.path(), "t10k", images, to(arange(4), DType::kU8));
  EXPECT_THAT(parse_error([&] { load_images(folder.path()); }), HasSubstr("uint8 [4]"));
  write_set(folder.path(), "t10k", images.narrow(2, 0, 5), labels);
  EXPECT_THAT(parse_error([&] { load_images(folder.path()); }), HasSubstr("[5, 4, 5]"));
}

TEST(Images, BatchesAreNormalised) {
  const ImageSet set{to(randint(0, 256, {50, 6, 5}), DType::kU8), to(arange(50), DType::kU8)};
  const PixelStatistics statistics = pixel_statistics(set);
  const ImageBatch room = make_image_batch(set, 50);
  std::vector<std::int64_t> all(50);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = 49 - static_cast<std::int64_t>(i);
  const ImageBatch batch = fill_image_batch(set, statistics, all, room);
  const auto* pixels = batch.images.const_data_ptr<float>();
  double sum = 0;
  double squares = 0;
  for (std::int64_t i = 0; i < batch.images.numel(); ++i) {
    sum += pixels[i];
    squares += static_cast<double>(pixels[i]) * pixels[i];
  }
  const auto count = static_cast<double>(batch.images.numel());
  EXPECT_NEAR(sum / count, 0, 1e-5);
  EXPECT_NEAR(squares / count, 1, 1e-4);
  EXPECT_EQ(batch.labels.const_data_ptr<std::int64_t>()[0], 49);
  const ImageBatch part = fill_image_batch(set, statistics, {3}, room);
  EXPECT_EQ(part.images.sizes(), (IntList{1, 1, 6, 5}));
  EXPECT_EQ(part.images.const_data_ptr(), room.images.const_data_ptr());
}

TEST(BatchOrder, HasEveryExampleOnceAnEpoch) {
  BatchOrder order(10, 3, 5);
  EXPECT_EQ(order.batches_per_epoch(), 4u);
  std::vector<std::int64_t> first, second;
  for (std::uint64_t batch = 0; batch < 8; ++batch)
    for (const std::int64_t example : order.examples_of(batch))
      (batch < 4 ? first : second).push_back(example);
  EXPECT_NE(first, second);
  EXPECT_EQ(std::set<std::int64_t>(first.begin(), first.end()).size(), 10u);
  EXPECT_EQ(first.size(), 10u);
  EXPECT_EQ(second.size(), 10u);
  BatchOrder late(10, 3, 5);
  EXPECT_EQ(late.examples_of(6), order.examples_of(6)) << "a batch depends on its number alone";
  EXPECT_NE(BatchOrder(10, 3, 6).examples_of(6), order.examples_of(6));
  EXPECT_THROW(BatchOrder(0, 3, 1), InvalidArgument);
}

TEST(Prefetcher, GivesWhatFillMakesInOrder) {
  std::vector<int> slots(3);
  Prefetcher<int> prefetcher(slots, 5, 50,
                             [](std::uint64_t number, int&) { return static_cast<int>(number); });
  for (int i = 5; i < 50; ++i) ASSERT_EQ(*prefetcher.next(), i);
  EXPECT_EQ(prefetcher.next(), nullptr);
  EXPECT_EQ(prefetcher.next(), nullptr);
}

TEST(Prefetcher, LeavesTheBatchThatIsHeldAlone) {
  const std::vector<Tensor> slots = {zeros({1}), zeros({1})};
  Prefetcher<Tensor> prefetcher(slots, 0, 200, [](std::uint64_t number, Tensor& slot) {
    slot.data_ptr<float>()[0] = static_cast<float>(number);
    return slot;
  });
  for (int i = 0; i < 200; ++i) {
    const Tensor batch = *prefetcher.next();
    std::this_thread::yield();
    ASSERT_EQ(batch.const_data_ptr<float>()[0], static_cast<float>(i));
  }
}

TEST(Prefetcher, PassesExceptionsOn) {
  Prefetcher<int> prefetcher(std::vector<int>(2), 0, 10, [](std::uint64_t number, int&) -> int {
    if (number == 1) throw InvalidArgument("no second batch");
    return 7;
  });
  EXPECT_EQ(*prefetcher.next(), 7);
  EXPECT_THROW(prefetcher.next(), InvalidArgument);
}

TEST(Prefetcher, CanBeLeftEarly) {
  std::atomic<int> made = 0;
  {
    Prefetcher<int> prefetcher(std::vector<int>(2), 0, 1000000,
                               [&](std::uint64_t, int&) { return ++made; });
    prefetcher.next();
  }
  EXPECT_LE(made, 4);
}

TEST(Text, VocabularyNumbersCharactersInOrder) {
  const Vocabulary vocabulary = Vocabulary::of("banana split\n");
  EXPECT_EQ(vocabulary.characters(), "\n abilnpst");
  const std::vector<std::uint8_t> ids = vocabulary.encode("split");
  EXPECT_EQ(vocabulary.decode(ids), "split");
  EXPECT_THROW(vocabulary.encode("x"), InvalidArgument);
  EXPECT_THROW(Vocabulary("ba"), InvalidArgument);
  EXPECT_THROW(Vocabulary::of(""), InvalidArgument);
}

TEST(Text, TargetsAreTheNextCharacters) {
  std::vector<std::uint8_t> text(100);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::uint8_t>(i);
  const TextBatch batch = make_text_batch(4, 10);
  fill_text_batch(text, 3, 8, batch);
  const auto* input = batch.input.const_data_ptr<std::int64_t>();
  const auto* target = batch.target.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < 40; ++i) EXPECT_EQ(target[i], input[i] + 1);
  const Tensor before = clone(batch.input);
  fill_text_batch(text, 3, 9, batch);
  EXPECT_NE(std::memcmp(before.const_data_ptr(), batch.input.const_data_ptr(), before.nbytes()), 0);
  fill_text_batch(text, 3, 8, batch);
  EXPECT_EQ(std::memcmp(before.const_data_ptr(), batch.input.const_data_ptr(), before.nbytes()), 0);
  const TextBatch some = make_text_batch(2, 10);
  const std::vector<std::int64_t> pieces = {3, 1};
  fill_text_batch(text, 3, 8, some, &pieces);
  for (std::int64_t i = 0; i < 20; ++i) {
    const std::int64_t same = pieces[static_cast<std::size_t>(i / 10)] * 10 + i % 10;
    EXPECT_EQ(some.input.const_data_ptr<std::int64_t>()[i], input[same]);
    EXPECT_EQ(some.target.const_data_ptr<std::int64_t>()[i], target[same]);
  }
  EXPECT_THROW(fill_text_batch({1, 2}, 1, 1, batch), InvalidArgument);
}

}  // namespace
}  // namespace tenon::nn
