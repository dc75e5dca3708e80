#include "tenon/trace/call_site.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "tenon/base/printable.h"

namespace tenon {
namespace {

// Operators that only allocate: what calls them tells more.
constexpr auto kFactories = std::to_array<std::string_view>(
    {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_", "clone",
     "contiguous", "_to_copy", "to", "zeros", "new_zeros"});

bool is_factory(std::string_view op) {
  return std::find(kFactories.begin(), kFactories.end(), op) != kFactories.end();
}

// The frames between the allocator and the first frame of Python or of autograd: what operator ran.
class OperatorRun {
 public:
  void add(FrameKind kind, std::string_view function) {
    if (kind == FrameKind::kOperator) {
      outermost_ = operator_name(function);
      if (innermost_.empty() || is_factory(innermost_)) innermost_ = outermost_;
    } else if (kind == FrameKind::kKernel) {
      if (std::string name = operator_name(function); !name.empty()) kernel_ = std::move(name);
    } else if (kind == FrameKind::kNative && function.find('(') != std::string_view::npos) {
      if (std::string name = operator_name(function); !name.empty()) native_ = std::move(name);
    }
  }
  void tell(CallSite& site) const {
    site.op = !outermost_.empty() ? outermost_ : !native_.empty() ? native_ : kernel_;
    if (innermost_ != site.op && !is_factory(innermost_)) site.kernel = innermost_;
  }

 private:
  std::string outermost_;  // of PyTorch's operators
  std::string innermost_;  // that does more than allocate
  std::string kernel_;     // outermost functions of no operator
  std::string native_;
};

std::string_view file_name(const SiteTable& sites, std::uint32_t frame) {
  return sites.text(sites.frame(frame).file);
}

bool in_file(const SiteTable& sites, std::uint32_t frame, std::string_view end) {
  return file_name(sites, frame).ends_with(end);
}

// The end of a long path: its last three parts.
std::string_view path_end(std::string_view path) {
  constexpr std::size_t kLong = 40;
  if (path.size() <= kLong) return path;
  std::size_t at = path.size();
  for (int parts = 0; parts < 3 && at != std::string_view::npos && at > 0; ++parts)
    at = path.find_last_of("/\\", at - 1);
  return at == std::string_view::npos || at == 0 ? path : path.substr(at + 1);
}

}  // namespace

std::string readable_frame(const SiteTable& sites, std::uint32_t number) {
  if (number == 0) return "";
  const Frame& frame = sites.frame(number);
  std::string name = one_line(sites.text(frame.function));
  const std::string file = one_line(path_end(short_path(sites.text(frame.file))));
  if (!file.empty() && file != "??") name += (name.empty() ? "" : " ") + file;
  if (frame.line != 0) name += fmt::format(":{}", frame.line);
  return name;
}

CallSiteTable::CallSiteTable(const SiteTable& sites) {
  kinds_.reserve(sites.frames());
  for (std::uint32_t frame = 0; frame < sites.frames(); ++frame)
    kinds_.push_back(frame_kind(sites.text(sites.frame(frame).function), file_name(sites, frame)));
  sites_.emplace_back();
  names_.emplace_back();
  std::map<std::string, std::uint32_t> known;
  known.emplace("", 0);
  of_stack_.reserve(sites.stacks());
  for (std::uint32_t stack = 0; stack < sites.stacks(); ++stack) {
    CallSite site = describe(sites, sites.stack(stack));
    std::string name = name_of(sites, site);
    // What the name leaves out tells sites apart as well.
    const std::string key = fmt::format("{}\n{}\n{}{}{}{}", name, site.node, site.backward,
                                        site.workspace, site.sums_gradients, site.torch);
    const auto [found, fresh] = known.try_emplace(sites.stack(stack).empty() ? "" : key,
                                                  static_cast<std::uint32_t>(sites_.size()));
    if (fresh) {
      sites_.push_back(std::move(site));
      names_.push_back(std::move(name));
    }
    of_stack_.push_back(found->second);
  }
}

std::string CallSiteTable::site_name(const SiteTable& sites, std::uint32_t number) const {
  const Site& site = sites.site(number);
  const std::string& place = name(of_stack(site.stack));
  return place.empty() ? one_line(sites.text(site.tag)) : place;
}

CallSite CallSiteTable::describe(const SiteTable& sites,
                                 std::span<const std::uint32_t> stack) const {
  CallSite site;
  OperatorRun run;
  bool running = true;
  std::uint32_t native = 0;
  std::uint32_t outermost = 0;  // of Python's
  for (const std::uint32_t frame : stack) {
    const FrameKind kind = kinds_[frame];
    const std::string_view function = sites.text(sites.frame(frame).function);
    if (is_python(kind)) {
      running = false;
      outermost = frame;
      if (kind == FrameKind::kTorch) {
        site.recomputed |= in_file(sites, frame, "torch/utils/checkpoint.py") &&
                           (function == "unpack_hook" || function == "backward");
        if (site.torch == 0 && site.library == 0 && site.user == 0 && !site.compiled)
          site.torch = frame;
      } else if (kind == FrameKind::kGenerated) {
        site.compiled |= site.user == 0 && site.library == 0;
      } else if (kind == FrameKind::kLibrary) {
        if (site.library == 0 && site.user == 0) site.library = frame;
      } else if (kind == FrameKind::kUser && site.user == 0) {
        site.user = frame;
      }
      continue;
    }
    switch (kind) {
      case FrameKind::kWorkspace:
        if (running) site.workspace = true;
        break;
      case FrameKind::kNode:
        running = false;
        site.backward = true;
        if (site.node.empty()) site.node = node_name(function);
        break;
      case FrameKind::kSumGradients:
        if (running) site.sums_gradients = true;
        running = false;
        site.backward = true;
        break;
      case FrameKind::kEngine:
        running = false;
        site.backward = true;
        break;
      case FrameKind::kNative:
        if (native == 0) native = frame;
        break;
      default:
        break;
    }
    if (running) run.add(kind, function);
  }
  run.tell(site);
  // Autograd's thread begins with the function that a program's own derivative is called by.
  if (outermost != 0 && (in_file(sites, outermost, "torch/autograd/function.py") ||
                         in_file(sites, outermost, "torch/utils/checkpoint.py")))
    site.backward = true;
  if (!site.has_python() && !site.backward && native != 0) {  // a C++ program
    site.user = native;
    if (site.op == operator_name(sites.text(sites.frame(native).function))) site.op.clear();
  }
  if (!site.has_python() && !site.backward && !stack.empty() && site.op.empty())
    site.user = stack.front();
  return site;
}

std::string CallSiteTable::name_of(const SiteTable& sites, const CallSite& site) const {
  std::string name;
  for (const std::uint32_t frame : {site.user, site.library, site.torch}) {
    // PyTorch's own file says what the operator says, unless that is not known.
    if (frame == 0 ||
        (frame == site.torch && frame != site.user && !name.empty() && !site.op.empty() &&
         file_name(sites, frame).find("torch/optim/") == std::string_view::npos))
      continue;
    name += (name.empty() ? "" : " via ") + readable_frame(sites, frame);
  }
  std::string op = site.op;
  if (!site.kernel.empty()) op += fmt::format(" ({})", site.kernel);
  if (name.empty() && site.backward) {
    const std::string of = node_operator(site.node);
    name = site.sums_gradients  ? "sum of gradients in backward"
           : !of.empty()        ? "backward of " + of
           : !site.node.empty() ? "backward, " + site.node
                                : "backward";
    if (op == of || op == of + "_backward" || site.sums_gradients) op.clear();
  } else if (site.recomputed) {
    op += op.empty() ? "recomputed" : ", recomputed";
  } else if (site.backward) {
    op += op.empty() ? "backward" : ", backward";
  }
  if (site.compiled) op = op.empty() || is_factory(op) ? "compiled" : op + ", compiled";
  if (site.workspace) op += op.empty() ? "workspace" : ", workspace";
  if (name.empty()) return op;
  return op.empty() ? name : name + ": " + op;
}

}  // namespace tenon
