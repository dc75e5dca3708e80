#include <nlohmann/json.hpp>

#include "tenon/lab/fleet/file_answer.h"

namespace tenon {
namespace {

using Json = nlohmann::ordered_json;

// Calls visit(key, member) for each member but the optional ones.
template <typename Answer, typename Visit>
void visit_members(Answer& answer, const Visit& visit) {
  visit("error", answer.error);
  visit("devices", answer.devices);
  visit("events", answer.events);
  visit("live_peak_bytes", answer.live_peak_bytes);
  visit("state", answer.state);
  visit("verdict", answer.verdict);
  visit("contradiction", answer.contradiction);
  visit("cause", answer.cause);
  visit("cause_bytes", answer.cause_bytes);
  visit("categories", answer.categories);
  visit("sites", answer.sites);
  visit("losses", answer.losses);
  visit("change", answer.change);
  visit("change_saves_bytes", answer.change_saves_bytes);
  visit("replayed", answer.replayed);
  visit("recorded_conf", answer.recorded_conf);
  visit("recorded_reserved_bytes", answer.recorded_reserved_bytes);
  visit("best_conf", answer.best_conf);
  visit("best_reserved_bytes", answer.best_reserved_bytes);
  visit("best_differs", answer.best_differs);
}

Json of(const std::optional<std::uint64_t>& bytes) { return bytes ? Json(*bytes) : Json(); }

std::optional<std::uint64_t> bytes_of(const Json& json) {
  if (json.is_null()) return std::nullopt;
  return json.get<std::uint64_t>();
}

}  // namespace

std::string file_answer_json(const FileAnswer& answer) {
  Json json;
  visit_members(answer, [&](const char* key, const auto& member) { json[key] = member; });
  json["reserved_peak_bytes"] = of(answer.reserved_peak_bytes);
  json["reserved_bytes"] = Json::array();
  for (const auto& bytes : answer.reserved_bytes) json["reserved_bytes"].push_back(of(bytes));
  return json.dump();
}

std::optional<FileAnswer> parse_file_answer(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    FileAnswer answer;
    visit_members(answer, [&](const char* key, auto& member) { json.at(key).get_to(member); });
    answer.reserved_peak_bytes = bytes_of(json.at("reserved_peak_bytes"));
    for (const Json& bytes : json.at("reserved_bytes"))
      answer.reserved_bytes.push_back(bytes_of(bytes));
    return answer;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

}  // namespace tenon
