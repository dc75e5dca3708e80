#include "tenon/tensor/tensor.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support/refusal.h"
#include "tenon/base/error.h"
#include "tenon/memory/adaptors/statistics_adaptor.h"
#include "tenon/memory/host/cpu_allocator.h"
#include "tenon/memory/registry.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/growable_tensor.h"
#include "tenon/tensor/indexing.h"
#include "tenon/tensor/inference_mode.h"
#include "tenon/tensor/interop/dlpack.h"
#include "tenon/tensor/interop/npy.h"
#include "tenon/tensor/interop/standard.h"
#include "tenon/tensor/print.h"
#include "tenon/tensor/promotion.h"
#include "tenon/tensor/quantized.h"
#include "tenon/tensor/random.h"
#include "tenon/tensor/sparse.h"

namespace tenon {
namespace {

using testing::refusal;

TEST(TensorTest, IsSmall) {
  const Tensor t = empty({2, 3, 4, 5, 6});
  EXPECT_LE(t.impl()->metadata_bytes(), 232u);
  EXPECT_EQ(empty({1, 2, 3, 4, 5, 6}).impl()->metadata_bytes(), 232u + 2 * 6 * 8);
}

TEST(TensorTest, KnowsItsGeometry) {
  const Tensor t = empty({2, 3, 4}, DType::kF64);
  EXPECT_EQ(t.sizes(), (IntList{2, 3, 4}));
  EXPECT_EQ(t.strides(), (IntList{12, 4, 1}));
  EXPECT_EQ(t.numel(), 24);
  EXPECT_EQ(t.nbytes(), 192u);
  EXPECT_EQ(t.size(-1), 4);
  EXPECT_EQ(t.dtype(), DType::kF64);
  EXPECT_TRUE(t.key_set().has(DispatchKey::kCpu));
  EXPECT_TRUE(t.key_set().has(DispatchKey::kAutograd));
  EXPECT_EQ(t.layout(), Layout::kStrided);
  EXPECT_THROW(static_cast<void>(t.size(3)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(t.data_ptr<float>()), InvalidArgument);
}

TEST(TensorTest, ImpossibleShapesAreRefusedWithTheShape) {
  try {
    empty({3, -1});
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("[3, -1]"), std::string::npos);
  }
  EXPECT_THROW(empty({INT64_MAX, 3}), InvalidArgument);
  EXPECT_THROW(empty({INT64_MAX / 2}), InvalidArgument);
  EXPECT_EQ(empty({INT64_MAX, 0, 1}).numel(), 0);
  EXPECT_THROW(empty({INT64_MAX, 0, INT64_MAX}), InvalidArgument);
  EXPECT_THROW(empty(DimVector(65, 1)), InvalidArgument);
  EXPECT_THROW(empty_strided({2}, {1, 1}), InvalidArgument);
  EXPECT_THROW(empty_strided({2}, {-1}), InvalidArgument);
}

// Run alone (as ctest does), no tensor exists before its first line.
TEST(TensorTest, TheFirstTensorChangesNoAnswer) {
  Allocator* const before = get_cpu_allocator();
  EXPECT_EQ(before, get_default_cpu_allocator());
  EXPECT_EQ(before, current_allocator(Device{}));
  const Tensor first = empty({64, 64});
  EXPECT_EQ(first.storage().impl()->allocator(), before);
  EXPECT_EQ(get_cpu_allocator(), before);
  EXPECT_EQ(current_allocator(Device{}), before);
  void* raw = get_cpu_allocator()->raw_allocate(64);
  ASSERT_NE(get_cpu_allocator()->raw_deleter(), nullptr);
  get_cpu_allocator()->raw_deleter()(raw);
}

// The default one included: what a program registers stays.
TEST(TensorTest, BytesComeFromWhatTheProgramRegistered) {
  StatisticsAdaptor counted(*static_cast<Allocator*>(get_default_cpu_allocator()));
  set_cpu_allocator(&counted);
  {
    const Tensor t = empty({64, 64});
    EXPECT_EQ(t.storage().impl()->allocator(), &counted);
    EXPECT_EQ(get_cpu_allocator(), &counted);
    EXPECT_EQ(counted.passed().bytes.current, 64 * 64 * 4);
  }
  set_cpu_allocator(get_default_cpu_allocator());
  EXPECT_EQ(empty({64, 64}).storage().impl()->allocator(), get_default_cpu_allocator());
  unset_allocator(DeviceType::kCpu);
}

TEST(TensorTest, BytesComeFromTheCurrentAllocator) {
  StatisticsAdaptor counted(*static_cast<Allocator*>(current_allocator(Device{})));
  {
    const AllocatorGuard guard(Device{}, counted);
    const Tensor t = empty({64, 64});
    const Tensor copy = clone(t);
    EXPECT_EQ(copy.sizes(), t.sizes());
    EXPECT_EQ(counted.passed().bytes.current, 2 * 64 * 64 * 4);
  }
  EXPECT_EQ(counted.passed().bytes.current, 0);
}

struct FlagCase {
  DimVector sizes, strides;
  const char* flags;  // c: contiguous, l: channels last contiguous, s: channels last, d: dense
};

TEST(TensorTest, LayoutFlagsHaveTheirExactConditions) {
  const std::vector<FlagCase> cases = {
      {{2, 3, 4, 5}, {60, 20, 5, 1}, "cd"},
      {{2, 3, 4, 5}, {60, 1, 15, 3}, "lsd"},
      {{2, 3, 4, 5}, {120, 1, 30, 6}, "s"},
      {{2, 1, 4, 5}, {20, 20, 5, 1}, "cld"},
      {{2, 3, 1, 1}, {3, 1, 3, 3}, "clsd"},
      {{2, 3, 1, 1}, {3, 1, 1, 1}, "cld"},
      {{4, 1, 1, 1}, {1, 1, 1, 1}, "cld"},
      {{3, 4}, {1, 3}, "d"},
      {{3, 4}, {8, 1}, ""},
      {{3, 4}, {0, 1}, ""},
      {{1, 4}, {99, 1}, "cd"},
      {{0, 4}, {7, 9}, "cd"},
      {{}, {}, "cd"},
  };
  for (const FlagCase& c : cases) {
    const Tensor t = empty_strided(c.sizes, c.strides);
    const std::string flags = c.flags;
    const auto has = [&](char flag) { return flags.find(flag) != std::string::npos; };
    EXPECT_EQ(t.is_contiguous(), has('c')) << to_string(c.sizes) << to_string(c.strides);
    EXPECT_EQ(t.impl()->is_channels_last_contiguous(), has('l'))
        << to_string(c.sizes) << to_string(c.strides);
    EXPECT_EQ(t.impl()->is_channels_last(), has('s')) << to_string(c.sizes) << to_string(c.strides);
    EXPECT_EQ(t.is_non_overlapping_and_dense(), has('d'))
        << to_string(c.sizes) << to_string(c.strides);
  }
  const Tensor volume =
      empty({2, 3, 4, 5, 6}, DType::kF32, Device{}, MemoryFormat::kChannelsLast3d);
  EXPECT_TRUE(volume.impl()->is_channels_last_3d());
  EXPECT_TRUE(volume.is_contiguous(MemoryFormat::kChannelsLast3d));
  EXPECT_FALSE(volume.is_contiguous());
  EXPECT_EQ(volume.suggest_memory_format(), MemoryFormat::kChannelsLast3d);
}

// --- Note [Version counter sharing]
TEST(VersionTest, ViewsAndDetachShare) {
  const Tensor base = zeros({3, 4});
  const Tensor view = base.view({4, 3});
  const Tensor detached = base.slice(0, 1).detach();
  EXPECT_EQ(view.version(), 0u);
  fill_(view, 1);
  EXPECT_EQ(base.version(), 1u);
  EXPECT_EQ(detached.version(), 1u);
  fill_(detached, 2);
  EXPECT_EQ(view.version(), 2u);
  EXPECT_TRUE(base.version_counter().shares_with(view.version_counter()));
}

TEST(VersionTest, DataAndSetDataDoNotShare) {
  const Tensor base = zeros({3, 4});
  const Tensor data = base.data();
  const Tensor view_of_data = data.select(0, 0);
  fill_(view_of_data, 1);
  EXPECT_EQ(data.version(), 1u);
  EXPECT_EQ(base.version(), 0u);
  EXPECT_EQ(base.select(0, 0).select(0, 0).item<float>(), 1);
  const Tensor other = zeros({2}, DType::kF64);
  base.set_data(other);
  EXPECT_TRUE(base.is_alias_of(other));
  EXPECT_EQ(base.dtype(), DType::kF64);
  fill_(base, 3);
  EXPECT_EQ(base.version(), 1u);
  EXPECT_EQ(other.version(), 0u);
}

TEST(TensorTest, SetDataTakesOverWhatATensorIs) {
  const Tensor made = [] {
    const InferenceMode guard;
    return ones({2});
  }();
  const Tensor number = wrapped_number(3.0);
  number.set_data(ones({3}, DType::kF64));
  EXPECT_FALSE(number.is_wrapped_number());
  EXPECT_EQ(result_type(number, ones({3})), DType::kF64);
  const Tensor plain = ones({}, DType::kF64);
  plain.set_data(wrapped_number(3.0));
  EXPECT_TRUE(plain.is_wrapped_number());
  plain.impl()->set_sizes_and_strides({1}, {1}, 0);
  EXPECT_FALSE(plain.is_wrapped_number()) << "it has a dimension";
  number.set_data(made);
  EXPECT_TRUE(number.is_inference());
}

TEST(VersionTest, AHoldOutlivesTheTensorWithoutItsBytes) {
  VariableVersion hold;
  IntrusivePtr<StorageImpl> storage;
  {
    const Tensor t = zeros({4});
    hold = t.version_counter();
    fill_(t, 1);
  }
  EXPECT_EQ(hold.current_version(), 1u);
  EXPECT_FALSE(VariableVersion().enabled());
  EXPECT_THROW(static_cast<void>(VariableVersion().current_version()), InvalidArgument);
}

TEST(VersionTest, ACounterIsBumpedUnlessThereIsNone) {
  const Tensor t = zeros({4});
  t.version_counter().bump();
  EXPECT_EQ(t.version(), 1u);
  EXPECT_THROW(VariableVersion().bump(), InvalidArgument);
}

TEST(VersionTest, InferenceTensorsHaveNone) {
  const Tensor normal = zeros({4});
  Tensor made;
  {
    const InferenceMode guard;
    made = zeros({4});
    EXPECT_TRUE(made.is_inference());
    EXPECT_TRUE(made.alias().is_inference());
    EXPECT_FALSE(normal.alias().is_inference());
    EXPECT_FALSE(made.key_set().has(DispatchKey::kAutograd));
    fill_(made, 1);
    const InferenceMode off(false);
    EXPECT_FALSE(zeros({1}).is_inference());
  }
  EXPECT_THROW(static_cast<void>(made.version()), InvalidArgument);
  EXPECT_THROW(fill_(made, 2), InvalidArgument);
  EXPECT_THROW(made.set_requires_grad(true), InvalidArgument);
  EXPECT_EQ(clone(made).version(), 0u);
}

// --- Undefined tensors
TEST(UndefinedTensorTest, FunctionsRefuseThemByName) {
  const Tensor none, one = ones({2, 2}), mask = ones({2, 2}, DType::kBool);
  const Tensor indices = zeros({1, 2}, DType::kI64);
  const Device meta{DeviceType::kMeta};
  const std::vector<std::pair<const char*, std::function<void()>>> calls = {
      {"copy_", [&] { copy_(none, one); }},
      {"copy_", [&] { copy_(one, none); }},
      {"fill_", [&] { fill_(none, 1); }},
      {"clone", [&] { clone(none); }},
      {"lazy_clone", [&] { lazy_clone(none); }},
      {"contiguous", [&] { contiguous(none); }},
      {"to", [&] { to(none, DType::kF64); }},
      {"to", [&] { to(none, meta); }},
      {"to_host", [&] { to_host(none); }},
      {"empty_like", [&] { empty_like(none); }},
      {"empty_like", [&] { empty_like(none, DType::kF64); }},
      {"zeros_like", [&] { zeros_like(none); }},
      {"ones_like", [&] { ones_like(none); }},
      {"indexing", [&] { one[{none}]; }},
      {"indexing", [&] { one.index_put_({none}, one); }},
      {"index_put_", [&] { one.index_put_({0}, none); }},
      {"index_put_", [&] { one.index_put_({mask}, none); }},
      {"nonzero_positions", [&] { nonzero_positions(none); }},
      {"result_type", [&] { result_type(one, none); }},
      {"uniform_", [&] { uniform_(none); }},
      {"bernoulli_", [&] { bernoulli_(none, 0.5); }},
      {"set_data", [&] { ones({2}).set_data(none); }},
      {"set_", [&] { ones({2}).set_(none); }},
      {"quantize_per_tensor", [&] { quantize_per_tensor(none, 0.1, 0); }},
      {"quantize_per_channel", [&] { quantize_per_channel(none, one, one, 0); }},
      {"quantize_per_channel", [&] { quantize_per_channel(one, none, none, 0); }},
      {"dequantize", [&] { dequantize(none); }},
      {"int_repr", [&] { int_repr(none); }},
      {"to_dense", [&] { to_dense(none); }},
      {"to_sparse_coo", [&] { to_sparse_coo(none); }},
      {"to_sparse_csr", [&] { to_sparse_csr(none); }},
      {"sparse_nnz", [&] { sparse_nnz(none); }},
      {"sparse_coo_tensor", [&] { sparse_coo_tensor(none, ones({2}), {3}); }},
      {"sparse_coo_tensor", [&] { sparse_coo_tensor(indices, none, {3}); }},
      {"sparse_csr_tensor", [&] { sparse_csr_tensor(none, none, none, {3, 3}); }},
      {"with_sparse_values", [&] { with_sparse_values(to_sparse_coo(one), none); }},
      {"as_span", [&] { as_span<float>(none); }},
      {"to_dlpack", [&] { to_dlpack(none); }},
      {"to_dlpack", [&] { to_dlpack_versioned(none); }},
      {"save_npy", [&] { save_npy("/nowhere/x.npy", none); }},
      {"append", [&] { GrowableTensor(one).append(none); }},
  };
  for (const auto& [name, call] : calls)
    EXPECT_EQ(refusal(call),
              std::string(name) + ": an undefined tensor; give it one that was made");
  EXPECT_EQ(to_string(none), "tensor(undefined)");
}

// --- Metadata
TEST(TensorTest, DetachedMetadataIsFixed) {
  const Tensor t = empty({4});
  EXPECT_THROW(t.detach().impl()->set_sizes_contiguous({2, 2}), InvalidArgument);
  t.impl()->set_sizes_contiguous({2, 2});
  EXPECT_EQ(t.sizes(), (IntList{2, 2}));
  EXPECT_THROW(t.impl()->set_sizes_contiguous({3, 2}), InvalidArgument);
  EXPECT_THROW(t.impl()->set_storage_offset(1), InvalidArgument);
}

TEST(TensorTest, NamesAndBackendMetadataTakeRoomOnlyWhereWanted) {
  const Tensor t = empty({2, 3});
  EXPECT_EQ(t.impl()->extra_meta(), nullptr);
  EXPECT_EQ(t.names(), (std::vector<std::string>{"", ""}));
  t.set_names({"batch", "width"});
  EXPECT_EQ(t.detach().names()[1], "width");
  EXPECT_THROW(t.set_names({"batch"}), InvalidArgument);
  struct Handle : BackendMeta {
    IntrusivePtr<BackendMeta> clone() const override { return make_intrusive<Handle>(); }
  };
  t.impl()->ensure_extra_meta().backend = make_intrusive<Handle>();
  EXPECT_TRUE(t.detach().impl()->extra_meta()->backend.defined());
}

TEST(TensorTest, GradientsNeedAFactory) {
  const Tensor t = zeros({2});
  EXPECT_FALSE(t.requires_grad());
  t.set_requires_grad(false);
  EXPECT_FALSE(t.grad().defined());
  EXPECT_THROW(zeros({2}, DType::kI64).set_requires_grad(true), InvalidArgument);
  // This program links no autograd layer, and so has no factory.
  for (const auto& ask : std::vector<std::function<void()>>{
           [&] { t.set_requires_grad(true); }, [&] { t.impl()->ensure_autograd_meta(); },
           [] { static_cast<void>(autograd_meta_factory()); }}) {
    std::string message;
    try {
      ask();
    } catch (const InvalidArgument& error) {
      message = error.what();
    }
    EXPECT_NE(message.find("no autograd layer is linked in"), std::string::npos) << message;
  }
  EXPECT_FALSE(t.requires_grad());
  EXPECT_EQ(t.impl()->autograd_meta(), nullptr);
}

TEST(TensorTest, ManyThreadsMayShareOne) {
  const Tensor t = zeros({8, 8});
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&t] {
      for (int n = 0; n < 2000; ++n) {
        const Tensor view = t.slice(0, n % 8).transpose(0, 1);
        EXPECT_EQ(view.is_contiguous(), n % 8 == 7);
        const Tensor made = empty({n % 50, 3});
        EXPECT_EQ(made.numel(), n % 50 * 3);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(t.use_count(), 1u);
  EXPECT_EQ(t.storage().use_count(), 1u);
}

}  // namespace
}  // namespace tenon
