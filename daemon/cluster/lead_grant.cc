#include "daemon/cluster/lead_grant.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "daemon/config/fleet.h"

namespace fineserve::cluster {

using Json = nlohmann::json;

namespace {

// No grant outlasts a lease: one that would is of before a reboot, since when
// CLOCK_MONOTONIC counts from 0 again.
constexpr uint64_t kLongestNs =
    uint64_t{config::ClusterSettings::kMostTtlS} * 1'000'000'000;

}  // namespace

std::string GrantPath(const std::string& folder) {
  return folder + "/lead.grant";
}

absl::StatusOr<std::string> ReadWhole(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat("there is no ", path));
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

absl::Status ReplaceFile(const std::string& path, const std::string& text) {
  const std::string next = absl::StrCat(path, ".new.", getpid());
  std::ofstream file(next, std::ios::trunc);
  file << text;
  file.close();
  if (file && rename(next.c_str(), path.c_str()) == 0) return absl::OkStatus();
  const absl::Status s = absl::UnavailableError(
      absl::StrCat("cannot write ", path, ": ", strerror(errno)));
  unlink(next.c_str());
  return s;
}

absl::Status WriteGrant(const std::string& folder, const LeadGrant& grant) {
  const Json json = {{"term", grant.term},
                     {"until_ns", grant.until_ns},
                     {"plan", grant.plan},
                     {"carried", grant.carried},
                     {"lost_machines", grant.lost_machines}};
  return ReplaceFile(GrantPath(folder),
                     json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

void RemoveGrant(const std::string& folder) {
  unlink(GrantPath(folder).c_str());
}

absl::StatusOr<LeadGrant> ReadGrant(const std::string& folder,
                                    uint64_t now_ns) {
  const absl::StatusOr<std::string> text = ReadWhole(GrantPath(folder));
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
