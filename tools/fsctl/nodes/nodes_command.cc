#include "tools/fsctl/nodes/nodes_command.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "daemon/base/clock/clock.h"
#include "daemon/contract/abi/byte_size.h"
#include "daemon/contract/finding/daemon_sockets.h"
#include "daemon/contract/wire/connection_watch.h"
#include "daemon/fleet/machines/fleet_view.h"
#include "tools/fsctl/daemons/daemon_choice.h"
#include "tools/fsctl/terminal/clean_text.h"
#include "tools/fsctl/terminal/commands.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/fsctl/terminal/json_text.h"
#include "tools/fsctl/terminal/text_table.h"

namespace fineserve::fsctl {
namespace {

using Json = nlohmann::ordered_json;

TextTable::Cell StateOf(const cluster::SeenMachine& machine) {
  if (machine.is_alive) return {"alive", Color::kGreen};
  return machine.is_lost ? TextTable::Cell{"lost", Color::kRed}
                         : TextTable::Cell{"silent", Color::kYellow};
}

void AddMachine(const cluster::FleetView& view,
                const cluster::SeenMachine& machine, TextTable* table) {
  const std::string name = Clean(machine.record.name);
  const std::string marks =
      absl::StrCat(machine.record.name == view.leader ? " leads" : "",
                   machine.record.name == view.machine ? " (here)" : "");
  if (machine.record.daemons.empty()) {
    table->Add({name + marks, StateOf(machine), "-", "-", "-", "-", "-"});
  }
  for (const cluster::DaemonRecord& d : machine.record.daemons) {
    const bool answers = machine.is_alive && d.answers;
    table->Add({name + marks, StateOf(machine), Clean(d.gpu),
                answers ? abi::SizeText(d.pool_bytes) : "no daemon",
                answers ? abi::SizeText(d.used_bytes) : "-",
                answers ? absl::StrCat(d.engines) : "-",
                answers ? absl::StrCat(d.plan_number, "/", d.plan_term) : "-"});
  }
}

Json RefusedJson(const wire::FaultCounts& counts) {
  Json json;
  for (size_t i = 0; i < counts.size(); ++i) {
    json[wire::kConnectionFaultNames[i]] = counts[i];
  }
  return json;
}

}  // namespace

std::string NodesText(const cluster::FleetView& view,
                      const std::string& trouble, bool color) {
  TextTable table({"MACHINE", "STATE", "GPU", ">POOL", ">LEASED", ">ENGINES",
                   ">PLAN/TERM"});
  for (const cluster::SeenMachine& m : view.machines) {
    AddMachine(view, m, &table);
  }
  std::string text = table.Render(color);
  for (const cluster::Oddity& odd : cluster::OdditiesOf(view, "")) {
    absl::StrAppend(&text, "warning: ", Clean(odd.what), "; ", odd.cure, "\n");
  }
  if (!view.trouble.empty() && view.trouble != trouble) {
    absl::StrAppend(&text, "etcd: ", Clean(view.trouble), "\n");
  }
  if (!trouble.empty()) {
    absl::StrAppend(&text, Paint(color, Color::kRed, "trouble"), ": ",
                    Clean(trouble), "\n");
  }
  return text;
}

std::string NodesJson(const cluster::FleetView& view,
                      const std::string& trouble) {
  Json machines = Json::array();
  for (const cluster::SeenMachine& m : view.machines) {
    Json daemons = Json::array();
    for (const cluster::DaemonRecord& d : m.record.daemons) {
      daemons.push_back({{"gpu", Clean(d.gpu)},
                         {"port", d.port},
                         {"answers", d.answers},
                         {"memory_bytes", d.memory_bytes},
                         {"pool_bytes", d.pool_bytes},
                         {"leased_bytes", d.used_bytes},
                         {"engines", d.engines},
                         {"refused", RefusedJson(d.refused)},
                         {"plans_refused", d.plans_refused},
                         {"proxies", d.proxies},
                         {"plan", d.plan_number},
                         {"term", d.plan_term}});
    }
    machines.push_back({{"name", Clean(m.record.name)},
                        {"host", Clean(m.record.host)},
                        {"state", m.is_alive  ? "alive"
                                  : m.is_lost ? "lost"
                                              : "silent"},
                        {"leads", m.record.name == view.leader},
                        {"key", Clean(m.record.key)},
                        {"daemons", daemons}});
  }
  return JsonText({{"machine", view.machine},
                   {"leader", Clean(view.leader)},
                   {"term", view.term},
                   {"plan", view.plan_number},
                   {"quorum", view.has_quorum},
                   {"strangers", view.strangers},
                   {"fenced", view.fenced},
                   {"trouble", Clean(trouble)},
                   {"machines", machines}});
}

namespace {

int RunNodes(const Globals& globals) {
  const absl::StatusOr<cluster::FleetView> view =
      cluster::ReadView(finding::RuntimeFolder());
  if (absl::IsNotFound(view.status())) {
    return Fail(kExitNoDaemon,
                "this machine is not one of several: no fineserve-node has run "
                "here; start it with: fineserve-node --fleet FILE");
  }
  if (!view.ok()) return Fail(kExitBadAnswer, view.status());
  const std::string trouble = cluster::TroubleOf(view, RealClock().NowNs());
  Print(globals.json ? NodesJson(*view, trouble)
                     : NodesText(*view, trouble, globals.color));
  return trouble.empty() ? kExitOk : kExitBadAnswer;
}

}  // namespace

void AddNodes(Commands& c) {
  c.Add("nodes", "Show the machines of a fleet of several",
        "  fsctl nodes\n"
        "  fsctl nodes --json | jq '.machines[] | "
        "select(.state!=\"alive\")'\n",
        RunNodes);
}

}  // namespace fineserve::fsctl
