#include "tenon/lab/explain/call_sites.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tuple>

namespace tenon {
namespace {

constexpr std::array<std::string_view, 2> kPackages = {"site-packages/", "dist-packages/"};

bool is_own_code(std::string_view file) {
  if (file.empty() || file.starts_with('<') || file.starts_with("??")) return false;
  for (const std::string_view folder : kPackages)
    if (file.find(folder) != std::string_view::npos) return false;
  return file.find("lib/python") == std::string_view::npos;
}

std::string frame_name(const SiteTable& sites, std::uint32_t number) {
  const Frame& frame = sites.frame(number);
  return fmt::format("{} {}:{}", sites.text(frame.function), short_path(sites.text(frame.file)),
                     frame.line);
}

}  // namespace

std::string_view short_path(std::string_view path) {
  for (const std::string_view folder : kPackages)
    if (const std::size_t at = path.rfind(folder); at != std::string_view::npos)
      return path.substr(at + folder.size());
  return path;
}

CallSites::CallSites(const SiteTable& sites) {
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, std::uint32_t> known;
  known.emplace(std::tuple(0u, 0u, 0u), 0u);
  names_.emplace_back("no call stack");
  for (std::uint32_t number = 0; number < sites.sites(); ++number) {
    const Site& site = sites.site(number);
    const auto frames = sites.stack(site.stack);
    const auto own = std::find_if(frames.begin(), frames.end(), [&](std::uint32_t frame) {
      return is_own_code(sites.text(sites.frame(frame).file));
    });
    const std::uint32_t inner = frames.empty() ? 0 : frames.front();
    const std::uint32_t outer = own == frames.end() ? 0 : *own;
    const auto [found, fresh] = known.try_emplace({inner, outer, site.tag},
                                                  static_cast<std::uint32_t>(names_.size()));
    if (fresh) {
      std::string name = inner == 0 ? "no call stack" : frame_name(sites, inner);
      if (outer != 0 && outer != inner) name += " from " + frame_name(sites, outer);
      if (site.tag != 0) name += fmt::format(" [{}]", sites.text(site.tag));
      names_.push_back(std::move(name));
    }
    groups_.push_back(found->second);
  }
}

std::vector<std::uint32_t> phases_by_event(const Trace& trace) {
  std::vector<std::uint32_t> phases(trace.events.size(), 0);
  std::vector<std::uint32_t> open;
  std::size_t event = 0;
  const auto fill = [&](std::size_t end) {
    const std::uint32_t phase = open.empty() ? 0 : open.back();
    for (; event < end; ++event) phases[event] = phase;
  };
  for (const TraceMark& mark : trace.marks) {
    fill(std::min<std::size_t>(mark.event, phases.size()));
    if (mark.kind == MarkKind::kPhaseBegin) open.push_back(mark.text);
    if (mark.kind != MarkKind::kPhaseEnd) continue;
    const auto begun = std::find(open.rbegin(), open.rend(), mark.text);
    if (begun != open.rend()) open.erase(std::prev(begun.base()));
  }
  fill(phases.size());
  return phases;
}

}  // namespace tenon
