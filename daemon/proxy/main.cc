// fineserve-proxy: OpenAI's API in front of a fleet of engines.

#include <signal.h>
#include <stdio.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/base/clock/clock.h"
#include "daemon/base/log/log.h"
#include "daemon/contract/finding/daemon_sockets.h"
#include "daemon/contract/wire/keys.h"
#include "daemon/fleet/machines/daemon_directory.h"
#include "daemon/proxy/admission/admission_channel.h"
#include "daemon/proxy/admission/admission_link.h"
#include "daemon/proxy/admission/engine_health.h"
#include "daemon/proxy/admission/fleet_admission.h"
#include "daemon/proxy/options.h"
#include "daemon/proxy/proxy.h"
#include "daemon/proxy/record/access_log.h"
#include "daemon/proxy/tls/tls_front.h"
#include "daemon/proxy/trace/otlp_exporter.h"
#include "kernels/driver/descriptor_limit.h"

namespace fineserve::proxy {
namespace {

std::string RuntimeFolder(const Options& options) {
  return options.runtime_dir.empty() ? finding::RuntimeFolder()
                                     : options.runtime_dir;
}

int Fail(const absl::Status& s, int code) {
  fprintf(stderr, "fineserve-proxy: %s\n", std::string(s.message()).c_str());
  return code;
}

// Listeners to requests.
struct Listeners {
  std::unique_ptr<AccessLog> access_log;
  std::unique_ptr<OtlpExporter> exporter;

  Hearers AsHearers(const FollowOptions& options) const {
    return {options.recent_requests, access_log.get(), exporter.get(),
            options.trace_sample};
  }
};

absl::StatusOr<Listeners> OpenListeners(const FollowOptions& options) {
  Listeners listeners;
  if (!options.access_log.empty()) {
    auto log = AccessLog::Open(options.access_log);
    if (!log.ok()) return log.status();
    listeners.access_log = *std::move(log);
  }
  if (!options.otlp_endpoint.empty()) {
    const auto to = ParseOtlpEndpoint(options.otlp_endpoint);
    if (!to.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--otlp-endpoint: ", to.status().message()));
    }
    listeners.exporter = std::make_unique<OtlpExporter>(*to);
  }
  return listeners;
}

absl::StatusOr<std::unique_ptr<AdmissionLink>> LinkTo(
    const cluster::DaemonDirectory& directory, const std::string& gpu,
    boost::asio::io_context* io, AdmissionLink::Hearer hearer) {
  if (directory.IsLocal(gpu)) {
    const absl::StatusOr<std::string> path = directory.LocalPath(gpu);
    if (!path.ok()) return path.status();
    return PathLink::Connect(io, *path, std::move(hearer));
  }
  absl::StatusOr<wire::ClientSocket> socket = directory.Connect(gpu);
  if (!socket.ok()) return socket.status();
  return std::make_unique<SocketLink>(io, *std::move(socket),
                                      std::move(hearer));
}

int Run(int argc, char** argv) {
  const absl::variant<Options, int> parsed = ParseOptions(argc, argv);
  if (const int* code = absl::get_if<int>(&parsed)) return *code;
  const auto& options = absl::get<Options>(parsed);
  const absl::StatusOr<Setup> setup = ReadSetup(options);
  if (!setup.ok()) return Fail(setup.status(), 2);
  std::unique_ptr<TlsFront> tls;
  if (!options.tls_cert.empty()) {
    auto loaded = TlsFront::Load(options.tls_cert, options.tls_key);
    if (!loaded.ok()) return Fail(loaded.status(), 2);
    tls = *std::move(loaded);
  }
  if (options.check_only) {
    if (setup->warning.empty()) return 0;
    return Fail(absl::UnknownError("warning: " + setup->warning), 0);
  }
  log::Begin("fineserve-proxy", options.log_level);
  driver::RaiseDescriptorLimit();
  const RealClock clock;
  FleetAdmission admission(setup->fleet, &clock);
  const absl::StatusOr<Listeners> listeners = OpenListeners(options.follow);
  if (!listeners.ok()) return Fail(listeners.status(), 2);
  const auto proxy = Proxy::Start(
      *setup, options.limits, RuntimeFolder(options), &admission, &clock,
      [&options] { return ReadSetup(options); },
      listeners->AsHearers(options.follow), tls.get());
  if (!proxy.ok()) return Fail(proxy.status(), 1);
  printf("listening on %s, admin %s\n", (*proxy)->listen_address().c_str(),
         (*proxy)->admin_address().c_str());
  fflush(stdout);
  const absl::Status door =
      (*proxy)->OpenDoor(RuntimeFolder(options), options.fleet_path);
  if (!door.ok()) {
    log::Warning("fsctl apply cannot reach this proxy: {}",
                 std::string(door.message()));
  }
  const cluster::DaemonDirectory directory(
      setup->fleet->cluster, RuntimeFolder(options),
      wire::KeyFolder(wire::KeyFolder::Default()));
  std::vector<std::unique_ptr<EngineHealth>> health;
  std::vector<std::unique_ptr<AdmissionChannel>> channels;
  admission.ForEachGpu([&](const std::string& gpu, GpuAdmission* its) {
    auto* const io = (*proxy)->context();
    health.push_back(std::make_unique<EngineHealth>(io, its, &clock));
    // Only a daemon needs to know of all engines whether they serve, so the
    // questions start with it.
    channels.push_back(std::make_unique<AdmissionChannel>(
        io,
        [&directory, gpu, io](AdmissionLink::Hearer hearer) {
          return LinkTo(directory, gpu, io, std::move(hearer));
        },
        its, [asker = health.back().get()] { asker->Start(); }));
    channels.back()->Start();
  });
  (*proxy)->Serve();
  return 0;
}

}  // namespace
}  // namespace fineserve::proxy

int main(int argc, char** argv) {
  // Ignored because the reader of the log may go away.
  signal(SIGPIPE, SIG_IGN);
  return fineserve::proxy::Run(argc, argv);
}
