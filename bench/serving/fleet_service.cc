#include "bench/serving/fleet_service.h"

#include <signal.h>
#include <stdio.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/soak/interrupt.h"
#include "tools/lab/process/daemon_log.h"
#include "tools/lab/process/eventually.h"
#include "tools/lab/process/free_port.h"
#include "tools/lab/process/linger_helpers.h"

namespace fineserve::bench {

FleetService::FleetService(std::string bench, const Gpus& gpus)
    : bench_(std::move(bench)),
      gpus_(gpus),
      environment_{{"FINESERVE_RUNTIME_DIR", Path("run")},
                   {"EMUCUDA_DIR", device_folder_.path()},
                   {"EMUCUDA_DEVICES", absl::StrCat(gpus.count)},
                   {"EMUCUDA_MEMORY", absl::StrCat(gpus.memory_mib, "MiB")}},
      port_(process::FreePort()) {}

// The proxy ends first, then fsctl up with its engines, then the daemons.
FleetService::~FleetService() {
  while (!programs_.empty()) programs_.pop_back();
  process::EndLingering(device_folder_.path());
}

std::vector<std::string> FleetService::FindGpus() {
  std::vector<std::string> found;
  if (!StartDaemons("")) return found;
  for (const auto& daemon : programs_) {
    found.push_back(process::GpuInLog(daemon->Printed()));
  }
  programs_.clear();
  return found;
}

bool FleetService::Start(const std::string& fleet_path) {
  if (!StartDaemons(fleet_path)) return false;
  programs_.push_back(Launch({"fsctl", "up", fleet_path}));
  programs_.push_back(Launch(
      {"fineserve-proxy", "--fleet", fleet_path, "--log-level", "error"}));
  return true;
}

bool FleetService::StartDaemons(const std::string& fleet_path) {
  for (int gpu = 0; gpu < gpus_.count; ++gpu) {
    std::vector<std::string> words = process::Words(
        absl::StrCat("fineserved --gpu emulated:", gpu, " --pool ",
                     gpus_.pool_mib, "MiB --slab ", gpus_.slab_mib, "MiB"));
    if (!fleet_path.empty()) words.insert(words.end(), {"--fleet", fleet_path});
    programs_.push_back(Launch(std::move(words)));
    if (!programs_.back()->Prints(" serving ")) {
      return Fail("fineserved does not serve: " + programs_.back()->About());
    }
  }
  return true;
}

std::unique_ptr<Program> FleetService::Launch(std::vector<std::string> words) {
  const std::string log = Path(absl::StrCat(++launched_, "-", words[0]));
  words[0] = process::ProgramFolder() + "/" + words[0];
  return std::make_unique<Program>(log, std::move(words), environment_,
                                   SIGTERM);
}

std::string FleetService::Fsctl(const std::vector<std::string>& arguments) {
  const auto fsctl = Launch(process::With({"fsctl"}, arguments));
  return fsctl->EndsWithin(process::kPatience) && fsctl->Wait() == 0
             ? fsctl->Printed()
             : "";
}

std::string FleetService::About() const {
  const auto up = static_cast<size_t>(gpus_.count);
  std::string about;
  if (!programs_.empty()) about += programs_[0]->About();
  if (programs_.size() > up) about += "; " + programs_[up]->About();
  return about;
}

bool FleetService::Fail(const std::string& what) const {
  if (!Interrupted()) fprintf(stderr, "%s: %s\n", bench_.c_str(), what.c_str());
  return false;
}

}  // namespace fineserve::bench
