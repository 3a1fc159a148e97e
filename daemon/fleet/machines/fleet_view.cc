#include "daemon/fleet/machines/fleet_view.h"

#include <iterator>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "daemon/base/whole_file.h"
#include "daemon/fleet/machines/lead_grant.h"

namespace fineserve::cluster {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kSecondNs = 1'000'000'000;
// A node writes its view twice a second.
constexpr uint64_t kStaleNs = 10 * kSecondNs;
// Limit on daemons in another machine's record.
constexpr size_t kMostDaemons = 256;

// A view from the future has survived a reboot. A small difference is allowed,
// since a reader may have read its clock just before the view was written.
bool IsStale(const FleetView& view, uint64_t now_ns) {
  return now_ns > view.written_ns + kStaleNs ||
         view.written_ns > now_ns + kStaleNs;
}

Json RefusedJson(const wire::FaultCounts& counts) {
  Json json = Json::object();
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] != 0) json[wire::kConnectionFaultNames[i]] = counts[i];
  }
  return json;
}

Json DaemonJson(const DaemonRecord& d) {
  return {{"refused", RefusedJson(d.refused)},
          {"plans_refused", d.plans_refused},
          {"gpu", d.gpu},
          {"port", d.port},
          {"answers", d.answers},
          {"memory_bytes", d.memory_bytes},
          {"pool_bytes", d.pool_bytes},
          {"used_bytes", d.used_bytes},
          {"plan_term", d.plan_term},
          {"plan_number", d.plan_number},
          {"engines", d.engines},
          {"proxies", d.proxies}};
}

DaemonRecord DaemonOf(const Json& json) {
  DaemonRecord d;
  json.at("gpu").get_to(d.gpu);
  json.at("port").get_to(d.port);
  json.at("answers").get_to(d.answers);
  json.at("memory_bytes").get_to(d.memory_bytes);
  json.at("pool_bytes").get_to(d.pool_bytes);
  json.at("used_bytes").get_to(d.used_bytes);
  json.at("plan_term").get_to(d.plan_term);
  json.at("plan_number").get_to(d.plan_number);
  json.at("engines").get_to(d.engines);
  json.at("proxies").get_to(d.proxies);
  // A machine that runs the previous release does not count refused
  // connections.
  const Json refused = json.value("refused", Json::object());
  for (size_t i = 0; i < d.refused.size(); ++i) {
    d.refused[i] = refused.value(wire::kConnectionFaultNames[i], uint64_t{0});
  }
  d.plans_refused = json.value("plans_refused", uint64_t{0});
  return d;
}

Json RecordJson(const MachineRecord& r) {
  Json daemons = Json::array();
  for (const DaemonRecord& d : r.daemons) daemons.push_back(DaemonJson(d));
  return {{"name", r.name},
          {"host", r.host},
          {"instance", r.instance},
          {"key", r.key},
          {"daemons", daemons}};
}

MachineRecord RecordOf(const Json& json) {
  MachineRecord r;
  json.at("name").get_to(r.name);
  json.at("host").get_to(r.host);
  json.at("instance").get_to(r.instance);
  json.at("key").get_to(r.key);
  for (const Json& d : json.at("daemons")) {
    if (r.daemons.size() < kMostDaemons) r.daemons.push_back(DaemonOf(d));
  }
  return r;
}

std::string Text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The meaning of a refused connection, by wire::ConnectionFault, and the cure.
constexpr struct {
  const char* what;
  const char* cure;
} kRefusalWords[] = {
    {"of keys that are not trusted there",
     "fsctl keys trust there, if they are this fleet's"},
    {"that did not finish CURVE's handshake",
     "fsctl keys show there and fsctl keys trust at the others, if its keys "
     "were made new; otherwise see what connects to that port"},
    {"ended by a frame that was changed or repeated on its way",
     "see what is between the machines"},
};
static_assert(std::size(kRefusalWords) == wire::kConnectionFaults);

void AddOddities(const MachineRecord& machine, std::vector<Oddity>* oddities) {
  for (const DaemonRecord& d : machine.daemons) {
    const std::string who = absl::StrCat(machine.name, " (", d.gpu, "): ");
    for (size_t i = 0; i < d.refused.size(); ++i) {
      if (d.refused[i] == 0) continue;
      oddities->push_back({absl::StrCat(who, d.refused[i], " connections ",
                                        kRefusalWords[i].what),
                           kRefusalWords[i].cure});
    }
    if (d.plans_refused == 0) continue;
    oddities->push_back(
        {absl::StrCat(
             who, d.plans_refused,
             " plans were refused: they were older than the known one"),
         "nothing, if a leading machine slept or was cut off"});
  }
}

}  // namespace

std::string RecordText(const MachineRecord& record) {
  return Text(RecordJson(record));
}

absl::StatusOr<MachineRecord> ParseRecord(absl::string_view text) {
  try {
    return RecordOf(Json::parse(text.begin(), text.end()));
  } catch (const Json::exception& e) {
    return absl::InvalidArgumentError(
        absl::StrCat("not a machine's record: ", e.what()));
  }
}

absl::Status WriteView(const std::string& folder, const FleetView& view) {
  Json machines = Json::array();
  for (const SeenMachine& m : view.machines) {
    machines.push_back({{"record", RecordJson(m.record)},
                        {"alive", m.is_alive},
                        {"lost", m.is_lost},
                        {"silent_ns", m.silent_ns}});
  }
  return base::ReplaceFile(folder + "/cluster.json",
                           Text({{"machine", view.machine},
                                 {"fleet", view.fleet_path},
                                 {"leader", view.leader},
                                 {"term", view.term},
                                 {"quorum", view.has_quorum},
                                 {"written_ns", view.written_ns},
                                 {"quorum_ns", view.quorum_ns},
                                 {"plan_number", view.plan_number},
                                 {"strangers", view.strangers},
                                 {"fenced", view.fenced},
                                 {"trouble", view.trouble},
                                 {"machines", machines}}));
}

absl::StatusOr<FleetView> ReadView(const std::string& folder) {
  const std::string path = folder + "/cluster.json";
  const absl::StatusOr<std::string> text = base::ReadWholeFile(path);
  if (!text.ok()) return text.status();
  FleetView view;
  try {
    const Json json = Json::parse(*text);
    json.at("machine").get_to(view.machine);
    json.at("fleet").get_to(view.fleet_path);
    json.at("leader").get_to(view.leader);
    json.at("term").get_to(view.term);
    json.at("quorum").get_to(view.has_quorum);
    json.at("written_ns").get_to(view.written_ns);
    json.at("quorum_ns").get_to(view.quorum_ns);
    json.at("plan_number").get_to(view.plan_number);
    json.at("strangers").get_to(view.strangers);
    view.fenced = json.value("fenced", uint64_t{0});
    json.at("trouble").get_to(view.trouble);
    for (const Json& m : json.at("machines")) {
      view.machines.push_back(
          {RecordOf(m.at("record")), m.at("alive").get<bool>(),
           m.at("lost").get<bool>(), m.value("silent_ns", uint64_t{0})});
    }
  } catch (const Json::exception& e) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", e.what()));
  }
  return view;
}

uint64_t TroubleSince(const absl::StatusOr<FleetView>& view, uint64_t now_ns) {
  if (!view.ok()) return 0;
  if (IsStale(*view, now_ns)) return view->written_ns;
  return view->has_quorum ? 0 : view->quorum_ns;
}

std::string TroubleOf(const absl::StatusOr<FleetView>& view, uint64_t now_ns) {
  if (absl::IsNotFound(view.status()) ||
      (view.ok() && IsStale(*view, now_ns))) {
    return "fineserve-node does not run on this machine, so the others take it "
           "for lost and it cannot lead; start it with: fineserve-node --fleet "
           "FILE";
  }
  if (!view.ok()) return std::string(view.status().message());
  if (view->has_quorum) return view->trouble;
  return absl::StrCat(
      "etcd does not answer with a majority of its members in time: the last "
      "plan stays, no model moves, and serving goes on; start the members of "
      "etcd that are down, or mend this machine's link to them",
      view->trouble.empty() ? "" : "; last: ", view->trouble);
}

std::vector<Oddity> OdditiesOf(const FleetView& view,
                               const std::string& machine) {
  std::vector<Oddity> oddities;
  for (const SeenMachine& seen : view.machines) {
    if (!machine.empty() && seen.record.name != machine) continue;
    AddOddities(seen.record, &oddities);
  }
  if (!machine.empty() && machine != view.machine) return oddities;
  if (view.strangers != 0) {
    oddities.push_back(
        {absl::StrCat(view.machine, ": ", view.strangers,
                      " answers of another etcd cluster were refused"),
         "correct etcd in [cluster] of the fleet file, or what answers there"});
  }
  if (view.fenced != 0) {
    oddities.push_back(
        {absl::StrCat(view.machine, ": etcd refused ", view.fenced,
                      " plans, as their term was over"),
         "nothing, if this machine slept or was cut off"});
  }
  return oddities;
}

}  // namespace fineserve::cluster
