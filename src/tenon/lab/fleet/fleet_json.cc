#include <nlohmann/json.hpp>

#include "tenon/base/printable.h"
#include "tenon/lab/fleet/fleet.h"

namespace tenon {
namespace {

using Json = nlohmann::ordered_json;

class FleetJson {
 public:
  explicit FleetJson(const FleetReport& report) : report_(report), found_(report.comparison) {}

  Json make() const {
    return {{"files", files()},
            {"no_history", no_history()},
            {"unread", unread()},
            {"one_setting", one_setting()},
            {"outliers", outliers()},
            {"states", of(found_.states)},
            {"causes", of(found_.causes)},
            {"categories", of(found_.categories)},
            {"call_sites", of(found_.sites)},
            {"losses", of(found_.losses)},
            {"changes", of(found_.changes)}};
  }

 private:
  std::string name(std::size_t i) const { return one_line(report_.files[i].path); }

  Json files() const {
    Json list = Json::array();
    for (const std::size_t i : found_.read) {
      Json one = {{"file", name(i)}, {"file_bytes", report_.files[i].bytes}};
      one.update(Json::parse(file_answer_json(report_.files[i].answer)));
      one.erase("error");
      list.push_back(std::move(one));
    }
    return list;
  }

  Json no_history() const {
    Json list = Json::array();
    for (const std::size_t i : found_.no_history) list.push_back(name(i));
    return list;
  }

  Json unread() const {
    Json list = Json::array();
    for (const std::size_t i : found_.unread)
      list.push_back({{"file", name(i)}, {"reason", report_.files[i].answer.error}});
    for (const LeftOutFile& each : report_.left_out)
      list.push_back({{"file", one_line(each.path)}, {"reason", one_line(each.reason)}});
    return list;
  }

  Json of(const FleetSetting& setting) const {
    return {{"conf", setting.conf},
            {"reserved_peak_bytes", setting.total_bytes},
            {"most_bytes", setting.most_bytes},
            {"most_file", name(setting.most_file)},
            {"worse_files", setting.worse_files},
            {"most_worse_bytes", setting.most_worse_bytes}};
  }

  // Null where no file has a replay.
  Json one_setting() const {
    if (found_.settings.empty()) return {};
    Json tried = Json::array();
    for (const FleetSetting& setting : found_.settings) tried.push_back(of(setting));
    Json one = of(found_.settings[found_.for_all]);
    one["replayed_files"] = found_.replayed.size();
    one["as_they_ran_bytes"] = found_.recorded.total_bytes;
    one["least_of_each_bytes"] = found_.least_each.total_bytes;
    one["tried"] = std::move(tried);
    return one;
  }

  Json outliers() const {
    Json list = Json::array();
    for (const FleetOutlier& outlier : found_.outliers)
      list.push_back({{"file", name(outlier.file)},
                      {"figure", outlier.figure},
                      {"value", outlier.value},
                      {"median", outlier.median}});
    return list;
  }

  static Json of(const std::vector<FleetCause>& causes) {
    Json list = Json::array();
    for (const FleetCause& cause : causes)
      list.push_back({{"name", cause.name}, {"files", cause.files}, {"bytes", cause.bytes}});
    return list;
  }

  const FleetReport& report_;
  const FleetComparison& found_;
};

}  // namespace

std::string fleet_json(const FleetReport& report) {
  return FleetJson(report).make().dump(1) + "\n";
}

}  // namespace tenon
