#include "daemon/fleet/config/fleet.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "daemon/contract/finding/daemon_sockets.h"

namespace fineserve::config {

bool FleetEngine::NamesItsGpus() const {
  return environment.contains("CUDA_VISIBLE_DEVICES");
}

std::vector<std::string> FleetEngine::Gpus() const {
  std::vector<std::string> gpus = {gpu};
  gpus.insert(gpus.end(), rank_gpus.begin(), rank_gpus.end());
  return gpus;
}

bool FleetEngine::IsOn(absl::string_view uuid) const {
  const std::vector<std::string> gpus = Gpus();
  return std::any_of(gpus.begin(), gpus.end(), [uuid](const std::string& own) {
    return finding::MeansGpu(own, uuid);
  });
}

bool FleetEngine::MayShareGpuWith(const FleetEngine& other) const {
  const std::vector<std::string> own = Gpus(), others = other.Gpus();
  return std::any_of(own.begin(), own.end(), [&](const std::string& a) {
    return std::any_of(
        others.begin(), others.end(),
        [&a](const std::string& b) { return finding::MayBeOneGpu(a, b); });
  });
}

std::vector<std::string> FleetEngine::ShownGpus() const {
  std::vector<std::string> gpus;
  if (NamesItsGpus()) return gpus;
  if (!gpu.empty()) gpus.push_back(CudaGpu());
  gpus.insert(gpus.end(), rank_gpus.begin(), rank_gpus.end());
  gpus.insert(gpus.end(), peer_gpus.begin(), peer_gpus.end());
  return gpus;
}

std::string FleetEngine::CudaGpus() const {
  std::vector<std::string> gpus = Gpus();
  gpus.front() = CudaGpu();
  return absl::StrJoin(gpus, ",");
}

// fineserved knows a MIG instance only by the bytes of its UUID, so the prefix
// is replaced here.
std::string FleetEngine::CudaGpu() const {
  return is_mig ? absl::StrCat("MIG-", absl::StripPrefix(gpu, "GPU-")) : gpu;
}

namespace {

// Returns the index of the GPU among the machine's; the number of its GPUs if
// it is not one of them.
size_t IndexOf(const Machine& machine, absl::string_view gpu) {
  const auto is_it = [gpu](const std::string& own) {
    return !gpu.empty() && finding::MayBeOneGpu(own, gpu);
  };
  return static_cast<size_t>(
      std::find_if(machine.gpus.begin(), machine.gpus.end(), is_it) -
      machine.gpus.begin());
}

bool Holds(const std::vector<std::string>& names, absl::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

const Machine* ClusterSettings::MachineOf(absl::string_view gpu) const {
  const auto found = std::find_if(
      machines.begin(), machines.end(),
      [&](const Machine& m) { return IndexOf(m, gpu) < m.gpus.size(); });
  return found == machines.end() ? nullptr : &*found;
}

const Machine* ClusterSettings::Named(absl::string_view machine) const {
  const auto found =
      std::find_if(machines.begin(), machines.end(),
                   [&](const Machine& m) { return m.name == machine; });
  return found == machines.end() ? nullptr : &*found;
}

uint16_t ClusterSettings::PortOf(absl::string_view gpu) const {
  const Machine* machine = MachineOf(gpu);
  return machine == nullptr
             ? 0
             : static_cast<uint16_t>(port + IndexOf(*machine, gpu));
}

bool FleetModel::IsAdapter(absl::string_view asked) const {
  return Holds(adapters, asked);
}

bool FleetModel::HasName(absl::string_view asked) const {
  return name == asked || Holds(aliases, asked) || IsAdapter(asked);
}

size_t Fleet::ModelIndex(const std::string& name) const {
  return std::find_if(models.begin(), models.end(),
                      [&](const FleetModel& m) { return m.name == name; }) -
         models.begin();
}

const FleetEngine* Fleet::Engine(absl::string_view name) const {
  const auto found =
      std::find_if(engines.begin(), engines.end(),
                   [&](const FleetEngine& e) { return e.name == name; });
  return found == engines.end() ? nullptr : &*found;
}

const OutsideModel* Fleet::Outside(absl::string_view name) const {
  const auto found =
      std::find_if(outside.begin(), outside.end(),
                   [&](const OutsideModel& o) { return o.name == name; });
  return found == outside.end() ? nullptr : &*found;
}

uint64_t Fleet::HostBytesOf(absl::string_view gpu) const {
  const Machine* machine = cluster.MachineOf(gpu);
  const bool says = machine != nullptr && machine->host_bytes != 0;
  return says ? machine->host_bytes : planner.host_bytes;
}

Fleet Fleet::OfGpu(const std::string& gpu) const {
  Fleet part = *this;
  part.engines.erase(
      std::remove_if(part.engines.begin(), part.engines.end(),
                     [&](const FleetEngine& e) { return e.gpu != gpu; }),
      part.engines.end());
  return part;
}

std::string FleetPath(const std::string& path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(path, error);
  return error ? path : whole.string();
}

bool IsSameFleet(const std::string& a, const std::string& b) {
  std::error_code error;
  return a == b || std::filesystem::equivalent(a, b, error);
}

}  // namespace fineserve::config
