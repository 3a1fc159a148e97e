#include "daemon/fleet/config/fleet_places.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "daemon/contract/abi/printable.h"
#include "daemon/contract/abi/slab_table.h"
#include "daemon/contract/finding/daemon_sockets.h"
#include "daemon/fleet/config/address.h"

namespace fineserve::config {
namespace {

constexpr absl::string_view kPort = "{port}";

// Says what is wrong with the GPUs that `key` lists; empty if they are right.
std::string TroubleWith(const NamedGroup& gpus, absl::string_view key) {
  if (gpus.empty())
    return absl::StrCat(key, " is empty; name at least one GPU");
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (gpus[i].uuid.empty()) {
      return absl::StrCat(key, " has an empty name; give UUIDs");
    }
    for (size_t j = 0; j < i; ++j) {
      if (!finding::MayBeOneGpu(gpus[i].uuid, gpus[j].uuid)) continue;
      return absl::StrCat(key, " has \"", gpus[j].uuid, "\" and \"",
                          gpus[i].uuid,
                          "\", which may be one GPU; list each GPU once");
    }
  }
  return "";
}

std::string TroubleWithGroups(const std::vector<NamedGroup>& groups) {
  NamedGroup all;
  for (const NamedGroup& group : groups) {
    if (group.empty()) return "gpus has an empty list; name its GPUs";
    if (group.size() != groups.front().size()) {
      return "gpus has lists of several lengths; give each place as many GPUs "
             "as the engine has ranks";
    }
    all.insert(all.end(), group.begin(), group.end());
  }
  return TroubleWith(all, "gpus");
}

absl::Status CheckList(const FleetEngine& engine,
                       const std::vector<NamedGroup>& gpus) {
  const std::string trouble = TroubleWithGroups(gpus);
  if (!trouble.empty()) return WrongEngine(engine, trouble);
  if (!engine.gpu.empty()) {
    return WrongEngine(engine, "has both gpu and gpus; leave out one of them");
  }
  if (engine.target_rate != 0) {
    return WrongEngine(engine,
                       "has gpus, and the planner gives its rates; leave out "
                       "target_rate");
  }
  if (engine.port + gpus.size() - 1 > kMostPort) {
    return WrongEngine(
        engine, absl::StrCat("its ", gpus.size(), " places need ports from ",
                             engine.port, " on, beyond ", kMostPort,
                             "; give url a smaller port"));
  }
  const bool tells_port = std::any_of(
      engine.command.begin(), engine.command.end(),
      [](const std::string& word) { return absl::StrContains(word, kPort); });
  if (gpus.size() > 1 && !engine.command.empty() && !tells_port) {
    return WrongEngine(
        engine,
        "each of its places has a port of its own; write {port} in "
        "command, like \"--port\", \"{port}\"");
  }
  return absl::OkStatus();
}

// True if the host names this machine, or means all of its addresses.
bool IsHere(absl::string_view host) {
  return absl::StartsWith(host, "127.") || host == "localhost" ||
         host == "::1" || host == "0.0.0.0" || host == "::";
}

// True if a connection to the engine's address reaches this listener.
bool Reaches(const FleetEngine& engine, const std::string& host,
             uint16_t port) {
  return port != 0 && engine.port == port &&
         (engine.host == host || (IsHere(engine.host) && IsHere(host)));
}

// Names are part of file names, of metrics and of what fsctl prints.
bool IsNameLetter(char c) {
  return c > ' ' && c < '\x7f' && !absl::StrContains("/\\\"'", c);
}

}  // namespace

absl::Status CheckName(const FleetEngine& engine) {
  const std::string& name = engine.name;
  const bool fits = !name.empty() && name.size() < abi::kNameBytes &&
                    name[0] != '.' && name[0] != '-' &&
                    std::all_of(name.begin(), name.end(), IsNameLetter);
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "engine \"", abi::Printable(name.data(), name.size()),
      "\": not a name for an engine; use 1 to ", abi::kNameBytes - 1,
      " printable ASCII characters, no space, slash, backslash or quote, and "
      "neither . nor - in front"));
}

NamedGpu GpuOf(absl::string_view text) {
  const bool is_mig = absl::ConsumePrefix(&text, "MIG-");
  return {is_mig ? absl::StrCat("GPU-", text) : std::string(text), is_mig};
}

absl::Status WrongEngine(const FleetEngine& engine, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("engine \"", engine.name, "\": ", what));
}

absl::Status SetGpus(const NamedGroup& group, FleetEngine* engine) {
  engine->rank_gpus.clear();
  if (group.size() == 1) {
    engine->gpu = group.front().uuid;
    engine->is_mig = group.front().is_mig;
    return absl::OkStatus();
  }
  const std::string trouble = TroubleWith(group, "gpu");
  if (!trouble.empty()) return WrongEngine(*engine, trouble);
  for (const NamedGpu& gpu : group) {
    if (!gpu.is_mig) continue;
    return WrongEngine(*engine,
                       absl::StrCat("MIG-", absl::StripPrefix(gpu.uuid, "GPU-"),
                                    " cannot be one of several GPUs of an "
                                    "engine; give it whole GPUs"));
  }
  engine->gpu = group.front().uuid;
  for (size_t i = 1; i < group.size(); ++i) {
    engine->rank_gpus.push_back(group[i].uuid);
  }
  return absl::OkStatus();
}

void FillInOwn(FleetEngine* engine) {
  const std::string gpu = engine->gpu.empty() ? "{gpu}" : engine->CudaGpus();
  const auto fill_in = [&](std::string* word) {
    *word = absl::StrReplaceAll(*word, {{kPort, absl::StrCat(engine->port)},
                                        {"{name}", engine->name},
                                        {"{gpu}", gpu}});
  };
  for (std::string& word : engine->command) fill_in(&word);
  for (auto& [variable, value] : engine->environment) fill_in(&value);
}

absl::StatusOr<std::vector<FleetEngine>> PlacesOf(
    const FleetEngine& engine, const std::vector<NamedGroup>& gpus) {
  if (absl::Status s = CheckList(engine, gpus); !s.ok()) return s;
  std::vector<FleetEngine> places;
  for (size_t i = 0; i < gpus.size(); ++i) {
    FleetEngine place = engine;
    place.name = absl::StrCat(engine.name, "-", i);
    place.port = static_cast<uint16_t>(engine.port + i);
    if (absl::Status s = SetGpus(gpus[i], &place); !s.ok()) return s;
    place.is_place = true;
    FillInOwn(&place);
    places.push_back(std::move(place));
  }
  return places;
}

absl::Status CheckApart(const FleetEngine& engine, const Fleet& fleet) {
  for (const FleetEngine& other : fleet.engines) {
    if (other.name == engine.name) {
      return absl::InvalidArgumentError(
          absl::StrCat("a second engine \"", engine.name, "\"; ",
                       engine.is_place || other.is_place
                           ? "an engine with gpus is called NAME-0, NAME-1 and "
                             "so on; rename one of them"
                           : "rename one of them"));
    }
    if ((engine.is_place || other.is_place) && other.host == engine.host &&
        other.port == engine.port) {
      return WrongEngine(
          engine, absl::StrCat("\"", other.name, "\" has port ", engine.port,
                               ", too; give one of them another url, "
                               "and each of its gpus a port"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckIsNoProxy(const FleetEngine& engine,
                            const ProxySettings& proxy) {
  const bool is_its = Reaches(engine, proxy.listen_host, proxy.listen_port) ||
                      Reaches(engine, proxy.admin_host, proxy.admin_port);
  if (!is_its) return absl::OkStatus();
  return WrongEngine(
      engine,
      absl::StrCat("fineserve-proxy itself listens on port ", engine.port,
                   " and would ask itself; give url the engine's "
                   "port, or [proxy] another one"));
}

}  // namespace fineserve::config
