#include "bench/serving/fleet_service.h"

#include <stdio.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/serving/clients.h"
#include "bench/soak/interrupt.h"
#include "tools/lab/process/daemon_log.h"
#include "tools/lab/process/free_port.h"

namespace fineserve::bench {

FleetService::FleetService(std::string bench, const Gpus& gpus)
    : bench_(std::move(bench)), gpus_(gpus), port_(process::FreePort()) {
  machine_.Set("EMUCUDA_DEVICES", absl::StrCat(gpus.count));
  machine_.Set("EMUCUDA_MEMORY", absl::StrCat(gpus.memory_mib, "MiB"));
  for (int gpu = 0; gpu < gpus.count; ++gpu) {
    metrics_ports_.push_back(process::FreePort());
  }
}

std::vector<std::string> FleetService::FindGpus() {
  std::vector<std::string> found;
  if (!StartDaemons({})) return found;
  for (const auto& daemon : programs_) {
    found.push_back(process::GpuInLog(daemon->Stderr()));
  }
  programs_.clear();
  return found;
}

bool FleetService::Start(const stage::FleetText& fleet) {
  fleet.WriteTo(fleet_path());
  if (!StartDaemons({"--fleet", fleet_path()})) return false;
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"fsctl", "up", fleet_path()},
        {"fineserve-proxy", "--fleet", fleet_path(), "--log-level", "error"}}) {
    programs_.push_back(machine_.LaunchProgram(words));
  }
  return true;
}

bool FleetService::AwaitModels(uint16_t port,
                               const std::vector<std::string>& models) const {
  const bool answers = AwaitAnswers(port, models);
  CatchInterrupts();  // the clients have put the default back
  return answers || Fail("the engines did not answer in time; " + About());
}

bool FleetService::StartDaemons(const std::vector<std::string>& flags) {
  for (int gpu = 0; gpu < gpus_.count; ++gpu) {
    const std::string pool =
        gpus_.pool_mib == 0 ? "auto" : absl::StrCat(gpus_.pool_mib, "MiB");
    const std::vector<std::string> words = process::Words(absl::StrCat(
        "fineserved --gpu emulated:", gpu, " --pool ", pool, " --slab ",
        gpus_.slab_mib, "MiB --metrics 127.0.0.1:",
        metrics_ports_[static_cast<size_t>(gpu)], " ", gpus_.daemon_flags));
    programs_.push_back(machine_.LaunchProgram(process::With(words, flags)));
    if (!programs_.back()->Logs(" serving ")) {
      return Fail("fineserved does not serve: " + programs_.back()->About());
    }
  }
  return true;
}

std::string FleetService::Fsctl(const std::vector<std::string>& arguments) {
  const stage::Finished fsctl = machine_.Fsctl(arguments);
  return fsctl.code == 0 ? fsctl.out : "";
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
