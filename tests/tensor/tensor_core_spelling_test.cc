// The tensor-core document's examples and structures as it spells them.
#include "tenon/tensor/compat/tensor_core.h"

#include <gtest/gtest.h>

#include "tenon/tensor/autograd_meta.h"

namespace tensor_core {

TEST(TensorCoreSpelling, Example1StorageSharing) {
  auto a = torch::tensor({{1.0, 2.0}, {3.0, 4.0}});
  EXPECT_EQ(a.data_ptr(), a.storage().data_ptr());
  EXPECT_EQ(a.numel(), 4);
  EXPECT_EQ(a.storage().size(), 4u);
  // Create a view
  auto b = a[0];  // First row
  EXPECT_EQ(b.data_ptr(), b.storage().data_ptr());
  EXPECT_TRUE(a.storage().data_ptr() == b.storage().data_ptr());
  EXPECT_EQ(a.storage_offset(), 0);
  EXPECT_EQ(b.storage_offset(), 0);
  EXPECT_EQ(a.stride(), (c10::IntArrayRef{2, 1}));
  EXPECT_EQ(b.stride(), (c10::IntArrayRef{1}));
  EXPECT_EQ(a.dtype(), c10::ScalarType::kF32);
  EXPECT_THROW(torch::tensor({{1.0, 2.0}, {3.0}}), std::invalid_argument);
}

TEST(TensorCoreSpelling, Example2TransposeIsAView) {
  auto a = torch::randn({3, 4});
  auto b = a.t();  // Transpose
  EXPECT_TRUE(a.storage().data_ptr() == b.storage().data_ptr());
  EXPECT_EQ(a.stride(), (c10::IntArrayRef{4, 1}));
  EXPECT_EQ(b.stride(), (c10::IntArrayRef{1, 4}));
  EXPECT_EQ(b.stride(1), 4);
  // Modifying b affects a (they share storage)
  b[0][1] = 999.0;
  EXPECT_EQ(a[1][0].item<float>(), 999.0f);
  b[0] = torch::ones({3});
  EXPECT_EQ(a[1][0].item<float>(), 1.0f);
}

TEST(TensorCoreSpelling, Example3SlicingWithOffset) {
  auto a = torch::arange(10);
  auto b = a.slice(0, 3, 8);
  EXPECT_EQ(a.storage_offset(), 0);
  EXPECT_EQ(b.storage_offset(), 3);
  EXPECT_EQ(static_cast<char*>(b.data_ptr()) - static_cast<char*>(a.data_ptr()), 24);
  EXPECT_EQ(torch::tensor({7, 8})[1].item<std::int64_t>(), 8);
}

TEST(TensorCoreSpelling, Example4Contiguous) {
  at::Tensor a = torch::randn({3, 4});
  at::Tensor b = a.t();
  EXPECT_TRUE(a.is_contiguous());
  EXPECT_FALSE(b.is_contiguous());
  auto c = b.contiguous();
  EXPECT_TRUE(c.is_contiguous());
  EXPECT_FALSE(b.storage().data_ptr() == c.storage().data_ptr());
}

TEST(TensorCoreSpelling, StorageHasTheDocumentsFunctions) {
  const auto a = torch::zeros({4});
  torch::Storage storage = a.storage();
  EXPECT_EQ(storage.nbytes(), 16u);
  storage.set_nbytes(8);
  EXPECT_EQ(a.storage().nbytes(), 8u);
  EXPECT_EQ(storage.data(), storage.mutable_data());
  EXPECT_EQ(storage.device(), c10::Device(c10::DeviceType::CPU));
  EXPECT_EQ(storage.use_count(), 2u);
  EXPECT_FALSE(storage.unique());
  EXPECT_TRUE(storage.is_alias_of(a.storage()));
  EXPECT_EQ(storage.unsafeGetStorageImpl(), a.unsafeGetTensorImpl()->storage().impl());
}

TEST(TensorCoreSpelling, SizesAndStrides) {
  c10::impl::SizesAndStrides shape;
  shape.resize(2);
  shape.set_sizes({3, 4});
  shape.set_strides({4, 1});
  EXPECT_EQ(shape.size_at(1), 4);
  EXPECT_EQ(shape.stride_at(0), 4);
  EXPECT_EQ(shape.sizes_data() + C10_SIZES_AND_STRIDES_MAX_INLINE_SIZE, shape.strides_data());
}

TEST(TensorCoreSpelling, VersionsOfOnesOwnAndOfTensors) {
  c10::VariableVersion version(3);
  const c10::VariableVersion same = version;
  version.bump();
  EXPECT_EQ(same.current_version(), 4u);
  EXPECT_EQ(c10::VariableVersion().current_version(), 0u);
  EXPECT_FALSE(c10::VariableVersion(c10::VariableVersion::DISABLED).enabled());
  const auto x = torch::zeros({3, 4});
  const auto y = x.view({4, 3});
  x.unsafeGetTensorImpl()->bump_version();
  EXPECT_EQ(c10::VariableVersion(y.version_counter()).current_version(), 1u);
  EXPECT_EQ(x.data().version(), 0u);
  EXPECT_EQ(x.detach().version(), 1u);
}

struct NoFactory final : c10::AutogradMetaFactory {
  std::unique_ptr<c10::AutogradMetaInterface> make() const override { return nullptr; }
};

TEST(TensorCoreSpelling, TheFactoryIsSetOnce) {
  static NoFactory factory;
  c10::SetAutogradMetaFactory(&factory);
  EXPECT_EQ(&tenon::autograd_meta_factory(), &factory);
  c10::SetAutogradMetaFactory(nullptr);
}

}  // namespace tensor_core
