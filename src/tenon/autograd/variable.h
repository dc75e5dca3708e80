// A tensor of any shape with its gradient, and the pool that its backward works in. O(1), except
// backward().
#pragma once

#include <memory>

#include "tenon/autograd/autograd.h"
#include "tenon/memory/compat/memory_pool.h"

namespace tenon::autograd {

// Memory from a MemoryPool for tensors on the host. Each block keeps the pool alive, so tensors may
// outlive this. Thread-safe, as the pool is. Throws what the pool throws.
class SharedPoolAllocator final : public Allocator {
 public:
  // Throws InvalidArgument for a null pool.
  explicit SharedPoolAllocator(std::shared_ptr<MemoryPool> pool);
  DataPtr allocate(std::size_t size_bytes) override;
  void copy_data(void* dest, const void* src, std::size_t size_bytes) const override {
    default_copy_data(dest, src, size_bytes);
  }

 private:
  const std::shared_ptr<MemoryPool> pool_;
};

// A handle on a tensor, copied like one. A leaf is made of the data: it shares their memory and
// version. Data that are the result of recorded calls stay that result, so the variable of a loss
// can begin a backward. With a pool, everything that backward allocates (temporaries, and the grads
// that stay) comes from it; without one, from the thread's current allocator.
//
//   Variable w(randn({784, 10}), true, pool);
//   Variable loss(ops::cross_entropy(ops::matmul(x, w), classes), true, pool);
//   loss.backward();
//   w.grad();
class Variable {
 public:
  // Throws InvalidArgument where the data cannot require a gradient (integers, inference tensors).
  explicit Variable(const Tensor& data, bool requires_grad = true,
                    std::shared_ptr<MemoryPool> pool = nullptr);

  // The tensor, its gradient (undefined where there is none), whether it needs one. zero_grad
  // frees the gradient.
  const Tensor& data() const { return data_; }
  operator const Tensor&() const { return data_; }
  const Tensor& grad() const { return data_.grad(); }
  bool requires_grad() const { return data_.requires_grad(); }
  void zero_grad() const { clear_grad(data_); }
  // As autograd::backward. An allocator of the options goes before the pool.
  void backward(const Tensor& gradient = {}, BackwardOptions options = {}) const;

 private:
  Tensor data_;
  std::shared_ptr<SharedPoolAllocator> allocator_;
};

}  // namespace tenon::autograd
