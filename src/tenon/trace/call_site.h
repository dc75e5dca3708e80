// A call stack, read for people: which line of the program asked for memory, through what.
// Thread-safe once made. Throws std::out_of_range for a number that is not there.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tenon/trace/frame_kind.h"
#include "tenon/trace/site_table.h"

namespace tenon {

// What one stack says. Frames are numbers in the SiteTable; 0: there is none of that kind.
struct CallSite {
  std::uint32_t user = 0;     // innermost frame of the program's own code
  std::uint32_t library = 0;  // innermost frame of an installed package, where that lies inside
                              // `user`
  std::uint32_t torch = 0;    // innermost frame of PyTorch's Python, where that lies inside both
  std::string op;             // the operator that was called: "linear"; empty: not known
  std::string kernel;         // the operator it was made of, where that is another: "addmm"
  std::string node;           // the step of backward: "MmBackward0"; empty: none, or not known
  bool backward = false;      // autograd's engine is on the stack
  bool recomputed = false;    // a checkpoint runs its forward again
  bool compiled = false;      // code that torch.compile generated asked
  bool workspace = false;     // scratch memory of cuBLAS, cuDNN, CUB
  bool sums_gradients = false;  // adds gradients that meet in one node

  // Whether any frame of Python was on the stack.
  bool has_python() const { return user != 0 || library != 0 || torch != 0; }
};

// Reads stacks of one table, each once: O(frames) in all, a few bytes a frame and 150 a stack.
// Numbers of call sites are dense. Two stacks that mean the same to people have the same number.
// Number 0 is the stack without frames. Reads the table only while it is being built.
class CallSiteTable {
 public:
  explicit CallSiteTable(const SiteTable& sites);

  // How many call sites there are, that of a stack (by its number in the table), one by its own.
  std::size_t size() const { return sites_.size(); }
  std::uint32_t of_stack(std::uint32_t stack) const { return of_stack_.at(stack); }
  const CallSite& call_site(std::uint32_t number) const { return sites_.at(number); }
  // "forward model.py:40 via forward torch/nn/modules/linear.py:134: linear (addmm)",
  // "backward of mm"; empty for number 0. One line: control characters are replaced.
  const std::string& name(std::uint32_t number) const { return names_.at(number); }
  // What to call a site in a list: its call site's name, else its tag, else nothing.
  std::string site_name(const SiteTable& sites, std::uint32_t site) const;
  FrameKind kind(std::uint32_t frame) const { return kinds_.at(frame); }

 private:
  CallSite describe(const SiteTable& sites, std::span<const std::uint32_t> stack) const;
  std::string name_of(const SiteTable& sites, const CallSite& site) const;

  std::vector<FrameKind> kinds_;          // by frame
  std::vector<std::uint32_t> of_stack_;   // by stack
  std::vector<CallSite> sites_;
  std::vector<std::string> names_;
};

// "forward torch/nn/modules/linear.py:134": paths are shortened (behind "site-packages/", long ones
// to their last three parts), control characters replaced.
std::string readable_frame(const SiteTable& sites, std::uint32_t frame);

}  // namespace tenon
