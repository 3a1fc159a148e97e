// fineserve-proxy: OpenAI's API in front of a fleet of engines.

#include <stdio.h>

#include <memory>
#include <string>
#include <vector>

#include "daemon/abi/socket_path.h"
#include "daemon/clock/clock.h"
#include "daemon/log/log.h"
#include "daemon/proxy/admission/admission_channel.h"
#include "daemon/proxy/admission/engine_health.h"
#include "daemon/proxy/admission/fleet_admission.h"
#include "daemon/proxy/options.h"
#include "daemon/proxy/proxy.h"
#include "kernels/driver/descriptor_limit.h"

namespace fineserve::proxy {
namespace {

std::string RuntimeFolder(const Options& options) {
  if (!options.runtime_dir.empty()) return options.runtime_dir;
  char folder[abi::kPathBytes];
  return abi::RuntimeFolder(folder) ? folder : ".";
}

int Fail(const absl::Status& s, int code) {
  fprintf(stderr, "fineserve-proxy: %s\n", std::string(s.message()).c_str());
  return code;
}

int Run(int argc, char** argv) {
  const absl::variant<Options, int> parsed = ParseOptions(argc, argv);
  if (const int* code = absl::get_if<int>(&parsed)) return *code;
  const auto& options = absl::get<Options>(parsed);
  const absl::StatusOr<Setup> setup = ReadSetup(options);
  if (!setup.ok()) return Fail(setup.status(), 2);
  if (options.check_only) {
    if (setup->warning.empty()) return 0;
    return Fail(absl::UnknownError("warning: " + setup->warning), 0);
  }
  log::Begin("fineserve-proxy", options.log_level);
  driver::RaiseDescriptorLimit();
  const RealClock clock;
  FleetAdmission admission(setup->fleet, &clock);
  const auto proxy =
      Proxy::Start(*setup, options.limits, RuntimeFolder(options), &admission,
                   &clock, [&options] { return ReadSetup(options); });
  if (!proxy.ok()) return Fail(proxy.status(), 1);
  printf("listening on %s, admin %s\n", (*proxy)->listen_address().c_str(),
         (*proxy)->admin_address().c_str());
  fflush(stdout);
  std::vector<std::unique_ptr<EngineHealth>> health;
  std::vector<std::unique_ptr<AdmissionChannel>> channels;
  admission.ForEachGpu([&](const std::string& gpu, DaemonAdmission* its) {
    auto* const io = (*proxy)->context();
    health.push_back(std::make_unique<EngineHealth>(io, its));
    // Only a daemon needs to know which engines serve.
    channels.push_back(std::make_unique<AdmissionChannel>(
        io, RuntimeFolder(options), gpu, its,
        [asker = health.back().get()] { asker->Start(); }));
    channels.back()->Start();
  });
  (*proxy)->Serve();
  return 0;
}

}  // namespace
}  // namespace fineserve::proxy

int main(int argc, char** argv) { return fineserve::proxy::Run(argc, argv); }
