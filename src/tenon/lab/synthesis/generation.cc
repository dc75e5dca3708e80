// Programs that generate text: caches that grow by concatenation, and caches in pages.
#include <algorithm>
#include <vector>

#include "tenon/lab/synthesis/model.h"

namespace tenon::synthesis {
namespace {

constexpr std::uint64_t kPageTokens = 16;
constexpr std::uint64_t kWidth = 2;  // bytes of a number

// Requests come and go; the recipe's batch is how many are served at once, its steps are tokens.
class Generation {
 public:
  Generation(Program& program, const Recipe& recipe)
      : program_(program), recipe_(recipe), shape_(transformer_shape(recipe.size)),
        random_(recipe.seed + 47), grows_(recipe.kind == Kind::kGenerate) {
    const std::uint64_t width = shape_.width;
    weights_.push_back(program.allocate(shape_.vocabulary * width * kWidth));
    for (std::uint64_t i = 0; i < shape_.layers; ++i)
      for (const std::uint64_t elements : {3 * width * width, width * width, 2 * width,
                                           width * shape_.hidden, width * shape_.hidden})
        weights_.push_back(program.allocate(elements * kWidth));
    workers_.resize(grows_ ? recipe.streams : 1);
  }

  void run() {
    for (std::uint32_t step = 0; step < recipe_.steps; ++step) {
      generate();
      program_.end_step(step + 1, recipe_.steps);
    }
    for (Worker& worker : workers_)
      for (Request& request : worker.requests) free_in_order(request.caches);
    free_in_order(weights_);
  }

 private:
  // The caches of one request, or of one batch of requests.
  struct Request {
    std::uint64_t tokens = 0;
    std::uint64_t last = 0;                // tokens when it ends
    std::vector<StoragePtr> caches;        // keys and values of each layer, or pages

    bool ended() const { return tokens >= last; }
  };
  struct Worker {
    std::vector<Request> requests;
  };

  void generate() {
    const Phase phase(program_, "step");
    for (std::uint32_t stream = 0; stream < workers_.size(); ++stream) {
      const OnStream scope(program_, stream);
      grows_ ? grow(workers_[stream]) : serve(workers_[stream]);
    }
  }

  Request new_request() {
    Request request;
    const std::uint64_t most = shape_.tokens;
    request.tokens = recipe_.varying ? random_.between(16, most / 2) : most / 4;
    request.last = request.tokens +
                   (recipe_.varying ? random_.between(8, most / 4) : most / 8);
    return request;
  }

  // One batch; every token copies each cache into one that is longer by a token.
  void grow(Worker& worker) {
    const std::uint64_t batch = std::max<std::uint64_t>(1, recipe_.batch / workers_.size());
    if (worker.requests.empty() || worker.requests[0].ended()) {
      if (!worker.requests.empty()) free_in_order(worker.requests[0].caches);
      worker.requests.clear();
      worker.requests.push_back(new_request());
      Request& request = worker.requests[0];
      request.caches.resize(2 * shape_.layers);
      forward(batch, request.tokens, request.tokens, &request);
      return;
    }
    Request& request = worker.requests[0];
    ++request.tokens;
    forward(batch, 1, request.tokens, &request);
  }

  // Every request keeps pages for all its tokens; a page holds all layers of some tokens.
  void serve(Worker& worker) {
    for (Request& request : worker.requests)
      if (request.ended()) free_in_order(request.caches);
    std::erase_if(worker.requests, [](const Request& request) { return request.ended(); });
    while (worker.requests.size() < recipe_.batch) {
      worker.requests.push_back(new_request());
      take_pages(worker.requests.back());
      forward(1, worker.requests.back().tokens, worker.requests.back().tokens, nullptr);
    }
    for (Request& request : worker.requests) {
      ++request.tokens;
      take_pages(request);
    }
    forward(worker.requests.size(), 1, shape_.tokens, nullptr);
  }

  void take_pages(Request& request) {
    while (request.caches.size() * kPageTokens < request.tokens)
      request.caches.push_back(
          program_.allocate(2 * shape_.layers * kPageTokens * shape_.width * kWidth));
  }

  // `tokens` new ones for each of `batch`, attending to `keys`.
  void forward(std::uint64_t batch, std::uint64_t tokens, std::uint64_t keys, Request* request) {
    const std::uint64_t rows = batch * tokens;
    const std::uint64_t width = shape_.width;
    StoragePtr x = tensor(rows * width);
    for (std::uint64_t layer = 0; layer < shape_.layers; ++layer) {
      StoragePtr h = tensor(rows * width);
      StoragePtr qkv = tensor(3 * rows * width);
      if (request != nullptr)
        for (std::size_t i = 0; i < 2; ++i)
          request->caches[2 * layer + i] = tensor(batch * keys * width);
      h = attend(batch, tokens, keys);
      qkv = nullptr;
      x = tensor(rows * width);
      h = tensor(rows * width);
      StoragePtr up = tensor(rows * shape_.hidden);
      up = tensor(rows * shape_.hidden);
      h = tensor(rows * width);
      up = nullptr;
      x = tensor(rows * width);
    }
    const StoragePtr logits = tensor(batch * shape_.vocabulary);
    const StoragePtr wide = program_.allocate(batch * shape_.vocabulary * 4);
    const StoragePtr next = program_.allocate(batch * 8);
  }

  StoragePtr attend(std::uint64_t batch, std::uint64_t tokens, std::uint64_t keys) {
    StoragePtr scores, probabilities;
    if (!recipe_.flash && tokens <= 512) {
      scores = tensor(batch * shape_.heads * tokens * keys);
      probabilities = tensor(batch * shape_.heads * tokens * keys);
    }
    StoragePtr y = tensor(batch * tokens * shape_.width);
    return y;
  }

  StoragePtr tensor(std::uint64_t elements) {
    StoragePtr made = program_.allocate(elements * kWidth);
    program_.run(2 * elements * kWidth);
    return made;
  }

  Program& program_;
  const Recipe recipe_;
  const TransformerShape shape_;
  Random random_;
  const bool grows_;
  std::vector<StoragePtr> weights_;
  std::vector<Worker> workers_;
};

}  // namespace

void run_generation(Program& program, const Recipe& recipe) { Generation(program, recipe).run(); }

}  // namespace tenon::synthesis
