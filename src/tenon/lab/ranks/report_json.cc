#include <nlohmann/json.hpp>

#include "tenon/lab/ranks/report_page.h"

namespace tenon {
namespace {

using Json = nlohmann::ordered_json;

Json causes(const std::vector<CommonCause>& all) {
  Json json = Json::array();
  for (const CommonCause& cause : all)
    json.push_back({{"name", cause.name},
                    {"ranks", cause.ranks},
                    {"least_bytes", cause.least_bytes},
                    {"median_bytes", cause.median_bytes},
                    {"most_bytes", cause.most_bytes}});
  return json;
}

}  // namespace

std::string report_json(const Report& report) {
  const RankComparison& comparison = report.comparison;
  Json json;
  json["ranks"] = Json::array();
  for (const Rank& rank : report.ranks) {
    Json one = {{"name", rank.name},
                {"file", rank.path},
                {"device", rank.device.device},
                {"live_peak_bytes", rank.device.at_peak.bytes},
                {"needed_bytes", rank.needed_bytes},
                {"reserved_peak_bytes", nullptr},
                {"failures", rank.device.failure_count},
                {"verdict", rank.device.verdict.sentences}};
    if (rank.device.reserved_known) one["reserved_peak_bytes"] = rank.device.reserved_peak_bytes;
    json["ranks"].push_back(std::move(one));
  }
  json["unread"] = Json::array();
  for (const UnreadRank& unread : report.unread)
    json["unread"].push_back({{"file", unread.path}, {"reason", unread.reason}});
  json["apart"] = comparison.apart;
  json["compared"] = comparison.compared.size();
  json["failed"] = Json::array();
  for (const std::size_t rank : comparison.failed)
    json["failed"].push_back(report.ranks[rank].name);
  json["highest"] = report.ranks[comparison.highest].name;
  json["lowest"] = report.ranks[comparison.lowest].name;
  json["imbalance"] = comparison.imbalance(report.ranks);
  json["odd"] = Json::array();
  for (const OddRank& odd : comparison.odd)
    json["odd"].push_back({{"rank", report.ranks[odd.rank].name}, {"why", odd.why}});
  json["sentences"] = comparison.sentences;
  json["common_categories"] = causes(comparison.categories);
  json["common_call_sites"] = causes(comparison.sites);
  return json.dump(1, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace tenon
