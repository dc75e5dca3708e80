#include "tenon/lab/synthesis/optimizer.h"

#include <vector>

namespace tenon::synthesis {
namespace {

std::vector<Parameter*> with_gradients(Tape& tape) {
  std::vector<Parameter*> found;
  for (Parameter& parameter : tape.parameters())
    if (parameter.gradient.storage != nullptr) found.push_back(&parameter);
  return found;
}

}  // namespace

void optimizer_step(Tape& tape, Optimizer optimizer) {
  Program& program = tape.program();
  const Phase phase(program, "Optimizer.step");
  const std::vector<Parameter*> parameters = with_gradients(tape);
  const int states = optimizer == Optimizer::kSgd ? 1 : 2;
  for (Parameter* parameter : parameters)
    for (int i = 0; i < states; ++i)
      if (parameter->state[i] == nullptr) {
        parameter->state[i] = program.allocate(parameter->data.bytes());
        program.run(parameter->data.bytes());
      }
  std::vector<StoragePtr> temporaries;
  for (const Parameter* parameter : parameters) {
    const std::uint64_t bytes = parameter->data.bytes();
    if (optimizer == Optimizer::kAdamLoop) {
      const StoragePtr root = program.allocate(bytes);
      program.run(2 * bytes);
      const StoragePtr scaled = program.allocate(bytes);
      program.run(5 * bytes);
    } else if (optimizer == Optimizer::kAdamList) {
      temporaries.push_back(program.allocate(bytes));
      program.run(2 * bytes);
    } else {
      program.run(4 * bytes);
    }
  }
  free_in_order(temporaries);
}

void drop_gradients(Tape& tape) {
  for (Parameter& parameter : tape.parameters()) parameter.gradient = {};
}

void clip_gradients(Tape& tape) {
  std::vector<Tensor> norms;
  for (const Parameter* parameter : with_gradients(tape)) {
    norms.push_back(tape.make(1, 4));
    tape.program().run(parameter->gradient.bytes());
  }
  {
    const Tensor stacked = tape.make(norms.size(), 4);
    const Tensor total = tape.make(1, 4);
    tape.program().run(stacked.bytes());
  }
  free_in_order(norms);
}

}  // namespace tenon::synthesis
