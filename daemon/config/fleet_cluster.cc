#include "daemon/config/fleet_cluster.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "daemon/config/address.h"
#include "daemon/config/fleet_places.h"

namespace fineserve::config {
namespace {

constexpr char kHost[] = "{host}";
constexpr uint32_t kLeastTtlS = 5;
constexpr size_t kMostMachines = 64;

absl::Status WrongCluster(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("[cluster]: ", what));
}

// A name is part of keys in etcd and of what fsctl prints.
bool IsName(absl::string_view name) {
  return !name.empty() && name.size() <= 64 &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                  absl::string_view("-_.").find(c) != absl::string_view::npos;
         });
}

Setter Gpus(std::vector<std::string>* gpus) {
  return List("a list of UUIDs, like [\"GPU-8f0c3f1e\"]",
              [gpus](const toml::node& one) {
                std::string text;
                absl::Status s = Text(&text)(one);
                gpus->push_back(GpuOf(text).uuid);
                return s;
              });
}

Setter OneMachine(const std::string& path, std::vector<Machine>* machines) {
  return [=](const toml::node& node) {
    Machine m;
    const absl::Status s = Section(path, {{"name", Text(&m.name)},
                                          {"host", Text(&m.host)},
                                          {"gpus", Gpus(&m.gpus)}})(node);
    if (!s.ok()) return s;
    if (!IsName(m.name) || m.host.empty() || m.gpus.empty()) {
      return At(path, node.source(),
                "a machine needs name (letters, digits, -, _ and .), host and "
                "gpus, like { name = \"a\", host = \"10.0.0.1\", gpus = "
                "[\"GPU-8f0c3f1e\"] }");
    }
    machines->push_back(std::move(m));
    return absl::OkStatus();
  };
}

Setter Members(std::vector<HostPort>* members) {
  return List("a list of addresses, like [\"127.0.0.1:2379\"]",
              [members](const toml::node& one) {
                std::string text;
                absl::Status s = Text(&text)(one);
                if (!s.ok()) return s;
                HostPort member;
                s = SplitAddress(text, &member.host, &member.port);
                if (!s.ok() || member.port == 0) {
                  return WrongType("addresses, like \"127.0.0.1:2379\"");
                }
                members->push_back(std::move(member));
                return s;
              });
}

absl::Status CheckMachine(const Machine& m, const ClusterSettings& cluster) {
  for (const Machine& other : cluster.machines) {
    if (&other == &m) continue;
    if (other.name == m.name) {
      return WrongCluster(
          absl::StrCat("two machines \"", m.name, "\"; rename one"));
    }
    for (const std::string& gpu : m.gpus) {
      if (cluster.MachineOf(gpu) == &m) continue;
      return WrongCluster(
          absl::StrCat("\"", gpu, "\" of machine \"", m.name,
                       "\" may be a GPU of another machine, too; "
                       "write more of its UUID"));
    }
  }
  if (cluster.port + m.gpus.size() - 1 <= kMostPort) return absl::OkStatus();
  return WrongCluster(
      absl::StrCat("machine \"", m.name, "\" has ", m.gpus.size(),
                   " GPUs, which need ports from ", cluster.port,
                   " on; give port a smaller number"));
}

}  // namespace

Setter Cluster(const std::string& path, ClusterSettings* cluster) {
  return [=](const toml::node& node) {
    uint32_t port = cluster->port;
    const absl::Status s = Section(
        path,
        {{"name", Text(&cluster->name)},
         {"etcd", Members(&cluster->etcd)},
         {"port", Count(&port, 1, kMostPort)},
         {"ttl",
          Count(&cluster->ttl_s, kLeastTtlS, ClusterSettings::kMostTtlS)},
         {"machines", List("a list of machines, like [{ name = \"a\", host = "
                           "\"10.0.0.1\", gpus = [\"GPU-8f0c3f1e\"] }]",
                           OneMachine(path, &cluster->machines))}})(node);
    cluster->port = static_cast<uint16_t>(port);
    return s;
  };
}

absl::Status CheckCluster(const Fleet& fleet) {
  const ClusterSettings& cluster = fleet.cluster;
  if (!IsName(cluster.name)) {
    return WrongCluster("name is letters, digits, -, _ and .");
  }
  if (cluster.machines.size() > kMostMachines) {
    return WrongCluster(absl::StrCat("more than ", kMostMachines, " machines"));
  }
  for (const Machine& m : cluster.machines) {
    if (absl::Status s = CheckMachine(m, cluster); !s.ok()) return s;
  }
  if (!cluster.IsOn()) return absl::OkStatus();
  if (cluster.etcd.empty()) {
    return WrongCluster(
        "several machines need etcd; name this machine's member of it, like "
        "etcd = [\"127.0.0.1:2379\"]");
  }
  for (const FleetEngine& engine : fleet.engines) {
    if (cluster.MachineOf(engine.gpu) != nullptr) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "engine \"", engine.name, "\": no machine of [cluster] has its GPU ",
        engine.gpu.empty() ? "(it names none)" : engine.gpu,
        "; add it to the gpus of one"));
  }
  return absl::OkStatus();
}

absl::Status PlaceOnMachines(Fleet* fleet) {
  for (FleetEngine& engine : fleet->engines) {
    const Machine* machine = fleet->cluster.MachineOf(engine.gpu);
    if (machine == nullptr) {
      if (engine.host != kHost) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "engine \"", engine.name,
          "\": {host} is the host of the machine that has its GPU, and no "
          "machine of [cluster] has ",
          engine.gpu.empty() ? "it" : engine.gpu));
    }
    if (engine.host == kHost) engine.host = machine->host;
    for (std::string& word : engine.command) {
      word = absl::StrReplaceAll(word, {{kHost, machine->host}});
    }
  }
  return absl::OkStatus();
}

}  // namespace fineserve::config
