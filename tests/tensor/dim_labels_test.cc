// Names and symbolic sizes of dimensions, storage that grows, and metadata that goes stale nowhere.
#include "tenon/tensor/dim_labels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "support/refusal.h"
#include "tenon/memory/registry.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/indexing.h"

namespace tenon {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::refusal;

Tensor named() {
  const Tensor t = zeros({2, 3, 4});
  t.set_names({"n", "c", "w"});
  return t;
}

TEST(DimNamesTest, AreCheckedWhenTheyAreSet) {
  const Tensor t = named();
  EXPECT_THAT(refusal([&] { t.set_names({"n", "c", "n"}); }),
              HasSubstr("\"n\" names dimensions 0 and 2"));
  EXPECT_THAT(refusal([&] { t.set_names({"n"}); }), HasSubstr("1 names for shape"));
  for (const char* bad : {"1x", "a b", "a-b", " ", "é", "**"})
    EXPECT_THAT(refusal([&] { t.set_names({"n", bad, "w"}); }),
                AllOf(HasSubstr(std::string("\"") + bad + "\" is no name"),
                      HasSubstr("does not begin with a digit")));
  EXPECT_THAT(t.names(), ElementsAre("n", "c", "w")) << "as before";
  t.set_names({"", "c", ""});
  EXPECT_THAT(t.names(), ElementsAre("", "c", ""));
  t.set_names({"*", "_x1", "*"});
  EXPECT_THAT(t.names(), ElementsAre("", "_x1", ""));
  t.set_names({});
  EXPECT_FALSE(t.impl()->is_labelled());
}

TEST(DimNamesTest, ViewsKeepTheNamesOfDimensionsThatStay) {
  const Tensor t = named();
  EXPECT_THAT(t.alias().names(), ElementsAre("n", "c", "w"));
  EXPECT_THAT(t.slice(1, 0, 2).names(), ElementsAre("n", "c", "w"));
  EXPECT_THAT(t.select(1, 0).names(), ElementsAre("n", "w"));
  EXPECT_THAT(t.transpose(0, 2).names(), ElementsAre("w", "c", "n"));
  EXPECT_THAT(t.permute({1, 2, 0}).names(), ElementsAre("c", "w", "n"));
  EXPECT_THAT(t.unsqueeze(1).names(), ElementsAre("n", "", "c", "w"));
  EXPECT_THAT(t.unsqueeze(1).expand({2, 5, 3, 4}).names(), ElementsAre("n", "", "c", "w"));
  EXPECT_THAT(t.expand({7, 2, 3, 4}).names(), ElementsAre("", "n", "c", "w"));
  EXPECT_THAT(t.diagonal(0, 0, 1).names(), ElementsAre("w", ""));
  EXPECT_THAT(t.unfold(2, 2, 1).names(), ElementsAre("n", "c", "w", ""));
  EXPECT_THAT(t[0].names(), ElementsAre("c", "w"));
  const Tensor ones_ = zeros({1, 1, 5});
  ones_.set_names({"a", "b", "c"});
  EXPECT_THAT(ones_.squeeze(0).names(), ElementsAre("b", "c"));
  EXPECT_THAT(ones_.squeeze(1).names(), ElementsAre("a", "c"));
  EXPECT_THAT(ones_.squeeze().names(), ElementsAre("c"));
  // Which old dimension would a new one be?
  EXPECT_THAT(t.view({6, 4}).names(), ElementsAre("", ""));
  EXPECT_THAT(t.as_strided({2, 3, 4}, {12, 4, 1}).names(), ElementsAre("", "", ""));
}

TEST(DimNamesTest, CopiesKeepThem) {
  const Tensor t = named();
  EXPECT_THAT(clone(t).names(), ElementsAre("n", "c", "w"));
  EXPECT_THAT(lazy_clone(t).names(), ElementsAre("n", "c", "w"));
  EXPECT_THAT(to(t, DType::kF64).names(), ElementsAre("n", "c", "w"));
  EXPECT_THAT(contiguous(t.transpose(0, 2)).names(), ElementsAre("w", "c", "n"));
  EXPECT_THAT(t.detach().names(), ElementsAre("n", "c", "w"));
  EXPECT_THAT(t.data().names(), ElementsAre("n", "c", "w"));
  for (const Tensor& like : {zeros_like(t), ones_like(t), empty_like(t), empty_like(t, DType::kI8)})
    EXPECT_THAT(like.names(), ElementsAre("n", "c", "w"));
}

TEST(DimNamesTest, CopyingInPlaceUnifiesThem) {
  const Tensor target = zeros({2, 3, 4});
  copy_(target, named());
  EXPECT_THAT(target.names(), ElementsAre("n", "c", "w")) << "it had none";
  const Tensor other = zeros({2, 3, 4});
  other.set_names({"n", "w", "c"});
  const std::uint32_t version = target.version();
  EXPECT_THAT(refusal([&] { copy_(target, other); }),
              HasSubstr("dimensions named [n, c, w] do not go with [n, w, c]"));
  EXPECT_EQ(target.version(), version) << "nothing happened";
  const Tensor first = zeros({2, 3, 4}), second = zeros({2, 3, 4});
  first.set_names({"n", "", ""});
  second.set_names({"", "n", ""});
  EXPECT_THAT(refusal([&] { copy_(first, second); }), HasSubstr("do not go with"))
      << "one name at two places";
}

TEST(DimNamesTest, NoNamesStopsThem) {
  const NoNames none;
  EXPECT_FALSE(named().transpose(0, 1).impl()->is_labelled());
  EXPECT_FALSE(clone(named()).impl()->is_labelled());
}

TEST(StaleMetadataTest, SetDataTakesTheSourcesNamesAndMetadata) {
  struct Handle : BackendMeta {
    IntrusivePtr<BackendMeta> clone() const override { return make_intrusive<Handle>(); }
  };
  const Tensor t = named();
  t.impl()->ensure_extra_meta().backend = make_intrusive<Handle>();
  t.set_data(zeros({5}));
  EXPECT_THAT(t.names(), ElementsAre(""));
  EXPECT_EQ(t.impl()->extra_meta(), nullptr);
  const Tensor plain = zeros({5});
  plain.set_data(named());
  EXPECT_THAT(plain.names(), ElementsAre("n", "c", "w"));
}

TEST(StaleMetadataTest, AnotherNumberOfDimensionsDropsNames) {
  const Tensor t = named();
  t.impl()->set_sizes_contiguous({4, 3, 2});
  EXPECT_THAT(t.names(), ElementsAre("n", "c", "w"));
  t.impl()->set_sizes_contiguous({6, 4});
  EXPECT_THAT(t.names(), ElementsAre("", ""));
}

TEST(StaleMetadataTest, AStorageClaimsNoMoreThanItHas) {
  const Tensor t = zeros({4});
  EXPECT_THAT(refusal([&] { t.storage().set_nbytes(17); }),
              HasSubstr("17 bytes of a storage that has 16; resize() brings more memory"));
  EXPECT_EQ(t.storage().nbytes(), 16u);
  t.storage().set_nbytes(8);
  t.storage().set_nbytes(4);
  EXPECT_THAT(refusal([&] { t.storage().set_nbytes(17); }), HasSubstr("has 16"));
  const void* const address = t.storage().data();
  t.storage().set_nbytes(16);
  EXPECT_EQ(t.storage().data(), address);
  EXPECT_EQ(t.select(0, 3).item<float>(), 0);
  const Tensor lazy = empty_lazy({4});
  lazy.storage().set_nbytes(64);
  std::memset(lazy.storage().mutable_data(), 1, 64);
  // Whoever puts memory in its place says how large it is.
  static_cast<void>(t.storage().impl()->set_data_ptr(current_allocator({})->allocate(64)));
  t.storage().set_nbytes(64);
  EXPECT_THROW(t.storage().set_nbytes(65), InvalidArgument);
}

TEST(ResizeTest, StorageGrowsAndKeepsItsBytes) {
  const Tensor t = tensor<float>({1, 2, 3, 4}, {2, 2});
  const std::uint32_t version = t.version();
  t.resize_({3, 3});
  EXPECT_EQ(t.sizes(), (IntList{3, 3}));
  EXPECT_EQ(t.storage().nbytes(), 36u);
  EXPECT_EQ((t[{1, 0}]).item<float>(), 4) << "the fourth of the old bytes";
  EXPECT_EQ(t.version(), version + 1);
  const void* const address = t.const_data_ptr();
  t.resize_({2});
  t.resize_({9});
  EXPECT_EQ(t.const_data_ptr(), address) << "nothing shrinks";
  t.storage().resize_(400);
  EXPECT_EQ(t.storage().nbytes(), 400u);
  EXPECT_EQ((t[3]).item<float>(), 4);
}

TEST(ResizeTest, ToItsOwnSizesChangesNothing) {
  const Tensor t = arange(6, DType::kF32).view({2, 3}).t();
  const std::uint32_t version = t.version();
  t.resize_({3, 2});
  EXPECT_EQ(t.strides(), (IntList{1, 3}));
  EXPECT_EQ((t[{0, 1}]).item<float>(), 3);
  EXPECT_EQ(t.version(), version);
  EXPECT_EQ(zeros({2}).detach().resize_({2}).numel(), 2);
}

TEST(ResizeTest, LazyMemoryComesInTheNewSize) {
  const Tensor t = empty_lazy({10}).resize_({20});
  EXPECT_EQ(t.storage().nbytes(), 80u);
  EXPECT_EQ((fill_(t, 3)[19]).item<float>(), 3);
}

TEST(SetTest, AGeometryThatIsNoneIsRefused) {
  const Tensor t = zeros({2, 3});
  const Storage storage = t.storage();
  const auto message = [&](std::int64_t offset, IntList sizes, IntList strides) {
    return refusal([&] { t.set_(storage, offset, sizes, strides); });
  };
  EXPECT_THAT(message(-1, {2}, {}), HasSubstr("set_: offset -1"));
  EXPECT_THAT(message(0, {2, 3}, {1}), HasSubstr("as many of each, or no strides"));
  EXPECT_THAT(message(0, {2}, {-1}), HasSubstr("strides and offset are at least 0"));
  EXPECT_THAT(message(0, {2}, {INT64_MAX}), HasSubstr("reaches too far"));
  EXPECT_THAT(message(0, {2}, {INT64_MAX - 1}), HasSubstr("more than 2^63 - 1 bytes"));
  EXPECT_THAT(refusal([&] { t.as_strided({2}, {INT64_MAX}, 0); }), HasSubstr("reaches too far"));
  EXPECT_THAT(refusal([&] { t.set_(Storage(), 0, {2}); }), HasSubstr("set_: a storage handle"));
  EXPECT_EQ(t.sizes(), (IntList{2, 3}));
  t.set_(storage, 1, {5});
  EXPECT_EQ(t.strides(), (IntList{1}));
}

TEST(ResizeTest, IsRefusedWhereItCannotBe) {
  float values[4] = {};
  const Tensor foreign = from_blob(values, {4}, DType::kF32);
  EXPECT_THAT(refusal([&] { foreign.resize_({5}); }), HasSubstr("not resizable to 20; clone()"));
  EXPECT_EQ(foreign.resize_({2}).numel(), 2) << "what is there is enough";
  const Tensor meta = empty({2}, DType::kF32, {DeviceType::kMeta, 0}).resize_({100});
  EXPECT_EQ(meta.storage().nbytes(), 400u) << "a size, and no memory";
  const Tensor with_names = named();
  EXPECT_THAT(refusal([&] { with_names.resize_({4, 3, 2}); }),
              AllOf(HasSubstr("[2, 3, 4] with names cannot get shape [4, 3, 2]"),
                    HasSubstr("set_names({}) first")));
  EXPECT_EQ(with_names.resize_({2, 3, 4}).names().front(), "n") << "its own sizes";
  with_names.set_names({});
  EXPECT_EQ(with_names.resize_({4, 3, 2}).size(0), 4);
  EXPECT_THROW(zeros({2}).resize_({-1}), InvalidArgument);
  EXPECT_THROW(zeros({2}).detach().resize_({1}), InvalidArgument) << "fixed metadata";
}

TEST(ResizeTest, SetTakesOverStorageAndGeometry) {
  const Tensor source = arange(12, DType::kF32), t = zeros({1});
  t.set_(source);
  EXPECT_TRUE(t.is_alias_of(source));
  EXPECT_EQ(t.sizes(), (IntList{12}));
  t.set_(source.storage(), 2, {2, 3}, {4, 1});
  EXPECT_EQ((t[{1, 2}]).item<float>(), 8);
  EXPECT_THAT(refusal([&] { t.set_(arange(3, DType::kI64)); }), HasSubstr("convert it first"));
  t.set_(source.storage(), 0, {20});
  EXPECT_EQ(source.storage().nbytes(), 80u) << "grown for it";
  EXPECT_EQ((source[11]).item<float>(), 11);
  const Storage before = t.storage();
  EXPECT_THROW(t.impl()->set_storage_and_geometry(zeros({4}).storage(), {9}, {1}, 0),
               InvalidArgument);
  EXPECT_TRUE(t.storage().is_alias_of(before)) << "as it was";
  const Tensor meta = empty({4}, DType::kF32, Device{DeviceType::kMeta, 0});
  EXPECT_THROW(t.impl()->set_storage_and_geometry(meta.storage(), {4}, {1}, 0), InvalidArgument);
}

// --- Symbolic sizes.

TEST(SymSizesTest, ComputeAndPrint) {
  const SymInt batch = SymInt::symbol("batch", 8);
  EXPECT_EQ(to_string((batch * 4 - 2) / 3 % 5), "((batch * 4 - 2) / 3) % 5");
  EXPECT_EQ(to_string(batch - (batch - 1)), "1");
  EXPECT_EQ(to_string((batch * 64 + 7) / 8), "batch * 8") << "what divides comes out";
  EXPECT_EQ(to_string((batch * 3 + batch * 2) * batch), "batch * batch * 5");
  EXPECT_EQ(to_string(batch / (batch * 2)), "batch / (batch * 2)");
  EXPECT_EQ(((batch * 4 - 2) / 3 % 5).hint(), 0);
  EXPECT_EQ(((batch * 4 - 2) / 3 % 5).evaluate({{"batch", 10}}), 2);
  EXPECT_EQ((SymInt(-7) / SymInt(2)).hint(), -4) << "rounded down";
  EXPECT_EQ((SymInt(-7) % SymInt(2)).hint(), 1);
  EXPECT_THROW(batch / SymInt(0), InvalidArgument);
}

TEST(SymSizesTest, GuardsTellWhatWasAssumed) {
  const SymInt batch = SymInt::symbol("batch", 8);
  const SymGuards guards;
  EXPECT_TRUE(batch * 2 == SymInt(16));
  EXPECT_FALSE(batch < SymInt(4));
  EXPECT_TRUE(SymInt(1) == SymInt(1)) << "no symbol, no guard";
  EXPECT_THAT(guards.to_strings(), ElementsAre("batch * 2 == 16 is true", "batch < 4 is false"));
  EXPECT_TRUE(guards.hold({{"batch", 8}}));
  EXPECT_FALSE(guards.hold({{"batch", 9}}));
}

TEST(SymSizesTest, FollowThroughViewsAndCopies) {
  const SymInt batch = SymInt::symbol("batch", 8);
  const SymInt sizes[] = {batch, 3, 4};
  const Tensor t = empty_symbolic(sizes);
  const auto texts = [](const Tensor& u) {
    std::vector<std::string> out;
    for (const SymInt& size : u.sym_sizes()) out.push_back(to_string(size));
    return out;
  };
  EXPECT_THAT(texts(t), ElementsAre("batch", "3", "4"));
  EXPECT_THAT(texts(t.permute({2, 0, 1})), ElementsAre("4", "batch", "3"));
  EXPECT_THAT(texts(t.select(1, 0).unsqueeze(0)), ElementsAre("1", "batch", "4"));
  EXPECT_THAT(texts(t.slice(0, 0, 2)), ElementsAre("2", "3", "4"));
  EXPECT_THAT(texts(t.view({8, 12})), ElementsAre("batch", "12"));
  EXPECT_THAT(texts(t.view({24, 4})), ElementsAre("batch * 3", "4"));
  EXPECT_THAT(texts(t.view({96})), ElementsAre("batch * 12"));
  EXPECT_THAT(texts(t.view_dtype(DType::kI8)), ElementsAre("batch", "3", "16"));
  EXPECT_THAT(texts(contiguous(t.transpose(0, 2)).view_dtype(DType::kI16)),
              ElementsAre("4", "3", "batch * 2"));
  const Tensor copy = clone(t.transpose(0, 1));
  EXPECT_THAT(texts(copy), ElementsAre("3", "batch", "4"));
  EXPECT_EQ(copy.storage().sym_nbytes().evaluate({{"batch", 100}}), 100 * 12 * 4);
}

// Beside a size of 0 the other sizes need not go together.
TEST(SymSizesTest, ReshapesOfNothingTakeAnySizes) {
  const SymInt sizes[] = {0, SymInt::symbol("a", 37)};
  const Tensor t = empty_symbolic(sizes);
  for (const DimVector& to : {DimVector{0, 0, 5}, {0, 0}, {0, 3}, {4, 0}, {0}, {2, 0, 37}})
    EXPECT_EQ(t.reshape(to).sizes(), IntList(to));
}

TEST(SymSizesTest, ReshapesPutSymbolsWhereTheyDivide) {
  const SymInt batch = SymInt::symbol("batch", 8), time = SymInt::symbol("time", 5);
  const SymInt sizes[] = {batch, 7, time, 6};
  const Tensor t = empty_symbolic(sizes);
  const auto texts = [](const Tensor& u) {
    std::vector<std::string> out;
    for (const SymInt& size : u.sym_sizes()) out.push_back(to_string(size));
    return out;
  };
  const SymGuards guards;
  const Tensor rows = t.view({8 * 7 * 5, 6});
  EXPECT_THAT(texts(rows), ElementsAre("batch * time * 7", "6"));
  EXPECT_THAT(texts(rows.view({8, 7, 5, 6})), ElementsAre("batch", "7", "time", "6"));
  EXPECT_THAT(texts(t.transpose(0, 1).reshape({7 * 8, 5, 6})),
              ElementsAre("batch * 7", "time", "6"));
  EXPECT_THAT(guards.to_strings(), ElementsAre());
  static_cast<void>(t.select(2, 0).select(2, 0).select(1, 0).view({2, 4}));
  EXPECT_THAT(guards.to_strings(), Contains("batch == 8 is true")) << "no place for the symbol";
}

TEST(SymSizesTest, PlainSizesStandForKnownShapes) {
  const SymSizes shapes[] = {{SymInt::symbol("batch", 8), 3}, {8, 5}};
  const auto text = [](const Tensor& t) { return to_string(t.sym_sizes()[0]); };
  const Device meta{DeviceType::kMeta, 0};
  const SymGuards guards;
  {
    const KnownShapes known(shapes);
    const Tensor made = empty({8, 3}, DType::kF32, meta);
    EXPECT_EQ(text(made), "batch");
    EXPECT_EQ(to_string(made.storage().sym_nbytes()), "batch * 12");
    EXPECT_EQ(text(empty({24}, DType::kF32, meta)), "batch * 3");
    EXPECT_EQ(text(empty({}, DType::kF32, meta).expand({8, 3})), "batch");
    EXPECT_EQ(text(empty({8, 5}, DType::kF32, meta)), "8");
    EXPECT_EQ(text(empty({8, 4}, DType::kF32, meta)), "8");
    EXPECT_THAT(guards.to_strings(), ElementsAre());
  }
  EXPECT_EQ(text(empty({8, 3}, DType::kF32, meta)), "8");
  const SymSizes alike[] = {{SymInt::symbol("batch", 8), 3}, {8, 3}};
  const KnownShapes known(alike);
  EXPECT_EQ(text(empty({8, 3}, DType::kF32, meta)), "8");
  EXPECT_THAT(guards.to_strings(), Contains("batch == 8 is true")) << "which of the two?";
}

TEST(SymSizesTest, SlicesFollowAndGuard) {
  const SymInt batch = SymInt::symbol("batch", 8);
  const SymInt sizes[] = {batch, 3};
  const Tensor t = empty_symbolic(sizes);
  const auto first = [](const Tensor& u) { return to_string(u.sym_sizes()[0]); };
  const SymGuards guards;
  EXPECT_EQ(first(t.slice(0, 2, std::nullopt)), "batch - 2");
  EXPECT_EQ(first(t.slice(0, std::nullopt, std::nullopt, 2)), "(batch + 1) / 2");
  EXPECT_EQ(first(t.slice(0, -3, std::nullopt)), "3");
  EXPECT_EQ(first(t.slice(0, 0, 20)), "batch");
  EXPECT_EQ(first(t.slice(0, 6, 2)), "0");
  EXPECT_TRUE(guards.hold({{"batch", 19}}));
  EXPECT_FALSE(guards.hold({{"batch", 20 + 1}})) << "then [0:20] is 20";
  EXPECT_FALSE(guards.hold({{"batch", 5}})) << "then [6:] begins elsewhere";
  const SymGuards of_ends;
  EXPECT_EQ(first(t.slice(0, 6, -1)), "batch - 7");
  EXPECT_TRUE(of_ends.hold({{"batch", 7}}));
  EXPECT_FALSE(of_ends.hold({{"batch", 6}})) << "then [6:-1] ends before it begins";
}

TEST(SymSizesTest, OperandsOfPlainSizesGuard) {
  const SymInt batch = SymInt::symbol("batch", 8);
  const SymInt sizes[] = {batch, SymInt(3)};
  const Tensor t = empty_symbolic(sizes);
  const Tensor plain = empty({8, 3}, DType::kF32, {DeviceType::kMeta, 0});
  const auto guards_of = [](auto&& compute) {
    const SymGuards guards;
    compute();
    return guards.to_strings();
  };
  const std::string batch_is_8 = "batch == 8 is true";
  EXPECT_THAT(guards_of([&] { clone(t); t.transpose(0, 1); t.unsqueeze(0); }), ElementsAre());
  const Labels ours = detail::labels_of(t);
  EXPECT_THAT(guards_of([&] { detail::unified("add", ours, detail::labels_of(plain)); }),
              ElementsAre(batch_is_8));
  EXPECT_THAT(guards_of([&] { detail::unified("add", ours, ours); }), ElementsAre());
  EXPECT_THAT(guards_of([&] { t.diagonal(); }), ElementsAre(batch_is_8));
  EXPECT_THAT(guards_of([&] { t.select(0, 5); }), ElementsAre("5 < batch is true"));
  EXPECT_THAT(guards_of([&] { t.unfold(0, 2, 2); }), ElementsAre("batch < 2 is false"));
  EXPECT_EQ(to_string(t.unfold(0, 2, 2).sym_sizes()[0]), "batch / 2");
  EXPECT_EQ(to_string(t.unfold(0, 3, 1).sym_sizes()[0]), "batch - 2");
  EXPECT_THAT(guards_of([&] { t.split(4, 0); }), Contains(batch_is_8));
  EXPECT_THAT(guards_of([&] { t.squeeze(); }), Contains("batch == 1 is false"));
}

}  // namespace
}  // namespace tenon
