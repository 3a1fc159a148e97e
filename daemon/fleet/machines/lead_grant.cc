#include "daemon/fleet/machines/lead_grant.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "daemon/base/whole_file.h"
#include "daemon/fleet/config/fleet.h"

namespace fineserve::cluster {

using Json = nlohmann::json;

namespace {

// A grant that would outlast any lease was written before a reboot, after which
// CLOCK_MONOTONIC counts from 0 again.
constexpr uint64_t kLongestNs =
    uint64_t{config::ClusterSettings::kMostTtlS} * 1'000'000'000;

}  // namespace

std::string GrantPath(const std::string& folder) {
  return folder + "/lead.grant";
}

absl::Status WriteGrant(const std::string& folder, const LeadGrant& grant) {
  const Json json = {{"term", grant.term},
                     {"until_ns", grant.until_ns},
                     {"plan", grant.plan},
                     {"carried", grant.carried},
                     {"lost_machines", grant.lost_machines}};
  return base::ReplaceFile(
      GrantPath(folder),
      json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

void RemoveGrant(const std::string& folder) {
  unlink(GrantPath(folder).c_str());
}

absl::StatusOr<LeadGrant> ReadGrant(const std::string& folder,
                                    uint64_t now_ns) {
  const absl::StatusOr<std::string> text =
      base::ReadWholeFile(GrantPath(folder));
  if (!text.ok()) return text.status();
  LeadGrant grant;
  try {
    const Json json = Json::parse(*text);
    json.at("term").get_to(grant.term);
    json.at("until_ns").get_to(grant.until_ns);
    json.at("plan").get_to(grant.plan);
    json.at("carried").get_to(grant.carried);
    json.at("lost_machines").get_to(grant.lost_machines);
  } catch (const Json::exception& e) {
    return absl::InvalidArgumentError(
        absl::StrCat(GrantPath(folder), ": ", e.what()));
  }
  if (grant.term == 0 || now_ns >= grant.until_ns) {
    return absl::NotFoundError("the grant has ended");
  }
  if (grant.until_ns - now_ns > kLongestNs) {
    return absl::NotFoundError("the grant is of before a reboot");
  }
  return grant;
}

}  // namespace fineserve::cluster
