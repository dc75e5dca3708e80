// What the tensor layer tells gradient metadata, seen by metadata that only writes it down.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tenon/base/error.h"
#include "tenon/tensor/autograd_meta.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/indexing.h"

namespace tenon {
namespace {

std::vector<std::string> told;

class Diary final : public AutogradMetaInterface {
 public:
  void set_requires_grad(bool requires_grad, TensorImpl&) override { requires_ = requires_grad; }
  bool requires_grad() const override { return requires_; }
  Tensor& mutable_grad() override { return grad_; }
  const Tensor& grad() const override { return grad_; }
  const Tensor& fw_grad(std::uint64_t, const Tensor&) const override { return tangent_; }
  void set_fw_grad(const Tensor& tangent, const Tensor&, std::uint64_t, bool) override {
    tangent_ = tangent;
  }
  void view_created(const Tensor& base, Tensor& view, const ViewInfo& info) override {
    EXPECT_TRUE(view.is_alias_of(base));
    told.push_back("view " + std::to_string(static_cast<int>(info.kind)) + " " +
                   to_string(info.sizes) + " " + to_string(IntList(info.numbers, 3)));
  }
  void copied(const Tensor& source, Tensor& copy) override {
    told.push_back("copied " + to_string(source.sizes()) + " as " +
                   std::string(dtype_name(copy.dtype())));
  }
  void written(Tensor& target, const Tensor& source) override {
    told.push_back("written " + to_string(target.sizes()) +
                   (source.defined() ? " from " + to_string(source.sizes()) : " with a constant"));
  }
  void indexed(const Tensor&, Tensor& result, std::span<const Tensor> indices,
               std::int64_t first) override {
    told.push_back("indexed " + to_string(result.sizes()) + " by " +
                   std::to_string(indices.size()) + " at " + std::to_string(first));
  }
  void index_written(Tensor&, std::span<const Tensor>, const Tensor& values, std::int64_t,
                     bool accumulate) override {
    told.push_back("index written " + to_string(values.sizes()) + (accumulate ? " added" : ""));
  }

 private:
  bool requires_ = false;
  Tensor grad_, tangent_;
};

class AutogradHooksTest : public ::testing::Test {
 protected:
  struct Factory final : AutogradMetaFactory {
    std::unique_ptr<AutogradMetaInterface> make() const override {
      return std::make_unique<Diary>();
    }
  };

  AutogradHooksTest() {
    set_autograd_meta_factory(&factory_);
    told.clear();
  }
  ~AutogradHooksTest() override { set_autograd_meta_factory(nullptr); }

  Factory factory_;
};

using Told = std::vector<std::string>;
std::string view(ViewInfo::Kind kind, const char* rest) {
  return "view " + std::to_string(static_cast<int>(kind)) + " " + rest;
}

TEST_F(AutogradHooksTest, MetadataIsMadeWhenWanted) {
  const Tensor t = zeros({2, 3});
  EXPECT_EQ(t.impl()->autograd_meta(), nullptr);
  t.set_requires_grad(true);
  EXPECT_TRUE(t.requires_grad());
  t.impl()->autograd_meta()->mutable_grad() = ones({2, 3});
  EXPECT_EQ(t.grad().numel(), 6);
  EXPECT_FALSE(t.detach().requires_grad());
  EXPECT_EQ(t.detach().impl()->autograd_meta(), nullptr);
  EXPECT_TRUE(told.empty());
}

TEST_F(AutogradHooksTest, ViewsSayHowTheyWereMade) {
  const Tensor t = zeros({2, 3}).set_requires_grad(true);
  using Kind = ViewInfo::Kind;
  t.slice(1, 1, 3, 2);
  t.select(0, -1);
  t.transpose(0, 1);
  t.view({3, -1});
  t.expand({4, 2, 3});
  t.unsqueeze(-1);
  t.diagonal(1);
  t.unfold(1, 2, 1);
  t.as_strided({2}, {1}, 3);
  EXPECT_EQ(
      told,
      (Told{view(Kind::kSlice, "[] [1, 1, 2]"), view(Kind::kSelect, "[] [0, 1, 0]"),
            view(Kind::kPermute, "[1, 0] [0, 0, 0]"), view(Kind::kReshape, "[3, 2] [0, 0, 0]"),
            view(Kind::kExpand, "[4, 2, 3] [0, 0, 0]"), view(Kind::kUnsqueeze, "[] [2, 0, 0]"),
            view(Kind::kDiagonal, "[] [1, 0, 1]"), view(Kind::kUnfold, "[] [1, 2, 1]"),
            view(Kind::kAsStrided, "[2] [3, 0, 0]")}));
}

TEST_F(AutogradHooksTest, CopiesAndWritesAreTold) {
  const Tensor t = zeros({2, 3}).set_requires_grad(true);
  to(t, DType::kF64);
  clone(t);
  told.clear();
  to(t, DType::kF16);
  const Tensor plain = zeros({2, 3});
  copy_(plain, t);
  fill_(t, 1);
  EXPECT_EQ(told, (Told{"copied [2, 3] as float16", "written [2, 3] from [2, 3]",
                        "written [2, 3] with a constant"}));
}

TEST_F(AutogradHooksTest, IndexingByTensorsIsTold) {
  const Tensor t = zeros({4, 3}).set_requires_grad(true);
  const Tensor rows = tensor<std::int64_t>({0, 2});
  static_cast<void>(t[{rows}]);
  t.index_put_({rows}, ones({2, 3}), true);
  EXPECT_EQ(told, (Told{"indexed [2, 3] by 2 at 0", "index written [2, 3] added"}));
}

}  // namespace
}  // namespace tenon
