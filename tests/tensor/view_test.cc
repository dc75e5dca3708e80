// Views against a naive model: a list of (index -> position in storage) built by enumeration.
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <vector>

#include "tenon/base/error.h"
#include "tenon/base/random.h"
#include "tenon/tensor/copy.h"
#include "tenon/tensor/factories.h"
#include "tenon/tensor/tensor.h"

namespace tenon {
namespace {

using Index = std::vector<std::int64_t>;

// All positions in row-major order, read from the elements of a tensor that holds 0, 1, 2, ...
std::vector<std::int64_t> elements(const Tensor& t) {
  std::vector<std::int64_t> out;
  Index index(static_cast<std::size_t>(t.dim()), 0);
  for (std::int64_t n = 0; n < t.numel(); ++n) {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < index.size(); ++d) at += index[d] * t.strides()[d];
    out.push_back(t.const_data_ptr<std::int64_t>()[at]);
    for (std::size_t d = index.size(); d-- > 0;) {
      if (++index[d] < t.sizes()[d]) break;
      index[d] = 0;
    }
  }
  return out;
}

// The model: a shape and a function from index to position.
struct Model {
  Index sizes;
  std::function<std::int64_t(const Index&)> position;

  std::vector<std::int64_t> elements() const {
    std::vector<std::int64_t> out;
    Index index(sizes.size(), 0);
    for (const std::int64_t size : sizes)
      if (size == 0) return out;
    for (;;) {
      out.push_back(position(index));
      std::size_t d = sizes.size();
      while (d > 0 && ++index[d - 1] == sizes[d - 1]) index[--d] = 0;
      if (d == 0) return out;
    }
  }
};

Model model_of(IntList sizes) {
  return {Index(sizes.begin(), sizes.end()), [s = sizes.to_vector()](const Index& index) {
            std::int64_t at = 0;
            for (std::size_t d = 0; d < index.size(); ++d) at = at * s[d] + index[d];
            return at;
          }};
}

// One random view of both.
void step(Random& random, Tensor& t, Model& m) {
  const auto ndim = static_cast<std::int64_t>(m.sizes.size());
  const auto pick = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(n)));
  };
  const std::int64_t d = ndim == 0 ? 0 : pick(ndim);
  const auto at = static_cast<std::size_t>(d);
  const auto before = m.position;
  switch (random.below(7)) {
    case 0: {
      if (ndim == 0) return;
      const std::int64_t size = m.sizes[at];
      const std::int64_t start = pick(size + 1), stop = pick(size + 1), by = 1 + pick(3);
      t = t.slice(d - ndim, start, stop, by);
      m.sizes[at] = stop <= start ? 0 : (stop - start + by - 1) / by;
      m.position = [=](Index i) {
        i[at] = start + i[at] * by;
        return before(i);
      };
      return;
    }
    case 1: {
      if (ndim == 0 || m.sizes[at] == 0) return;
      const std::int64_t chosen = pick(m.sizes[at]);
      t = t.select(d, chosen);
      m.sizes.erase(m.sizes.begin() + d);
      m.position = [=](Index i) {
        i.insert(i.begin() + d, chosen);
        return before(i);
      };
      return;
    }
    case 2: {
      if (ndim == 0) return;
      const std::int64_t e = pick(ndim);
      t = t.transpose(d, e);
      std::swap(m.sizes[at], m.sizes[static_cast<std::size_t>(e)]);
      m.position = [=](Index i) {
        std::swap(i[at], i[static_cast<std::size_t>(e)]);
        return before(i);
      };
      return;
    }
    case 3: {
      if (ndim >= 7) return;
      t = t.unsqueeze(d);
      m.sizes.insert(m.sizes.begin() + d, 1);
      m.position = [=](Index i) {
        i.erase(i.begin() + d);
        return before(i);
      };
      return;
    }
    case 4: {
      if (ndim == 0 || m.sizes[at] != 1) return;
      t = t.squeeze(d);
      m.sizes.erase(m.sizes.begin() + d);
      m.position = [=](Index i) {
        i.insert(i.begin() + d, 0);
        return before(i);
      };
      return;
    }
    case 5: {
      if (ndim < 2) return;
      const std::int64_t e = (d + 1) % ndim;
      const std::int64_t offset = pick(5) - 2;
      t = t.diagonal(offset, d, e);
      const std::int64_t rows = m.sizes[at] + std::min<std::int64_t>(offset, 0);
      const std::int64_t columns =
          m.sizes[static_cast<std::size_t>(e)] - std::max<std::int64_t>(offset, 0);
      m.sizes.erase(m.sizes.begin() + std::max(d, e));
      m.sizes.erase(m.sizes.begin() + std::min(d, e));
      m.sizes.push_back(std::max<std::int64_t>(0, std::min(rows, columns)));
      m.position = [=](Index i) {
        const std::int64_t n = i.back();
        i.pop_back();
        const std::int64_t of_d = n - std::min<std::int64_t>(offset, 0);
        const std::int64_t of_e = n + std::max<std::int64_t>(offset, 0);
        i.insert(i.begin() + std::min(d, e), d < e ? of_d : of_e);
        i.insert(i.begin() + std::max(d, e), d < e ? of_e : of_d);
        return before(i);
      };
      return;
    }
    default: {
      if (ndim == 0 || ndim >= 7) return;
      const std::int64_t size = pick(m.sizes[at] + 1), by = 1 + pick(2);
      t = t.unfold(d, size, by);
      m.sizes[at] = (m.sizes[at] - size) / by + 1;
      m.sizes.push_back(size);
      m.position = [=](Index i) {
        const std::int64_t within = i.back();
        i.pop_back();
        i[at] = i[at] * by + within;
        return before(i);
      };
    }
  }
}

TEST(ViewTest, RandomChainsAgreeWithANaiveModel) {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    DimVector sizes;
    const std::uint64_t ndim = random.below(7);
    for (std::uint64_t d = 0; d < ndim; ++d)
      sizes.push_back(static_cast<std::int64_t>(random.between(1, 4)));
    Tensor t = arange(numel_of(sizes)).view(sizes);
    const Tensor base = t;
    Model m = model_of(sizes);
    for (int i = 0; i < 5; ++i) {
      step(random, t, m);
      ASSERT_EQ(Index(t.sizes().begin(), t.sizes().end()), m.sizes);
      ASSERT_EQ(elements(t), m.elements());
      ASSERT_TRUE(t.is_alias_of(base));
    }
    // A copy in any order has the same values, and so has whatever reshape gives.
    EXPECT_EQ(elements(clone(t)), m.elements());
    EXPECT_EQ(elements(contiguous(t)), m.elements());
    EXPECT_TRUE(contiguous(t).is_contiguous());
    EXPECT_EQ(elements(t.reshape({-1})), m.elements());
    EXPECT_EQ(elements(to(to(t, DType::kF64), DType::kI64)), m.elements());
  }
}

TEST(ViewTest, ReshapeIsAViewExactlyWhereMemoryAllows) {
  const Tensor t = arange(24).view({2, 3, 4});
  EXPECT_TRUE(t.reshape({6, -1}).is_alias_of(t));
  EXPECT_TRUE(t.transpose(0, 1).reshape({3, 2, 2, 2}).is_alias_of(t));
  EXPECT_FALSE(t.transpose(0, 1).reshape({6, 4}).is_alias_of(t));
  EXPECT_THROW(t.transpose(0, 1).view({6, 4}), InvalidArgument);
  EXPECT_THROW(t.view({5, -1}), InvalidArgument);
  EXPECT_THROW(t.view({-1, -1}), InvalidArgument);
  EXPECT_THROW(t.view({25}), InvalidArgument);
  EXPECT_EQ(t.flatten(1).sizes(), (IntList{2, 12}));
  EXPECT_EQ(t.unflatten(2, {2, -1}).sizes(), (IntList{2, 3, 2, 2}));
  EXPECT_EQ(empty({}).flatten().sizes(), (IntList{1}));
  EXPECT_EQ(empty({0, 3}).view({3, 0, 7}).sizes(), (IntList{3, 0, 7}));
}

TEST(ViewTest, ExpandReadsOneElementManyTimes) {
  const Tensor t = arange(3).view({3, 1});
  const Tensor wide = t.expand({2, -1, 4});
  EXPECT_EQ(wide.sizes(), (IntList{2, 3, 4}));
  EXPECT_EQ(wide.strides(), (IntList{0, 1, 0}));
  EXPECT_THROW(t.expand({3}), InvalidArgument);
  EXPECT_THROW(t.expand({4, 4}), InvalidArgument);
  EXPECT_THROW(fill_(wide, 1), InvalidArgument);
}

TEST(ViewTest, PermutationsAreChecked) {
  const Tensor t = arange(24).view({2, 3, 4});
  EXPECT_EQ(t.permute({2, 0, 1}).sizes(), (IntList{4, 2, 3}));
  EXPECT_EQ(t.permute({-1, 0, 1}).sizes(), (IntList{4, 2, 3}));
  EXPECT_EQ(t.movedim(0, 2).sizes(), (IntList{3, 4, 2}));
  EXPECT_EQ(t.movedim(IntList{0, 1}, IntList{2, 0}).sizes(), (IntList{3, 4, 2}));
  EXPECT_EQ(t.select(0, 0).t().sizes(), (IntList{4, 3}));
  EXPECT_THROW(t.permute({0, 1}), InvalidArgument);
  EXPECT_THROW(t.permute({0, 1, 1}), InvalidArgument);
  EXPECT_THROW(t.movedim(IntList{0, 0}, IntList{1, 2}), InvalidArgument);
  EXPECT_THROW(t.t(), InvalidArgument);
  EXPECT_THROW(t.transpose(0, 3), InvalidArgument);
}

TEST(ViewTest, PiecesCoverTheWhole) {
  const Tensor t = arange(14).view({7, 2});
  const std::vector<Tensor> pieces = t.chunk(3);
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[2].sizes(), (IntList{1, 2}));
  EXPECT_EQ(t.split(3)[1].sizes(), (IntList{3, 2}));
  EXPECT_EQ(t.split(IntList{1, 6})[1].size(0), 6);
  EXPECT_EQ(t.unbind(1)[1].sizes(), (IntList{7}));
  EXPECT_EQ(empty({0, 2}).split(3).size(), 1u);
  EXPECT_EQ(empty({0, 2}).chunk(3).size(), 3u);
  EXPECT_THROW(t.split(IntList{1, 5}), InvalidArgument);
  EXPECT_THROW(t.split(0), InvalidArgument);
  EXPECT_THROW(t.chunk(0), InvalidArgument);
}

TEST(ViewTest, BadViewsShowTheShape) {
  const Tensor t = arange(6).view({2, 3});
  for (const std::function<Tensor()>& bad : std::vector<std::function<Tensor()>>{
           [&] { return t.select(0, 2); }, [&] { return t.narrow(1, 2, 2); },
           [&] { return t.slice(0, 0, 1, 0); },
           [&] {
             return t.as_strided({3, 3}, {3, 1});
           },
           [&] { return t.unfold(1, 4, 1); }, [&] { return t.diagonal(0, 1, 1); },
           [&] {
             return t.expand({4, 3});
           },
           [&] { return t.view({4}); }}) {
    try {
      bad();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find('['), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(t.as_strided({2}, {-1}, 5), InvalidArgument);
  EXPECT_THROW(t.as_strided({INT64_MAX / 2, 3}, {INT64_MAX / 2, 1}), InvalidArgument);
  EXPECT_THROW(empty({}).select(0, 0), InvalidArgument);
}

TEST(ViewTest, SlicesClampAsPython) {
  const Tensor t = arange(10);
  EXPECT_EQ(elements(t.slice(0, 3, 8)), (Index{3, 4, 5, 6, 7}));
  EXPECT_EQ(elements(t.slice(0, -3)), (Index{7, 8, 9}));
  EXPECT_EQ(elements(t.slice(0, 1, 100, 4)), (Index{1, 5, 9}));
  EXPECT_EQ(t.slice(0, 8, 3).numel(), 0);
  EXPECT_EQ(t.slice(0, 3, 8).storage_offset(), 3);
}

TEST(ViewTest, BytesCanBeSeenAsAnotherDtype) {
  const Tensor t = arange(8).view({2, 4});
  EXPECT_EQ(t.view_dtype(DType::kI32).sizes(), (IntList{2, 8}));
  EXPECT_EQ(t.view_dtype(DType::kC128).sizes(), (IntList{2, 2}));
  EXPECT_EQ(t.view_dtype(DType::kF64).sizes(), (IntList{2, 4}));
  EXPECT_THROW(t.slice(1, 1).view_dtype(DType::kC128), InvalidArgument);
  EXPECT_THROW(t.t().view_dtype(DType::kI32), InvalidArgument);
}

}  // namespace
}  // namespace tenon
