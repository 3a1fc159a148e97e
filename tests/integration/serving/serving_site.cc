#include "tests/integration/serving/serving_site.h"

#include <stdlib.h>

#include <fstream>

#include "tests/integration/serving/http_client.h"
#include "tools/lab/process/free_port.h"
#include "tools/lab/process/toml_text.h"

namespace fineserve::integration {
namespace {

// tinyserve's step times at --speed 20; an SLO that only a jam misses.
constexpr char kPromise[] =
    "slo_ttft_ms = 3000\n"
    "profile = { base_us = 380, per_token_us = 0.8, per_sequence_us = 3.2 }\n";

}  // namespace

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
  std::ofstream file(fleet_path_);
  file << "[proxy]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n"
       << "without_daemon = " << process::Quoted(without_daemon) << "\n";
  for (const Served& served : fleet) {
    if (served.replica_of.empty()) {
      file << "[[model]]\nname = " << process::Quoted(served.name)
           << "\nkv_token_bytes = " << served.kv_token_bytes
           << "\nprompt_tokens = " << process::Quoted(served.prompt_tokens)
           << "\n"
           << "max_batch = " << served.max_batch << "\n"
           << kPromise;
    }
    file << "[[engine]]\nname = " << process::Quoted(served.name)
         << "\nmodel = "
         << process::Quoted(served.replica_of.empty() ? served.name
                                                      : served.replica_of)
         << "\nurl = \"http://127.0.0.1:" << served.port
         << "\"\ngpu = " << process::Quoted(served.gpu)
         << "\ntarget_rate = " << served.target_rate << "\n";
    if (served.scaled) {
      file << "start = \"scaled\"\n";
      continue;
    }
    file << (served.on_request ? "start = \"on_request\"\nstop_after = "
                               : "evict = \"auto\"\nevict_after = ")
         << (served.on_request ? served.stop_after_s : served.evict_after_s)
         << "\ncommand = [";
    for (const std::string& word : served.command)
      file << process::Quoted(word) << ",";
    file << "]\n";
  }
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
