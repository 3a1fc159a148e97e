#include "tools/up/fleet_check.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/contract/finding/daemon_sockets.h"
#include "daemon/fleet/machines/this_machine.h"
#include "tools/fsctl/daemons/daemon_choice.h"
#include "tools/fsctl/processes/child.h"
#include "tools/fsctl/terminal/clean_text.h"
#include "tools/fsctl/terminal/json_text.h"
#include "tools/fsctl/terminal/quantities.h"

namespace fineserve::fsctl {
namespace {

// Returns the complete UUID of a GPU without a daemon: the name itself if it is
// complete, otherwise the name of a socket that a daemon left behind. Empty if
// there is neither.
std::string UuidWithoutDaemon(const std::string& gpu) {
  constexpr size_t kWholeUuid = 40;  // GPU-8-4-4-4-12
  if (gpu.size() == kWholeUuid) return gpu;
  const std::vector<std::string> sockets =
      finding::ListSockets(finding::RuntimeFolder(), gpu);
  return gpu.empty() || sockets.empty() ? "" : finding::GpuOfSocket(sockets[0]);
}

struct FoundGpu {
  std::string uuid;      // whole; empty: not known
  absl::Status missing;  // why no daemon serves it, if none does
};

FoundGpu FindGpu(const std::string& gpu) {
  const absl::StatusOr<Pool> pool = ChoosePool(gpu);
  if (pool.ok()) {
    return {GpuName(pool->table.gpu_uuid),
            pool->daemon_answers() ? absl::OkStatus() : NeedsDaemon(*pool)};
  }
  return {
      absl::IsNotFound(pool.status()) ? UuidWithoutDaemon(gpu) : std::string(),
      pool.status()};
}

// Checks that the program of each engine exists, since starting a missing one
// would fail again and again.
absl::Status CheckCommands(const config::Fleet& fleet) {
  for (const config::FleetEngine& engine : fleet.engines) {
    if (engine.command.empty() || IsProgram(engine.command[0])) continue;
    return absl::NotFoundError(
        absl::StrCat("engine ", engine.name, ": ", engine.command[0],
                     ": command not found; install it, or correct the "
                     "engine's command"));
  }
  return absl::OkStatus();
}

// True for two replicas on different GPUs. CUDA lets no MIG instance access
// another instance's memory.
bool MayRead(const config::FleetEngine& reader,
             const config::FleetEngine& lender) {
  const auto takes_part = [](const config::FleetEngine& engine) {
    return engine.may_evict && !engine.gpu.empty() && !engine.is_mig &&
           engine.rank_gpus.empty();
  };
  return takes_part(reader) && takes_part(lender) &&
         reader.model == lender.model && !reader.MayShareGpuWith(lender);
}

// Returns the names of the engine's GPUs, to be completed.
std::vector<std::string*> GpusOf(config::FleetEngine* engine) {
  std::vector<std::string*> gpus = {&engine->gpu};
  for (std::string& gpu : engine->rank_gpus) gpus.push_back(&gpu);
  return gpus;
}

}  // namespace

absl::StatusOr<FleetToRun> ReadFleetOfUp(const std::string& path) {
  absl::StatusOr<config::Fleet> fleet = config::ReadFleet(path);
  if (!fleet.ok()) return fleet.status();
  config::FleetDescription written = config::Describe(*fleet);
  fleet = cluster::OwnPart(*std::move(fleet));
  if (!fleet.ok()) return fleet.status();
  const absl::Status commands = CheckCommands(*fleet);
  if (!commands.ok()) return commands;
  return FleetToRun{*std::move(fleet), std::move(written)};
}

absl::Status CompleteGpus(const Globals& globals, config::Fleet* fleet,
                          std::vector<std::string>* warnings) {
  std::map<std::string, std::string> uuids;  // by what the fleet calls it
  absl::Status missing;
  bool any_answers = false;
  for (config::FleetEngine& engine : fleet->engines) {
    for (std::string* gpu : GpusOf(&engine)) {
      std::string& uuid = uuids[*gpu];
      if (uuid.empty()) {
        const FoundGpu found = FindGpu(gpu->empty() ? globals.gpu : *gpu);
        any_answers |= found.missing.ok();
        if (!found.missing.ok()) {
          missing = found.missing;
          if (!fleet->planner.on || found.uuid.empty()) return missing;
          warnings->push_back(
              absl::StrCat(found.uuid, ": ", missing.message()));
        }
        uuid = found.uuid;
      }
      if (!gpu->empty()) *gpu = uuid;
    }
  }
  if (!any_answers) return missing;
  FindPeerGpus(fleet);
  return absl::OkStatus();
}

void FindPeerGpus(config::Fleet* fleet) {
  if (!fleet->overload.IsOn()) return;
  for (config::FleetEngine& engine : fleet->engines) {
    std::vector<std::string>& peers = engine.peer_gpus;
    for (const config::FleetEngine& other : fleet->engines) {
      if (MayRead(engine, other) &&
          std::find(peers.begin(), peers.end(), other.gpu) == peers.end()) {
        peers.push_back(other.gpu);
      }
    }
  }
}

std::vector<std::string> GpusOfPlaces(const config::Fleet& fleet) {
  std::vector<std::string> gpus;
  for (const config::FleetEngine& engine : fleet.engines) {
    if (!engine.is_place) continue;
    for (const std::string& gpu : engine.Gpus()) gpus.push_back(gpu);
  }
  return gpus;
}

namespace {

std::string UrlOf(const config::FleetEngine& engine) {
  const bool is_ipv6 = engine.host.find(':') != std::string::npos;
  return absl::StrCat("http://", is_ipv6 ? "[" : "", engine.host,
                      is_ipv6 ? "]" : "", ":", engine.port);
}

// A word as a shell takes it.
void AppendQuoted(std::string* out, const std::string& word) {
  constexpr char kPlain[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./"
      ":=@%+,";
  const bool plain =
      !word.empty() && word.find_first_not_of(kPlain) == std::string::npos;
  absl::StrAppend(out, plain ? word : ShellQuoted(word));
}

}  // namespace

std::string PreviewText(const config::Fleet& fleet) {
  std::string text;
  for (const config::FleetEngine& engine : fleet.engines) {
    if (engine.command.empty()) continue;
    absl::StrAppend(&text, engine.name, " at ", UrlOf(engine), "\n  ",
                    absl::StrJoin(engine.command, " ", AppendQuoted), "\n");
  }
  return text;
}

std::string PreviewJson(const config::Fleet& fleet) {
  nlohmann::ordered_json engines = nlohmann::ordered_json::array();
  for (const config::FleetEngine& engine : fleet.engines) {
    if (engine.command.empty()) continue;
    engines.push_back({{"name", engine.name},
                       {"model", engine.model},
                       {"url", UrlOf(engine)},
                       {"command", engine.command}});
  }
  return JsonText({{"engines", std::move(engines)}});
}

}  // namespace fineserve::fsctl
