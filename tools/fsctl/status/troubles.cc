#include "tools/fsctl/status/troubles.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/fleet/door/door.h"
#include "tools/fsctl/terminal/quantities.h"

namespace fineserve::fsctl {
namespace {

// Longer than any engine should take to end once it is asked to, and longer
// than large models take to load. Heuristics.
constexpr double kPatienceWithStopS = 30;
constexpr double kPatienceWithStartS = 1200;
// A certificate is mentioned this long before it expires. By then, programs
// that renew certificates have done so. Heuristic.
constexpr double kPatienceWithRenewalS = 7 * 86400;
// From then on, the certificate counts as wrong: the alert
// FineserveCertificateExpires calls an operator.
constexpr double kUrgentRenewalS = 86400;

bool IsOf(const FleetProcess& process, const char* program) {
  return process.state.process == program;
}

std::string GpuText(const std::string& gpu) {
  return gpu.empty() ? "its GPU" : gpu;
}

// Returns the time after which fsctl up restarts an engine that hangs,
// according to the fleet that it runs.
std::string RestartAfter(const FleetProcess& up, const std::string& engine) {
  const auto section = up.state.fleet.find("engine " + engine);
  if (section == up.state.fleet.end()) return "0";
  const auto key = section->second.find("restart_after");
  return key == section->second.end() ? "0" : key->second;
}

Finding TroubleOfEngine(const StatusInput& o, const FleetProcess& up,
                        const apply::EngineState& e) {
  const double since = AgeNow(o.now, up.heard_ns, e.for_s);
  const std::string who =
      absl::StrCat("engine ", e.name, " (", up.Name(), ") ");
  const std::string log =
      e.log_line.empty() ? "" : "; its log ends: " + e.log_line;
  const std::string end = absl::StrCat(
      e.last_end.empty() ? "" : absl::StrCat("; it last ", e.last_end), log);
  if (!e.trouble.empty()) {
    return Trouble(true, who + e.trouble, since,
                   "correct that, in the fleet file with fsctl apply");
  }
  if (e.state == "silent") {
    const std::string after = RestartAfter(up, e.name);
    const auto where = o.whereabouts.find(e.pid);
    return Trouble(
        true,
        absl::StrCat(who, "does not answer /health (pid ", e.pid, ")",
                     where == o.whereabouts.end() ? "" : ": " + where->second,
                     log),
        since,
        absl::StrCat("fsctl restart ", e.name,
                     after == "0" ? ""
                                  : absl::StrCat("; fsctl up does it after ",
                                                 after, " s")));
  }
  if (e.state == "given up") {
    return Trouble(
        true, who + "cannot be started" + end, since,
        absl::StrCat("correct its command, then fsctl restart ", e.name));
  }
  if (e.state == "starting" && e.last_end.empty()) {
    const bool is_late = e.for_s > kPatienceWithStartS;
    return Trouble(
        is_late,
        who +
            (is_late ? "has not answered /health since its start"
                     : "is starting") +
            log,
        since,
        is_late
            ? "see its log, which fsctl up names; then fsctl restart " + e.name
            : "wait, or see its log");
  }
  if (e.state == "down" || e.state == "starting") {
    return Trouble(
        true,
        absl::StrCat(who, "is ", e.state, " for the ",
                     Ordinal(e.state == "down" ? e.starts + 1 : e.starts),
                     " time", end),
        since, "see its log, which fsctl up names");
  }
  if (e.state == "stopped") {
    return Trouble(false, who + "was stopped by hand", e.for_s,
                   "fsctl start " + e.name);
  }
  if (e.state == "draining") {
    return Trouble(false, who + "answers what it runs before it ends", since,
                   "wait");
  }
  return Trouble(e.for_s > kPatienceWithStopS, who + "is stopping", since,
                 "wait; fsctl up kills one that does not stop");
}

void AddEngines(const StatusInput& o, Findings* troubles) {
  for (const FleetProcess& up : o.found.processes) {
    if (!IsOf(up, "fsctl up")) continue;
    for (const apply::EngineState& engine : up.state.engines) {
      const std::string& state = engine.state;
      if (state == "serving" || state == "off" || state == "unplanned") {
        continue;
      }
      troubles->push_back(TroubleOfEngine(o, up, engine));
    }
  }
}

void AddCertificate(const Moment& now, const FleetProcess& proxy,
                    Findings* troubles) {
  if (!proxy.state.certificate_s) return;
  const double left_s =
      *proxy.state.certificate_s - AgeNow(now, proxy.heard_ns, 0);
  if (left_s >= kPatienceWithRenewalS) return;
  const std::string cure =
      absl::StrCat("renew it, then kill -HUP ", proxy.state.pid);
  if (left_s > 0) {
    const bool is_urgent = left_s < kUrgentRenewalS;
    troubles->push_back(Trouble(
        is_urgent,
        absl::StrCat("the certificate of ", proxy.Name(), " expires within ",
                     static_cast<int>(left_s / 3600) + 1, " h"),
        (is_urgent ? kUrgentRenewalS : kPatienceWithRenewalS) - left_s, cure));
    return;
  }
  troubles->push_back(Trouble(true,
                              absl::StrCat("the certificate of ", proxy.Name(),
                                           " has expired: clients refuse it"),
                              -left_s, cure));
}

void AddProxies(const StatusInput& o, Findings* troubles) {
  for (const FleetProcess& proxy : o.found.processes) {
    AddCertificate(o.now, proxy, troubles);
    for (const auto& [gpu, decides] : proxy.state.daemons) {
      if (decides) continue;
      const auto away = proxy.state.away_s.find(gpu);
      const double away_s =
          away == proxy.state.away_s.end() ? -1 : away->second;
      troubles->push_back(Trouble(
          true,
          absl::StrCat(proxy.Name(), " has no daemon for ", GpuText(gpu),
                       ": requests are admitted unscheduled (fail_open) or "
                       "refused"),
          AgeNow(o.now, proxy.heard_ns, away_s),
          "start fineserved with this fleet (--fleet)"));
    }
  }
  for (const SilentProcess& silent : o.found.silent) {
    if (IsOfOrphan(o, silent.door)) continue;
    const auto where = o.whereabouts.find(silent.pid);
    troubles->push_back(
        Trouble(true,
                where == o.whereabouts.end()
                    ? silent.why
                    : absl::StrCat(silent.why, ": ", where->second),
                AgeNow(o.now, silent.heard_ns, silent.for_s),
                "see its log; restart it"));
  }
}

// Returns the seconds since the last sign of life of the killed processes.
double LastSeen(const StatusInput& o, const char* door) {
  double last = -1;
  for (const SilentProcess& gone : o.found.gone) {
    if (!apply::IsDoorOf(gone.door, door) || gone.for_s < 0) continue;
    const double age_s = AgeNow(o.now, gone.heard_ns, gone.for_s);
    if (last < 0 || age_s < last) last = age_s;
  }
  return last;
}

// Adds programs that a fleet needs, if none runs by its file. Adds nothing in a
// fleet of several machines, where this machine may have no part in the fleet.
void AddMissing(const StatusInput& o, Findings* troubles) {
  if (o.machines.ok()) return;
  for (const FleetOnDisk& fleet : o.fleets) {
    const auto theirs = ProcessesOfFleet(o.found.processes, fleet.path);
    // A process that does not answer counts as running here, since it is
    // reported as a separate trouble.
    const auto has = [&](const char* program, const char* door) {
      return std::any_of(theirs.begin(), theirs.end(),
                         [&](const FleetProcess& process) {
                           return IsOf(process, program);
                         }) ||
             std::any_of(o.found.silent.begin(), o.found.silent.end(),
                         [&](const SilentProcess& silent) {
                           return apply::IsDoorOf(silent.door, door);
                         });
    };
    if (fleet.error.empty() && !has("fineserve-proxy", "proxy")) {
      troubles->push_back(Trouble(
          true,
          absl::StrCat("no fineserve-proxy runs for ", fleet.path,
                       ": clients get no connection at ", fleet.proxy),
          LastSeen(o, "proxy"), "fineserve-proxy --fleet " + fleet.path));
    }
    if (fleet.starts_engines && !has("fsctl up", "up")) {
      troubles->push_back(Trouble(
          true,
          absl::StrCat("no fsctl up runs for ", fleet.path,
                       ": its engines are not started, nor started again "
                       "when they end"),
          LastSeen(o, "up"),
          absl::StrCat("fsctl up ", fleet.path,
                       ", which adopts those that run")));
    }
  }
}

// Returns the engines that should not serve according to the plan. Engines of
// other machines do not concern this machine's fsctl up.
std::set<std::string> PlannedOff(const DaemonWord& word) {
  std::set<std::string> engines;
  if (!word.plan || word.plan->plan == nullptr) return engines;
  for (const auto& place : word.plan->plan->places) {
    if (place->state != wire::PlaceState::kServe) engines.insert(place->engine);
  }
  return engines;
}

// The missing resource, in an operator's words, and how to get more of it.
struct Shortage {
  const char* of;
  const char* cure;
};
Shortage ShortageOf(wire::WaitedFor lack) {
  switch (lack) {
    case wire::WaitedFor::kKv:
      return {"KV", "give the pool or the engine's cap more, or add a replica"};
    case wire::WaitedFor::kBatch:
      return {"a place in the batch",
              "raise max_batch if the engine can take it, or add a replica"};
    case wire::WaitedFor::kEngine:
      return {"an engine that takes requests", "fsctl models says which do"};
    case wire::WaitedFor::kActivation:
      return {
          "time to bring its engine back to the GPU",
          "promise a longer slo_ttft_ms, or let it stay: evict = \"never\""};
    case wire::WaitedFor::kNothing:
    case wire::WaitedFor::kTurn:
    case wire::WaitedFor::kPrefill:
      break;
  }
  return {"time to fill their prompts",
          "add a replica, send less, or promise a longer slo_ttft_ms"};
}

void AddBurns(const StatusInput& o, Findings* troubles) {
  for (const DaemonWord& word : o.words) {
    if (!word.models) continue;
    for (const auto& m : word.models->models) {
      if (m->burns_s < 0) continue;
      const uint64_t all =
          uint64_t{m->recent_on_time} + m->recent_late + m->recent_refused;
      const Shortage shortage = ShortageOf(m->recent_lack);
      const std::string refused =
          m->recent_refused == 0
              ? ""
              : absl::StrCat(", most for want of ", shortage.of);
      troubles->push_back(Trouble(
          true,
          absl::StrCat("model ", m->name, " on ", GpuText(word.gpu),
                       " misses its SLO: of ", all,
                       " requests of the last minute ", m->recent_on_time,
                       " were on time, ", m->recent_late, " late and ",
                       m->recent_refused, " refused", refused),
          AgeNow(o.now, word.heard_ns, m->burns_s), shortage.cure));
    }
  }
}

// Omits engines of an fsctl up, since it reports more about them.
void AddModels(const StatusInput& o, Findings* troubles) {
  std::set<std::string> reported;
  for (const FleetProcess& up : o.found.processes) {
    if (!IsOf(up, "fsctl up")) continue;
    for (const auto& e : up.state.engines) reported.insert(e.name);
  }
  for (const DaemonWord& word : o.words) {
    if (!word.models) {
      if (!IsOfOrphan(o, word.gpu)) {
        troubles->push_back(Trouble(true,
                                    word.gpu + ": fineserved does not answer",
                                    SilenceOf(o, word.gpu), "see its log"));
      }
      continue;
    }
    const std::set<std::string> planned_off = PlannedOff(word);
    for (const auto& model : word.models->models) {
      for (const auto& engine : model->engines) {
        const std::string who = absl::StrCat("engine ", engine->name, " ");
        if (engine->drains) {
          troubles->push_back(
              Trouble(true, who + "is drained: it gets no new requests",
                      AgeNow(o.now, word.heard_ns, engine->drains_s),
                      absl::StrCat("fsctl drain ", engine->name, " --undo")));
        }
        const bool is_meant = planned_off.count(engine->name) > 0;
        // A missing proxy is reported as a separate trouble.
        const bool is_down =
            engine->heard && !engine->serves && !engine->scaled;
        if (is_down && !is_meant && reported.count(engine->name) == 0) {
          troubles->push_back(
              Trouble(true, who + "does not serve",
                      AgeNow(o.now, word.heard_ns, engine->silent_s),
                      "start it; fsctl up does that for engines "
                      "with a command"));
        }
        for (size_t i = 0; i < engine->troubles.size(); ++i) {
          const bool has_time = i < engine->troubles_s.size();
          troubles->push_back(Trouble(
              true,
              absl::StrCat("engine ", engine->name, ": ", engine->troubles[i]),
              has_time ? AgeNow(o.now, word.heard_ns, engine->troubles_s[i])
                       : -1,
              "see its log, or correct the fleet file and "
              "fsctl apply it"));
        }
      }
    }
  }
}

// Adds each trouble only once, since several daemons may report the same.
void AddPlan(const StatusInput& o, Findings* troubles) {
  const auto add = [&](Finding trouble) {
    if (std::none_of(troubles->begin(), troubles->end(), [&](const Finding& t) {
          return t.what == trouble.what;
        })) {
      troubles->push_back(std::move(trouble));
    }
  };
  for (const DaemonWord& word : o.words) {
    if (!word.plan) continue;
    if (word.plan->frozen) {
      add(Trouble(true, "the plan is frozen: no model moves",
                  AgeNow(o.now, word.plan_heard_ns, word.plan->frozen_s),
                  "fsctl plan --thaw"));
    }
    if (!word.plan->leads) continue;
    const std::vector<double>& times = word.plan->troubles_s;
    for (size_t i = 0; i < word.plan->troubles.size(); ++i) {
      add(Trouble(
          true, "the planner: " + word.plan->troubles[i],
          i < times.size() ? AgeNow(o.now, word.plan_heard_ns, times[i]) : -1,
          "fsctl plan shows the plan"));
    }
  }
}

// A proxy and an fsctl up work with the daemons of their fleet. If all daemons
// run another fleet, they find no engine, or the other fleet's engine of the
// same name.
void AddOtherFleets(const StatusInput& o, Findings* troubles) {
  std::vector<FleetProcess> daemons, others;
  for (const FleetProcess& process : o.found.processes) {
    if (process.state.fleet_path.empty()) continue;
    (IsOf(process, "fineserved") ? daemons : others).push_back(process);
  }
  if (daemons.empty()) return;
  for (const FleetProcess& other : others) {
    const std::string& path = other.state.fleet_path;
    if (!ProcessesOfFleet(daemons, path).empty()) continue;
    troubles->push_back(
        Trouble(true,
                absl::StrCat(other.Name(), " runs ", path, ", and ",
                             daemons.front().Name(), " runs ",
                             daemons.front().state.fleet_path,
                             ": two fleets share one runtime folder"),
                std::min(AgeNow(o.now, other.heard_ns, other.state.runs_s),
                         AgeNow(o.now, daemons.front().heard_ns,
                                daemons.front().state.runs_s)),
                absl::StrCat("end it, or give each fleet a folder of its own "
                             "(FINESERVE_RUNTIME_DIR)")));
  }
}

void AddDisks(const StatusInput& o, Findings* troubles) {
  for (const FullDisk& disk : o.full_disks) {
    troubles->push_back(
        Trouble(true,
                absl::StrCat("the disk of ", disk.path, " is full (",
                             Size(disk.free_bytes),
                             " free): logs and state files are not written"),
                disk.for_s, "make room there"));
  }
}

void AddFleets(const StatusInput& o, Findings* troubles) {
  for (const FleetOnDisk& fleet : o.fleets) {
    if (!fleet.error.empty()) {
      troubles->push_back(Trouble(
          true, fleet.error, fleet.changed_s,
          "correct it: no process of the fleet could be restarted now"));
      continue;
    }
    const auto theirs = ProcessesOfFleet(o.found.processes, fleet.path);
    const bool differs = std::any_of(
        theirs.begin(), theirs.end(), [&](const FleetProcess& process) {
          return process.state.fleet != fleet.fleet;
        });
    if (!differs) continue;
    troubles->push_back(
        Trouble(false, fleet.path + " has changes that do not run",
                fleet.changed_s, absl::StrCat("fsctl apply ", fleet.path)));
  }
}

}  // namespace

Findings TroublesOf(const StatusInput& o) {
  Findings troubles = TroublesOfPools(o);
  // If the daemon belongs to another user, starting a second one would not
  // help.
  if (!o.closed.empty()) {
    troubles.push_back(
        Trouble(true, o.closed, -1,
                "sudo -u USER fsctl status, or as root where FineServe "
                "is a unit"));
  } else if (o.pools.empty() && o.orphans.empty() && o.dead_daemons.empty()) {
    troubles.push_back(Trouble(true, "no fineserved runs", -1,
                               "fineserved --gpu 0 --pool auto"));
  }
  for (Finding& trouble : TroublesOfMachines(o)) {
    troubles.push_back(std::move(trouble));
  }
  AddMissing(o, &troubles);
  AddProxies(o, &troubles);
  AddEngines(o, &troubles);
  AddBurns(o, &troubles);
  AddModels(o, &troubles);
  AddPlan(o, &troubles);
  AddFleets(o, &troubles);
  AddOtherFleets(o, &troubles);
  AddDisks(o, &troubles);
  std::stable_partition(troubles.begin(), troubles.end(),
                        [](const Finding& t) { return t.is_wrong(); });
  return troubles;
}

}  // namespace fineserve::fsctl
