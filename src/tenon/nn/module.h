// What models are made of: parameters by name, and a forward function. Lists are O(parameters).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tenon/tensor/tensor.h"

namespace tenon::nn {

// A parameter, a buffer or a state, by its path in the model.
struct NamedTensor {
  std::string name;  // "blocks.0.attention.weight"
  Tensor tensor;
};

// Told of every call of a module, with results of any shape and dtype, also of those that backward
// makes again for a checkpoint. What it throws ends the call.
class CallWatcher {
 public:
  virtual ~CallWatcher() = default;
  // Before forward(), and after it with its result. On the calling thread.
  virtual void before_call() = 0;
  virtual void after_call(const Tensor& output) = 0;
};

// A layer or a whole model. Derived classes register what they hold in their constructors, in a
// fixed order, which is the order of every list here:
//
//   struct Net : nn::Module {
//     Net() { register_module("hidden", hidden); register_module("out", out); }
//     Tensor forward(const Tensor& x) override { return (*out)(ops::relu((*hidden)(x))); }
//     std::shared_ptr<nn::Linear> hidden = std::make_shared<nn::Linear>(784, 256), ...
//   };
//
// Calling a module runs forward() with the module's path as the call site of memory events
// (memory/tag.h). So a profile can name the layer of each allocation.
//
// Not copyable: parameters are shared handles. Threads: a module may be called from several threads
// while it is not changed; batch normalisation in training does change itself.
class Module {
 public:
  Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  virtual ~Module() = default;

  // The module's function, and the same with the module's path as the call site of memory events.
  // The derived class says which shapes and dtypes it takes. Throws InvalidArgument for others.
  virtual Tensor forward(const Tensor& input) = 0;
  Tensor operator()(const Tensor& input);

  // With those of the modules inside, whose names come first: "0.weight".
  std::vector<NamedTensor> named_parameters() const;
  std::vector<NamedTensor> named_buffers() const;
  std::vector<Tensor> parameters() const;
  // Parameters and buffers: what a file must hold.
  std::vector<NamedTensor> named_state() const;
  std::int64_t parameter_count() const;  // elements

  // Dropout and batch normalisation behave differently in training. Includes the modules inside.
  void train(bool training = true);
  void eval() { train(false); }
  bool is_training() const { return training_; }

  // Gives every module inside its path, "model.blocks.0", for memory events. Paths are interned:
  // they live as long as the program.
  void set_path(const std::string& path);
  const char* path() const { return path_; }

  // The module whose parameters have names that begin with the path, "blocks.0"; this one for "".
  // Null where there is none.
  Module* find(std::string_view path);
  // Sees each call from now on; null: none does.
  void set_call_watcher(std::shared_ptr<CallWatcher> watcher) { watcher_ = std::move(watcher); }

  // Moves parameters, buffers and gradients to the device. The handles stay. Call it before an
  // optimiser is made, which keeps state beside them. Throws what tenon::to throws. What was moved
  // until then stays there.
  void to(Device device) const;

  // Lets gradients go, so that the next ones take no addition.
  void zero_grad() const;

 protected:
  // Each returns what it was given. A parameter begins to require its gradient. Throws
  // InvalidArgument for a name that is taken, empty, or has a dot in it.
  Tensor register_parameter(std::string name, Tensor parameter);
  // Part of the state, not trained.
  Tensor register_buffer(std::string name, Tensor buffer);
  template <typename M>
  std::shared_ptr<M> register_module(std::string name, std::shared_ptr<M> module) {
    add_module(std::move(name), module);
    return module;
  }
  // Those registered here, in order.
  const std::vector<std::pair<std::string, std::shared_ptr<Module>>>& modules() const {
    return modules_;
  }

 private:
  void add_module(std::string name, std::shared_ptr<Module> module);
  void check_name(const std::string& name) const;
  template <typename Own>
  void collect(const std::string& prefix, Own&& own, std::vector<NamedTensor>& out) const;

  std::vector<NamedTensor> parameters_;
  std::vector<NamedTensor> buffers_;
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> modules_;
  std::shared_ptr<CallWatcher> watcher_;
  const char* path_ = nullptr;  // null: the call site stays what it is
  bool training_ = true;
};

}  // namespace tenon::nn
