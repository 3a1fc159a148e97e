#include "tests/integration/serving/serving_site.h"

#include <stdlib.h>

#include "tools/lab/process/free_port.h"
#include "tools/lab/stage/fleet_text.h"
#include "tools/lab/stage/http_client.h"

namespace fineserve::integration {
ServingSite::Served ServingSite::TinyserveOf(
    const std::string& name, const std::vector<std::string>& more) const {
  Served served = {name, 4096, process::FreePort()};
  served.command = With(With({Program("tinyserve"), "--model", name},
                             Words("--view --weights 64MiB --speed 20 --port " +
                                   std::to_string(served.port))),
                        more);
  return served;
}

std::unique_ptr<TinyEngine> ServingSite::StartTiny(
    const std::string& name, uint16_t port, const std::string& flags,
    Process::Environment more) const {
  more["FINESERVE_ENGINE"] = name;
  return std::make_unique<TinyEngine>(
      Program("tinyserve"), name,
      Words("--port " + std::to_string(port) + " " + flags),
      EngineEnvironment(more));
}

std::unique_ptr<Process> ServingSite::LaunchUp(
    const std::vector<std::string>& flags) const {
  return LaunchProgram(With({"fsctl", "up", fleet_path_}, flags));
}

void ServingSite::WriteFleet(const std::vector<Served>& fleet,
                             const std::string& without_daemon) {
  stage::FleetText file;
  file.Proxy({{"without_daemon", without_daemon}});
  for (const Served& served : fleet) {
    if (served.replica_of.empty()) {
      // The profile has tinyserve's step times at --speed 20; only a jam misses
      // the SLO.
      file.Model(served.name,
                 {{"kv_token_bytes", served.kv_token_bytes},
                  {"prompt_tokens", served.prompt_tokens},
                  {"max_batch", served.max_batch},
                  {"slo_ttft_ms", 3000},
                  {"profile", stage::TomlValue::Profile(380, 0.8, 3.2)}});
    }
    stage::TomlKeys keys = {{"gpu", served.gpu},
                            {"target_rate", served.target_rate}};
    const auto add = [&](const char* key, const stage::TomlValue& value) {
      keys.emplace_back(key, value);
    };
    if (served.scaled) {
      add("start", "scaled");
    } else {
      if (served.on_request) {
        add("start", "on_request");
        add("stop_after", served.stop_after_s);
      } else {
        add("evict", "auto");
        add("evict_after", served.evict_after_s);
      }
      add("command", served.command);
    }
    file.Engine(served.name,
                served.replica_of.empty() ? served.name : served.replica_of,
                served.port, keys);
  }
  file.WriteTo(fleet_path_);
}

void ServingSite::StartDaemonOfFleet(const std::vector<std::string>& more) {
  daemon_ = StartDaemon(
      With(Words("--pool 64MiB --slab 8MiB --planes 4 --fleet " + fleet_path_),
           more));
}

void ServingSite::StartProxy(const std::vector<std::string>& flags) {
  proxy_ =
      LaunchProgram(With({"fineserve-proxy", "--fleet", fleet_path_}, flags));
  const std::string line = proxy_->ReadLine();
  const size_t colon = line.find(':');
  ASSERT_NE(colon, std::string::npos) << line << proxy_->Stderr();
  port_ = static_cast<uint16_t>(atoi(line.c_str() + colon + 1));
  admin_port_ = static_cast<uint16_t>(atoi(line.c_str() + line.rfind(':') + 1));
  ASSERT_TRUE(Eventually([&] {
    return HttpClient(port_).Ask("GET", "/ready").status == 200;
  })) << proxy_->Stderr();
}

}  // namespace fineserve::integration
