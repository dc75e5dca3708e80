#include "tenon/ops/kernels/cpu/onednn_gemm.h"

#include <array>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>
#include <unordered_map>

#include "tenon/base/align.h"
#include "tenon/base/check.h"
#include "tenon/base/hash.h"
#include "tenon/ops/kernels/cpu/onednn_engine.h"
#include "tenon/ops/kernels/cpu/openmp_threads.h"

namespace tenon::ops::cpu {
namespace {

using dnnl::memory;

constexpr DType kOperands = DType::kBF16;

memory::data_type type_of(DType dtype) {
  return dtype == DType::kBF16 ? memory::data_type::bf16 : memory::data_type::f32;
}

// A thread's memory for copies. It grows to what the largest product needs; one that needs much has
// its own.
class Room {
 public:
  // Aligned to 64 bytes.
  char* take(std::size_t bytes) {
    if (bytes > bytes_) {
      bytes_ = 0;
      room_.reset();
      room_.reset(static_cast<char*>(::operator new(bytes, kAlignment)));
      bytes_ = bytes;
    }
    return room_.get();
  }
  void give() {
    constexpr std::size_t kMuch = 16 << 20;
    if (bytes_ <= kMuch) return;
    room_.reset();
    bytes_ = 0;
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Delete {
    void operator()(char* room) const { ::operator delete(room, kAlignment); }
  };
  std::unique_ptr<char, Delete> room_;
  std::size_t bytes_ = 0;
};

// An operand or a result. oneDNN's kernels for blocks take memory whose rows lie side by side.
class Dense {
 public:
  Dense(DType dtype, std::int64_t rows, std::int64_t columns, const Matrix& matrix)
      : matrix_(matrix),
        lines_(matrix.transposed ? columns : rows),
        length_(matrix.transposed ? rows : columns),
        item_(static_cast<std::int64_t>(item_size(dtype))) {}

  std::size_t room_bytes() const {
    return is_dense() ? 0 : align_up(static_cast<std::size_t>(lines_ * length_ * item_), 64);
  }
  // The matrix, or a copy in `room`, which then begins behind it; without its elements unless
  // `with_elements`.
  const void* read(char*& room, bool with_elements = true) {
    if (is_dense()) return matrix_.data;
    copy_ = room;
    room += room_bytes();
    if (with_elements)
      copy_lines(copy_, length_, static_cast<const char*>(matrix_.data), matrix_.row_stride);
    return copy_;
  }
  void write_back() const {
    if (!is_dense())
      copy_lines(static_cast<char*>(const_cast<void*>(matrix_.data)), matrix_.row_stride, copy_,
                 length_);
  }

 private:
  bool is_dense() const { return matrix_.row_stride == length_ || lines_ == 1; }
  void copy_lines(char* to, std::int64_t to_stride, const char* from,
                  std::int64_t from_stride) const {
    for (std::int64_t i = 0; i < lines_; ++i)
      std::memcpy(to + i * to_stride * item_, from + i * from_stride * item_,
                  static_cast<std::size_t>(length_ * item_));
  }

  const Matrix matrix_;
  const std::int64_t lines_, length_, item_;
  char* copy_ = nullptr;
};

// What a product's kernels are compiled for.
struct Form {
  DType out = DType::kF32;
  std::int64_t count = 1, m = 0, n = 0, k = 0;
  bool a_transposed = false, b_transposed = false, has_bias = false;
  float beta = 0;

  bool operator==(const Form&) const = default;
  std::uint64_t hash() const {
    RunningHash hash;
    for (const std::int64_t part : {count, m, n, k}) hash.add(static_cast<std::uint64_t>(part));
    hash.add((a_transposed ? 1U : 0U) | (b_transposed ? 2U : 0U) | (beta != 0 ? 4U : 0U) |
             (has_bias ? 8U : 0U));
    return hash.value();
  }
};

dnnl::matmul::primitive_desc described(const Form& form) {
  using Tag = memory::format_tag;
  const auto desc = [&](std::int64_t rows, std::int64_t columns, DType dtype, bool transposed) {
    if (form.count == 1)
      return memory::desc({rows, columns}, type_of(dtype), transposed ? Tag::ba : Tag::ab);
    return memory::desc({form.count, rows, columns}, type_of(dtype),
                        transposed ? Tag::acb : Tag::abc);
  };
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (form.beta != 0) {
    dnnl::post_ops after;
    after.append_sum(form.beta);
    attributes.set_post_ops(after);
  }
  const memory::desc a = desc(form.m, form.k, kOperands, form.a_transposed);
  const memory::desc b = desc(form.k, form.n, kOperands, form.b_transposed);
  const memory::desc out = desc(form.m, form.n, form.out, false);
  if (!form.has_bias) return describe<dnnl::matmul>(attributes, a, b, out);
  const memory::desc bias({1, form.n}, type_of(kOperands), Tag::ab);
  return describe<dnnl::matmul>(attributes, a, b, bias, out);
}

// The others hold data in the stack pointer (gemm.cc, Note [Signals in generated code]), or are
// slow references.
bool is_by_blocks(const dnnl::matmul::primitive_desc& chosen) {
  return std::string_view(chosen.impl_info_str()).starts_with("brg");
}

struct Product {
  Product() = default;
  explicit Product(const Form& wanted) : form(wanted) {
    require_memory_for_code();
    const auto chosen = described(form);
    TENON_CHECK(is_by_blocks(chosen), "oneDNN multiplies {} x {} x {} by {}", form.m, form.n,
                form.k, chosen.impl_info_str());
    primitive = dnnl::matmul(chosen);
    a = chosen.src_desc();
    b = chosen.weights_desc();
    bias = chosen.bias_desc();
    out = chosen.dst_desc();
    scratch = chosen.scratchpad_desc();
  }
  Form form;
  dnnl::matmul primitive;
  memory::desc a, b, bias, out, scratch;
};

// The calling thread's, until it asks for another that takes its place.
const Product& product_of(const Form& form) {
  thread_local std::array<Product, 64> known;
  Product& product = known[form.hash() % known.size()];
  if (product.form != form) product = Product(form);
  return product;
}

}  // namespace

bool has_onednn_gemm() {
  static const bool is_there = [] {
    try {
      return is_by_blocks(described({.m = 64, .n = 64, .k = 64}));
    } catch (const dnnl::error&) {  // oneDNN 2 has no bf16 without AVX-512
      return false;
    }
  }();
  return is_there;
}

namespace {

// A batch of more than one has no gaps.
void multiply(const Products& p) {
  const OpenMpThreads one(1);
  const DType out = p.is_narrow ? kOperands : DType::kF32;
  const Form form{out, p.count, p.m, p.n, p.k, p.a.transposed, p.b.transposed, p.bias != nullptr,
                  static_cast<float>(p.beta)};
  const Product& product = product_of(form);
  Dense left(kOperands, p.m, p.k, p.a), right(kOperands, p.k, p.n, p.b);
  Dense result(out, p.m, p.n, {p.out, p.out_stride, false});
  thread_local Room memory_of_thread;
  char* room = memory_of_thread.take(left.room_bytes() + right.room_bytes() + result.room_bytes() +
                                     product.scratch.get_size());
  const auto at = [](const memory::desc& desc, const void* data) {
    return memory(desc, cpu_engine(), const_cast<void*>(data));
  };
  const memory from_a = at(product.a, left.read(room)), from_b = at(product.b, right.read(room));
  const memory to = at(product.out, result.read(room, p.beta != 0));
  dnnl::stream stream(cpu_engine());
  std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, from_a},
                                            {DNNL_ARG_WEIGHTS, from_b},
                                            {DNNL_ARG_DST, to},
                                            {DNNL_ARG_SCRATCHPAD, at(product.scratch, room)}};
  if (p.bias != nullptr) arguments.emplace(DNNL_ARG_BIAS, at(product.bias, p.bias));
  product.primitive.execute(stream, arguments);
  result.write_back();
  memory_of_thread.give();
}

}  // namespace

void onednn_gemm(const Products& p) try {
  const bool is_dense = p.a.row_stride == (p.a.transposed ? p.m : p.k) &&
                        p.b.row_stride == (p.b.transposed ? p.k : p.n) && p.out_stride == p.n &&
                        p.a_apart == p.m * p.k && p.b_apart == p.k * p.n &&
                        p.out_apart == p.m * p.n;
  if (p.count == 1 || is_dense) return multiply(p);
  for (std::int64_t i = 0; i < p.count; ++i) multiply(p.one(i));
} catch (const dnnl::error& failure) {
  if (failure.status == dnnl_out_of_memory) throw std::bad_alloc();
  throw;
}

}  // namespace tenon::ops::cpu
