#include "rigs/known_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>

#include "tenon/base/byte_size.h"
#include "tenon/base/random.h"
#include "tenon/trace/trace_builder.h"

namespace tenon {
namespace {

enum class Stacks : std::uint8_t { kPython, kAll, kNone };
enum class Optimizer : std::uint8_t { kSgd, kMomentum, kForeach, kFused, kLoop, kAdafactor, kOwn };
constexpr const char* kOptimizers[] = {
    "sgd",         "sgd with momentum", "adam (foreach)",        "adam (fused)",
    "adam (loop)", "adafactor",         "the program's own adam"};

struct Design {
  int model = 0;  // 0 transformer, 1 convolutions, 2 perceptron
  int layers = 4;
  std::uint64_t unit = 0;    // bytes of one hidden activation
  std::uint64_t weight = 0;  // bytes of one weight matrix
  std::uint64_t logits = 0;  // bytes
  Optimizer optimizer = Optimizer::kForeach;
  bool trains = true;
  bool checkpoints = false;
  bool library_model = false;  // the model stands in an installed package
  int accumulation = 1;
  int iterations = 3;
  bool static_cache = false;
  Stacks stacks = Stacks::kPython;
  bool annotated = true;
  bool late = false;
  bool fails = false;
  bool frees_gradients_early = true;  // zero_grad right after the step
};

Design draw(Random& random) {
  Design d;
  d.model = static_cast<int>(random.below(3));
  d.layers = static_cast<int>(random.between(2, 16));
  d.unit = random.between(1, 64) * 256 * kKiB + 512 * random.below(9);
  d.weight = random.between(1, 32) * 256 * kKiB + 512 * random.below(7);
  d.logits = d.model == 0 ? random.between(2, 12) * d.unit : 4 * kKiB * random.between(1, 64);
  d.optimizer = static_cast<Optimizer>(random.below(7));
  d.trains = random.below(4) != 0;
  d.checkpoints = d.trains && random.below(4) == 0;
  d.library_model = random.below(2) == 0;
  d.accumulation = random.below(3) == 0 ? static_cast<int>(random.between(2, 4)) : 1;
  d.iterations = static_cast<int>(random.between(2, 5));
  d.static_cache = random.below(2) == 0;
  const std::uint64_t stacks = random.below(10);
  d.stacks = stacks < 4 ? Stacks::kPython : stacks < 9 ? Stacks::kAll : Stacks::kNone;
  d.annotated = random.below(2) == 0;
  d.late = random.below(4) == 0;
  d.fails = random.below(4) == 0;
  d.frees_gradients_early = random.below(2) == 0;
  return d;
}

// One operator of a layer's forward.
struct Op {
  const char* op;      // "linear"
  const char* kernel;  // "addmm"
  const char* node;    // "AddmmBackward0"
  const char* module;  // a file of torch, or null: the model's own line
  double units;        // bytes of the result, in units
  bool saved;          // backward needs the result
  bool weight;         // has a weight
};

constexpr Op kTransformer[] = {
    {"layer_norm", "native_layer_norm", "NativeLayerNormBackward0",
     "torch/nn/modules/normalization.py", 1, true, false},
    {"linear", "addmm", "AddmmBackward0", "torch/nn/modules/linear.py", 3, true, true},
    {"scaled_dot_product_attention", "_scaled_dot_product_flash_attention",
     "ScaledDotProductFlashAttentionBackward0", nullptr, 1, true, false},
    {"linear", "addmm", "AddmmBackward0", "torch/nn/modules/linear.py", 1, false, true},
    {"add", "", "AddBackward0", nullptr, 1, true, false},
    {"linear", "addmm", "AddmmBackward0", "torch/nn/modules/linear.py", 4, true, true},
    {"gelu", "", "GeluBackward0", "torch/nn/modules/activation.py", 4, true, false},
    {"linear", "addmm", "AddmmBackward0", "torch/nn/modules/linear.py", 1, false, true},
    {"dropout", "native_dropout", "NativeDropoutBackward0", "torch/nn/functional.py", 0.25, true,
     false},
    {"add", "", "AddBackward0", nullptr, 1, true, false}};
constexpr Op kConvolutions[] = {
    {"conv2d", "convolution", "ConvolutionBackward0", "torch/nn/modules/conv.py", 2, true, true},
    {"batch_norm", "cudnn_batch_norm", "CudnnBatchNormBackward0", "torch/nn/functional.py", 2, true,
     false},
    {"relu", "clamp_min", "ReluBackward0", "torch/nn/functional.py", 2, true, false},
    {"max_pool2d", "max_pool2d_with_indices", "MaxPool2DWithIndicesBackward0",
     "torch/nn/functional.py", 0.5, true, false}};
constexpr Op kPerceptron[] = {
    {"linear", "addmm", "AddmmBackward0", "torch/nn/modules/linear.py", 1, false, true},
    {"relu", "clamp_min", "ReluBackward0", "torch/nn/functional.py", 1, true, false}};

// Events as they come, before the recording's beginning is cut off.
struct Raw {
  bool alloc = false;
  std::uint32_t block = 0;
  std::uint32_t site = 0;
  int mark = 0;  // 1: a step begins, 2: it ends
};

class Program {
 public:
  explicit Program(std::uint64_t seed) : random_(seed), d_(draw(random_)) {}

  KnownProgram make() {
    set_up();
    if (d_.trains) {
      for (int i = 0; i < d_.iterations && !ended_; ++i) train_step(i);
    } else {
      infer();
    }
    return finish();
  }

 private:
  // --- Stacks

  std::uint32_t frame(std::string_view function, std::string_view file, std::uint32_t line) {
    return sites_.add_frame(function, file, line);
  }
  // Python's frames, innermost first, with the interpreter's between them where C++ is recorded.
  void add_python(std::vector<std::uint32_t>& frames,
                  std::initializer_list<std::tuple<std::string, std::string, int>> lines) {
    for (const auto& [function, file, line] : lines) {
      frames.push_back(frame(function, file, static_cast<std::uint32_t>(line)));
      if (d_.stacks == Stacks::kAll) {
        frames.push_back(frame("_PyEval_EvalFrameDefault", "??", 0));
        frames.push_back(frame("_PyFunction_Vectorcall", "??", 0));
      }
    }
  }
  void add_operator(std::vector<std::uint32_t>& frames, const std::string& op,
                    const std::string& kernel, bool workspace = false) {
    if (d_.stacks != Stacks::kAll) return;
    for (const char* name :
         {"torch::unwind::unwind()", "torch::CapturedTraceback::gather(bool, bool, bool)",
          "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(int)"})
      frames.push_back(frame(name, "??", 0));
    if (workspace) {
      frames.push_back(frame("at::cuda::getNewWorkspace()", "", 0));
      frames.push_back(frame("at::cuda::getCurrentCUDABlasHandle()", "??", 0));
    } else {
      frames.push_back(frame("at::detail::empty_cuda(c10::ArrayRef<long>)", "??", 0));
    }
    for (const std::string& name : {kernel, op})
      if (!name.empty())
        frames.push_back(frame("at::_ops::" + name + "::call(at::Tensor const&)", "??", 0));
  }
  std::uint32_t site(const std::vector<std::uint32_t>& frames) {
    if (d_.stacks == Stacks::kNone) return 0;
    return frames.empty() ? 0 : sites_.add_site({sites_.add_stack(frames), 0, 0});
  }
  std::string model_file() const {
    return d_.library_model ? "/opt/lib/python3.11/site-packages/zoo/models/net.py"
                            : "/home/me/project/net.py";
  }
  static std::string torch_file(const std::string& file) {
    return "/opt/lib/python3.11/site-packages/" + file;
  }

  std::uint32_t forward_site(const Op& op, int line, bool recomputed = false,
                             bool workspace = false) {
    std::vector<std::uint32_t> frames;
    add_operator(frames, op.op, op.kernel, workspace);
    if (op.module != nullptr)
      add_python(frames, {{"forward", torch_file(op.module), 120 + line},
                          {"_call_impl", torch_file("torch/nn/modules/module.py"), 1790}});
    add_python(frames, {{"forward", model_file(), 40 + line},
                        {"_call_impl", torch_file("torch/nn/modules/module.py"), 1790}});
    if (recomputed) {
      add_python(frames, {{"backward", torch_file("torch/utils/checkpoint.py"), 300},
                          {"apply", torch_file("torch/autograd/function.py"), 288}});
      if (d_.stacks == Stacks::kAll) {
        frames.push_back(
            frame("torch::autograd::PyNode::apply(std::vector<at::Tensor>&&)", "??", 0));
        add_engine(frames);
      }
      return site(frames);
    }
    add_python(frames, {{"train_one", "/home/me/project/train.py", 88},
                        {"<module>", "/home/me/project/train.py", 140}});
    return site(frames);
  }
  std::uint32_t loop_site(const std::string& op, int line) {
    std::vector<std::uint32_t> frames;
    add_operator(frames, op, "");
    add_python(frames, {{"train_one", "/home/me/project/train.py", line},
                        {"<module>", "/home/me/project/train.py", 140}});
    return site(frames);
  }
  std::uint32_t loss_site() {
    std::vector<std::uint32_t> frames;
    add_operator(frames, "cross_entropy_loss", "_log_softmax");
    add_python(frames, {{"cross_entropy", torch_file("torch/nn/functional.py"), 3504},
                        {"train_one", "/home/me/project/train.py", 90},
                        {"<module>", "/home/me/project/train.py", 140}});
    return site(frames);
  }
  std::uint32_t module_site(const char* function) {
    std::vector<std::uint32_t> frames;
    add_operator(frames, "to", "_to_copy");
    add_python(frames, {{function, torch_file("torch/nn/modules/module.py"), 1370},
                        {"_apply", torch_file("torch/nn/modules/module.py"), 965},
                        {"to", torch_file("torch/nn/modules/module.py"), 1384},
                        {"<module>", "/home/me/project/train.py", 120}});
    return site(frames);
  }
  void add_engine(std::vector<std::uint32_t>& frames) {
    for (const char* name : {"torch::autograd::Node::operator()(std::vector<at::Tensor>&&)",
                             "torch::autograd::Engine::evaluate_function(int)",
                             "torch::autograd::python::PythonEngine::thread_init(int)"})
      frames.push_back(frame(name, "??", 0));
  }
  std::uint32_t backward_site(const std::string& node, const std::string& op,
                              bool workspace = false) {
    std::vector<std::uint32_t> frames;
    if (d_.stacks == Stacks::kAll) {
      add_operator(frames, op, "", workspace);
      frames.push_back(frame(
          "torch::autograd::generated::" + node + "::apply(std::vector<at::Tensor>&&)", "??", 0));
      add_engine(frames);
    }
    return site(frames);
  }
  std::uint32_t step_site(const char* function, int line, const std::string& op) {
    std::vector<std::uint32_t> frames;
    add_operator(frames, op, "");
    if (d_.optimizer == Optimizer::kOwn) {
      add_python(frames, {{"step", "/home/me/project/optimizers.py", line}});
    } else if (d_.optimizer == Optimizer::kAdafactor) {
      add_python(frames, {{"step", "/opt/lib/python3.11/site-packages/transformers/optimization.py",
                           line}});
      add_python(frames, {{"wrapper", torch_file("torch/optim/optimizer.py"), 533}});
    } else {
      const bool sgd = d_.optimizer == Optimizer::kSgd || d_.optimizer == Optimizer::kMomentum;
      add_python(frames,
                 {{function, torch_file(sgd ? "torch/optim/sgd.py" : "torch/optim/adam.py"), line},
                  {"step", torch_file(sgd ? "torch/optim/sgd.py" : "torch/optim/adam.py"), 248},
                  {"wrapper", torch_file("torch/optim/optimizer.py"), 533}});
    }
    add_python(frames, {{"train_one", "/home/me/project/train.py", 95},
                        {"<module>", "/home/me/project/train.py", 140}});
    return site(frames);
  }

  // --- Memory

  std::uint32_t alloc(std::uint64_t bytes, Category category, std::uint32_t from) {
    if (ended_) return 0;
    const auto block = static_cast<std::uint32_t>(sizes_.size());
    sizes_.push_back(std::max<std::uint64_t>(bytes, 4));
    truth_.push_back(category);
    raw_.push_back({true, block, from});
    if (fail_after_ != 0 && sizes_.size() >= fail_after_) ended_ = true;
    return block;
  }
  void free(std::uint32_t block) {
    if (!ended_) raw_.push_back({false, block, 0});
  }

  std::span<const Op> ops() const {
    if (d_.model == 0) return kTransformer;
    if (d_.model == 1) return kConvolutions;
    return kPerceptron;
  }

  // --- The program

  void set_up() {
    const std::uint32_t at = module_site("convert");
    for (int layer = 0; layer < d_.layers; ++layer)
      for (const Op& op : ops())
        if (op.weight) {
          weights_.push_back(alloc(weight_bytes(op), Category::kWeights, at));
          weights_.push_back(alloc(4 * kKiB, Category::kWeights, at));  // its bias
        }
    head_ = weights_.size();
    weights_.push_back(alloc(d_.logits / 2 + d_.weight, Category::kWeights, at));
    if (d_.fails) fail_after_ = sizes_.size() + random_.between(20, 60 * d_.layers);
  }
  std::uint64_t weight_bytes(const Op& op) const {
    return static_cast<std::uint64_t>(static_cast<double>(d_.weight) * std::max(1.0, op.units));
  }
  std::uint64_t result_bytes(const Op& op) const {
    return static_cast<std::uint64_t>(static_cast<double>(d_.unit) * op.units);
  }

  struct Saved {
    std::uint32_t block = 0;
    bool live = false;
  };

  // Runs a layer forward; what backward needs is kept by operator.
  std::vector<Saved> run_layer(bool recomputed) {
    std::vector<Saved> kept;
    std::uint32_t passing = 0;  // a result that only the next operator needs
    bool has_passing = false;
    int line = 0;
    for (const Op& op : ops()) {
      if (op.weight && !workspace_) {
        workspace_ = true;
        alloc(8'519'680, Category::kWorkspaces, forward_site(op, line, recomputed, true));
      }
      const std::uint32_t result =
          alloc(result_bytes(op), op.saved ? Category::kActivations : Category::kTemporaries,
                forward_site(op, line, recomputed));
      if (has_passing) free(passing);
      has_passing = !op.saved;
      passing = result;
      kept.push_back({result, op.saved});
      ++line;
    }
    if (has_passing) free(passing);
    return kept;
  }

  void train_step(int iteration) {
    for (int micro = 0; micro < d_.accumulation && !ended_; ++micro) {
      const std::uint32_t batch = alloc(d_.unit / 4, Category::kInputs, loop_site("to", 86));
      std::vector<std::vector<Saved>> layers;
      std::vector<std::uint32_t> layer_inputs;
      for (int layer = 0; layer < d_.layers; ++layer) {
        if (d_.checkpoints) {
          for (const Saved& saved : run_layer(false))
            if (saved.live) {
              truth_[saved.block] = Category::kTemporaries;
              free(saved.block);
            }
          layer_inputs.push_back(
              alloc(d_.unit, Category::kActivations, forward_site(ops().back(), 30)));
        } else {
          layers.push_back(run_layer(false));
        }
      }
      const std::uint32_t logits =
          alloc(d_.logits, Category::kLoss, forward_site(kPerceptron[0], 60));
      const std::uint32_t probabilities = alloc(d_.logits, Category::kLoss, loss_site());
      const std::uint32_t loss = alloc(4, Category::kLoss, loss_site());
      // Backward.
      std::uint32_t gradient =
          alloc(d_.logits, Category::kGradients,
                backward_site("LogSoftmaxBackward0", "_log_softmax_backward_data"));
      free(probabilities);
      std::uint32_t next =
          alloc(d_.unit, Category::kGradients, backward_site("AddmmBackward0", "mm"));
      weight_gradient(head_, "AddmmBackward0");
      free(gradient);
      free(logits);
      gradient = next;
      std::size_t weight = head_;
      for (int layer = d_.layers; layer-- > 0 && !ended_;) {
        std::vector<Saved> saved =
            d_.checkpoints ? run_layer(true) : layers[static_cast<std::size_t>(layer)];
        for (std::size_t i = ops().size(); i-- > 0;) {
          const Op& op = ops()[i];
          if (!is_view(op)) {
            next = alloc(result_bytes(op), Category::kGradients, backward_site(op.node, "mm"));
            free(gradient);
            gradient = next;
          }
          if (op.weight) {
            weight -= 2;
            weight_gradient(weight + 1, op.node);
            weight_gradient(weight, op.node);
          }
          if (saved[i].live) free(saved[i].block);
        }
        if (d_.checkpoints) free(layer_inputs[static_cast<std::size_t>(layer)]);
      }
      free(gradient);
      free(loss);
      free(batch);
    }
    if (!ended_) step(iteration);
  }
  static bool is_view(const Op& op) { return std::string_view(op.op) == "add"; }

  void weight_gradient(std::size_t weight, const char* node) {
    const std::uint32_t made =
        alloc(sizes_[weights_[weight]], Category::kGradients, backward_site(node, "mm"));
    const auto [held, fresh] = gradients_.try_emplace(weight, made);
    if (!fresh) free(made);  // added to the one that is there
  }

  void step(int iteration) {
    if (d_.annotated) raw_.push_back({false, 0, 0, 1});
    const bool adam = d_.optimizer != Optimizer::kSgd && d_.optimizer != Optimizer::kMomentum &&
                      d_.optimizer != Optimizer::kAdafactor;
    if (iteration == 0) {
      for (const std::uint32_t weight : weights_) {
        if (adam)
          for (const int line : {178, 182})
            alloc(sizes_[weight], Category::kOptimizerState,
                  step_site("_init_group", line, "zeros_like"));
        if (d_.optimizer == Optimizer::kMomentum)
          alloc(sizes_[weight], Category::kOptimizerState,
                step_site("_multi_tensor_sgd", 390, "clone"));
        if (d_.optimizer == Optimizer::kAdafactor)
          for (const int line : {686, 687})
            alloc(sizes_[weight] / 512, Category::kOptimizerState,
                  step_site("step", line, "zeros"));
      }
    }
    if (d_.optimizer == Optimizer::kForeach || d_.optimizer == Optimizer::kAdafactor) {
      std::vector<std::uint32_t> scratch;
      for (const std::uint32_t weight : weights_)
        scratch.push_back(alloc(sizes_[weight], Category::kTemporaries,
                                step_site("_multi_tensor_adam", 791, "_foreach_sqrt")));
      for (const std::uint32_t block : scratch) free(block);
    } else if (d_.optimizer == Optimizer::kLoop || d_.optimizer == Optimizer::kOwn) {
      for (const std::uint32_t weight : weights_) {
        const std::uint32_t root = alloc(sizes_[weight], Category::kTemporaries,
                                         step_site("_single_tensor_adam", 520, "sqrt"));
        free(root);
      }
    }
    if (d_.annotated) raw_.push_back({false, 0, 0, 2});
    if (d_.frees_gradients_early || iteration + 1 < d_.iterations) {
      for (const auto& [weight, block] : gradients_) free(block);
      gradients_.clear();
    }
  }

  // Tokens one after another, with keys and values kept.
  void infer() {
    std::deque<std::uint32_t> caches;
    const std::uint64_t step_bytes = std::max<std::uint64_t>(d_.unit / 64, 1024);
    std::uint64_t length = d_.unit;
    if (d_.static_cache)
      for (int i = 0; i < 2 * d_.layers; ++i)
        alloc(4 * d_.unit, Category::kCaches, cache_site("init_cache", 20));
    for (int token = 0; token < 8 * d_.iterations && !ended_; ++token) {
      const std::uint32_t ids = alloc(4 * kKiB, Category::kInputs, loop_site("to", 86));
      std::uint32_t hidden = alloc(token == 0 ? d_.unit : step_bytes, Category::kActivations,
                                   forward_site(kPerceptron[0], 70));
      for (int layer = 0; layer < d_.layers; ++layer) {
        for (int side = 0; side < 2 && !d_.static_cache; ++side) {
          caches.push_back(alloc(length, Category::kCaches, cache_site("update", 146 + side)));
          if (token > 0) {
            free(caches.front());
            caches.pop_front();
          }
        }
        const std::uint32_t inner = alloc(token == 0 ? 4 * d_.unit : 4 * step_bytes,
                                          Category::kActivations, forward_site(kTransformer[5], 5));
        const std::uint32_t out = alloc(token == 0 ? d_.unit : step_bytes, Category::kActivations,
                                        forward_site(kTransformer[7], 7));
        free(inner);
        free(hidden);
        hidden = out;
      }
      const std::uint32_t logits = alloc(std::max<std::uint64_t>(d_.logits / 16, 4096),
                                         Category::kActivations, forward_site(kPerceptron[0], 60));
      const std::uint32_t picked = alloc(512, Category::kTemporaries, loop_site("argmax", 92));
      free(hidden);
      free(logits);
      free(ids);
      free(picked);
      length += step_bytes;
    }
  }
  std::uint32_t cache_site(const char* function, int line) {
    std::vector<std::uint32_t> frames;
    add_operator(frames, d_.static_cache ? "zeros" : "cat", "");
    add_python(frames, {{function, torch_file("transformers/cache_utils.py"), line},
                        {"forward", model_file(), 60},
                        {"_call_impl", torch_file("torch/nn/modules/module.py"), 1790},
                        {"generate", "/home/me/project/train.py", 60},
                        {"<module>", "/home/me/project/train.py", 140}});
    return site(frames);
  }

  // --- The recording

  KnownProgram finish() {
    KnownProgram out;
    std::size_t cut = 0;
    if (d_.late) cut = weights_.size() + random_.below(raw_.size() / 2);
    TraceBuilder builder(fmt::format("known"), TraceBuilder::Keys::kAddresses);
    // The driver hands addresses out from above.
    const auto key = [&](std::uint32_t block) {
      return (std::uint64_t{1} << 62) - (std::uint64_t{block} << 32);
    };
    std::vector<bool> live(sizes_.size(), false);
    for (std::size_t i = 0; i < cut && i < raw_.size(); ++i)
      if (raw_[i].mark == 0) live[raw_[i].block] = raw_[i].alloc;
    for (std::uint32_t block = 0; block < sizes_.size(); ++block)
      if (live[block]) {
        builder.live_from_start(key(block), sizes_[block], 0);
        out.truth.push_back(truth_[block]);
      }
    const std::uint32_t text = sites_.add_text("Optimizer.step#Adam.step");
    for (std::size_t i = cut; i < raw_.size(); ++i) {
      const Raw& event = raw_[i];
      const auto now = static_cast<std::int64_t>(10 * i);
      if (event.mark != 0) {
        TraceMark mark;
        mark.kind = event.mark == 1 ? MarkKind::kPhaseBegin : MarkKind::kPhaseEnd;
        mark.text = text;
        mark.time_us = now;
        builder.mark(mark);
      } else if (event.alloc) {
        builder.alloc(key(event.block), now, sizes_[event.block], 0, event.site);
        out.truth.push_back(truth_[event.block]);
      } else {
        builder.free(TraceOp::kFreeRequested, key(event.block), now);
        builder.free(TraceOp::kFreeCompleted, key(event.block), now);
      }
    }
    out.trace = builder.finish(std::make_shared<const SiteTable>(std::move(sites_)));
    constexpr const char* kModels[] = {"transformer", "convolutions", "perceptron"};
    constexpr const char* kStacks[] = {"Python stacks", "C++ and Python stacks", "no stacks"};
    out.what = fmt::format(
        "{}, {} layers, {}{}{}{}, {}{}{}", kModels[d_.model], d_.layers,
        d_.trains ? kOptimizers[static_cast<int>(d_.optimizer)] : "inference",
        d_.accumulation > 1 ? ", accumulation" : "", d_.checkpoints ? ", checkpoints" : "",
        d_.library_model ? ", from a package" : "", kStacks[static_cast<int>(d_.stacks)],
        d_.late ? ", begun late" : "", d_.fails ? ", cut off" : "");
    return out;
  }

  Random random_;
  Design d_;
  SiteTable sites_;
  std::vector<std::uint64_t> sizes_;
  std::vector<Category> truth_;
  std::vector<Raw> raw_;
  std::vector<std::uint32_t> weights_;
  std::map<std::size_t, std::uint32_t> gradients_;  // by weight
  std::size_t head_ = 0;
  std::size_t fail_after_ = 0;
  bool workspace_ = false;
  bool ended_ = false;
};

}  // namespace

KnownProgram make_known_program(std::uint64_t seed) { return Program(seed).make(); }

}  // namespace tenon
