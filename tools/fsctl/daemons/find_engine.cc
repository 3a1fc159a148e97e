#include "tools/fsctl/daemons/find_engine.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/fsctl/daemons/daemon_choice.h"
#include "tools/fsctl/processes/inspected_process.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/fsctl/terminal/quantities.h"
#include "tools/fsctl/terminal/suggestion.h"

namespace fineserve::fsctl {

Engines LivingEngines(const abi::TableSnapshot& table) {
  Engines living;
  for (const abi::EngineSnapshot& engine : table.engines) {
    if (engine.state == abi::EngineState::kAlive) living.push_back(engine);
  }
  return living;
}

absl::StatusOr<abi::EngineSnapshot> FindEngine(const abi::TableSnapshot& table,
                                               const std::string& engine) {
  Engines named, numbered;
  std::vector<std::string> names;
  for (const abi::EngineSnapshot& e : LivingEngines(table)) {
    names.push_back(e.name);
    if (e.name == engine) named.push_back(e);
    if (absl::StrCat(e.id) == engine) numbered.push_back(e);
  }
  const Engines& found = named.empty() ? numbered : named;
  if (found.size() == 1) return found[0];
  if (found.empty()) {
    return absl::NotFoundError(
        absl::StrCat("no engine '", engine, "' lives in the pool",
                     DidYouMean(engine, names), "; see fsctl engines"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "several engines are named ", engine, "; give one's number instead: ",
      absl::StrJoin(found, ", ", [](std::string* out, const auto& e) {
        absl::StrAppend(out, e.id, " of user ", e.uid);
      })));
}

namespace {

bool AreOneEngine(const abi::EngineSnapshot& a, const abi::EngineSnapshot& b) {
  return std::any_of(
      a.member_pids.begin(), a.member_pids.end(), [&](uint32_t pid) {
        return std::count(b.member_pids.begin(), b.member_pids.end(), pid) != 0;
      });
}

absl::Status SeveralGpusHave(const std::string& engine,
                             const std::vector<EngineInPool>& found) {
  return absl::InvalidArgumentError(absl::StrCat(
      "several GPUs have an engine ", engine, "; choose one with --gpu: ",
      absl::StrJoin(found, ", ", [](std::string* out, const auto& place) {
        out->append(GpuName(place.pool.table.gpu_uuid));
      })));
}

}  // namespace

absl::StatusOr<std::vector<EngineInPool>> FindEngineInPools(
    const std::vector<Pool>& asked, const std::vector<Pool>& all,
    const std::string& engine) {
  std::vector<EngineInPool> found;
  absl::Status none = absl::NotFoundError("no pool");
  bool any_named = false;
  for (const Pool& pool : asked) {
    const auto here = FindEngine(pool.table, engine);
    if (here.ok()) {
      any_named = any_named || here->name == engine;
      found.push_back({pool, *here});
    } else if (absl::IsNotFound(here.status())) {
      none = here.status();
    } else {
      return here.status();
    }
  }
  if (any_named) {
    std::erase_if(found, [&](const EngineInPool& place) {
      return place.engine.name != engine;
    });
  }
  if (found.empty()) return none;
  for (const EngineInPool& place : found) {
    if (AreOneEngine(place.engine, found[0].engine)) continue;
    if (place.pool.socket == found[0].pool.socket) continue;
    return SeveralGpusHave(engine, found);
  }
  for (const Pool& pool : all) {
    const bool is_known = std::any_of(
        found.begin(), found.end(),
        [&](const auto& place) { return place.pool.socket == pool.socket; });
    if (is_known) continue;
    for (const abi::EngineSnapshot& e : LivingEngines(pool.table)) {
      if (e.name != found[0].engine.name) continue;
      if (AreOneEngine(e, found[0].engine)) found.push_back({pool, e});
    }
  }
  return found;
}

absl::StatusOr<std::vector<pid_t>> ProcessesOf(const std::string& gpu,
                                               const std::string& engine) {
  pid_t pid = 0;
  if (absl::SimpleAtoi(engine, &pid)) {
    if (pid <= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("not a process id: ", engine));
    }
    if (absl::Status seen = CheckProcess(pid); !seen.ok()) return seen;
    return std::vector<pid_t>{pid};
  }
  std::vector<absl::Status> dead;
  std::vector<Pool> pools = AllPools(&dead);
  if (pools.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("no fineserved runs here that could know an engine '",
                     engine, "'; give its process id instead"));
  }
  if (!gpu.empty()) {
    absl::StatusOr<Pool> one = Pick(pools, gpu);
    if (!one.ok()) return one.status();
    pools = {*std::move(one)};
  }
  std::set<pid_t> pids;
  std::vector<std::string> names;
  for (const Pool& pool : pools) {
    for (const abi::EngineSnapshot& e : LivingEngines(pool.table)) {
      names.push_back(e.name);
      if (e.name != engine) continue;
      pids.insert(e.member_pids.begin(), e.member_pids.end());
    }
  }
  for (const pid_t member : pids) {
    if (absl::Status seen = CheckProcess(member); !seen.ok()) return seen;
  }
  if (!pids.empty()) return std::vector<pid_t>(pids.begin(), pids.end());
  return absl::NotFoundError(
      absl::StrCat("no engine '", engine, "' lives in a pool",
                   DidYouMean(engine, names), "; see fsctl engines"));
}

absl::StatusOr<pid_t> OneProcessOf(const std::string& gpu,
                                   const std::string& engine) {
  const auto pids = ProcessesOf(gpu, engine);
  if (!pids.ok()) return pids.status();
  if (pids->size() == 1) return pids->front();
  return absl::InvalidArgumentError(absl::StrCat(
      "engine ", engine,
      " has several processes; give one: ", absl::StrJoin(*pids, ", ")));
}

int FailWithoutProcess(const absl::Status& status) {
  const bool no_daemon = absl::IsFailedPrecondition(status);
  const int code =
      absl::IsInvalidArgument(status) ? kExitUsage : kExitBadAnswer;
  return Fail(no_daemon ? kExitNoDaemon : code, status);
}

}  // namespace fineserve::fsctl
