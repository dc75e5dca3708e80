#include "tenon/autograd/variable.h"

#include "tenon/base/error.h"

namespace tenon::autograd {
namespace {

struct Block {
  std::shared_ptr<MemoryPool> pool;
  void* data;
};

void give_back(void* context) {
  const std::unique_ptr<Block> block(static_cast<Block*>(context));
  block->pool->deallocate(block->data);
}

}  // namespace

SharedPoolAllocator::SharedPoolAllocator(std::shared_ptr<MemoryPool> pool)
    : pool_(std::move(pool)) {
  if (pool_ == nullptr) throw InvalidArgument("SharedPoolAllocator: there is no pool");
}

DataPtr SharedPoolAllocator::allocate(std::size_t size_bytes) {
  if (size_bytes == 0) return DataPtr(Device{});
  auto block = std::make_unique<Block>(Block{pool_, nullptr});
  block->data = pool_->allocate(size_bytes);
  void* const data = block->data;
  return DataPtr(data, block.release(), &give_back, Device{});
}

Variable::Variable(const Tensor& data, bool requires_grad, std::shared_ptr<MemoryPool> pool)
    : data_(data) {
  if (pool != nullptr) allocator_ = std::make_shared<SharedPoolAllocator>(std::move(pool));
  if (data.requires_grad() && requires_grad) return;
  data_ = Tensor(data.impl()->shallow_copy(true, true));
  data_.set_requires_grad(requires_grad);
}

void Variable::backward(const Tensor& gradient, BackwardOptions options) const {
  if (options.allocator == nullptr) options.allocator = allocator_.get();
  autograd::backward(data_, gradient, options);
}

}  // namespace tenon::autograd
