#include "bench/proxy/subject.h"

#include <signal.h>

#include <fstream>
#include <utility>

#include "bench/proxy/tcp.h"
#include "bench/report/report.h"
#include "tools/lab/process/eventually.h"
#include "tools/lab/process/free_port.h"
#include "tools/lab/stage/fleet_text.h"

namespace fineserve::bench {

using process::FreePort;
using process::ProgramFolder;
using process::TemporaryFolder;

namespace {

std::string NginxText(const std::string& f, uint16_t port,
                      uint16_t engine_port) {
  // nginx runs as one process, like ours, and writes only to the folder.
  return "daemon off; master_process off; worker_rlimit_nofile 16384;\n"
         "pid " +
         f + "/pid; error_log " + f +
         "/error.log;\n"
         "events { worker_connections 8192; }\n"
         "http {\n"
         "  access_log off; tcp_nodelay on;\n"
         "  keepalive_timeout 75s; keepalive_requests 1000000000;\n"
         "  client_body_temp_path " +
         f + "/body; proxy_temp_path " + f + "/proxy;\n  fastcgi_temp_path " +
         f + "/fcgi; uwsgi_temp_path " + f + "/uwsgi; scgi_temp_path " + f +
         "/scgi;\n"
         "  upstream engine { server 127.0.0.1:" +
         std::to_string(engine_port) +
         "; keepalive 512; keepalive_requests 1000000000; }\n"
         "  server {\n    listen 127.0.0.1:" +
         std::to_string(port) +
         " backlog=4096;\n    client_max_body_size 32m;\n    location / {\n"
         "      proxy_pass http://engine; proxy_http_version 1.1;\n"
         "      proxy_set_header Connection \"\"; proxy_buffering off;\n"
         "      proxy_set_header X-Request-Id $request_id;\n"
         "      proxy_read_timeout 1h;\n    }\n  }\n}\n";
}

// In this fleet no request has to wait: steps are short, budgets are large, and
// the engine's KV is in no pool.
std::string FleetOf(uint16_t engine_port, const std::string& without_daemon) {
  return stage::FleetText()
      .Proxy({{"drain", 1}, {"without_daemon", without_daemon}})
      .Model("bench", {{"slo_ttft_ms", 10000},
                       {"chunk_tokens", 16000000},
                       {"max_batch", 4096},
                       {"kv_token_bytes", 131072},
                       {"profile", stage::TomlValue::Profile(1000, 0.01, 1)}})
      .Engine("e", "bench", engine_port)
      .text();
}

std::string WriteFile(const TemporaryFolder& folder, const std::string& name,
                      const std::string& text) {
  const std::string path = folder.path() + "/" + name;
  if (!(std::ofstream(path) << text).flush()) Die("cannot write " + path);
  return path;
}

std::vector<std::string> ProxyWords(const std::string& fleet, uint16_t port) {
  return {
      ProgramFolder() + "/fineserve-proxy", "--fleet",     fleet,  "--listen",
      "127.0.0.1:" + std::to_string(port),  "--log-level", "error"};
}

}  // namespace

Subject Subject::Nginx(uint16_t engine_port) {
  TemporaryFolder folder;
  const uint16_t port = FreePort();  // nginx cannot choose one
  const std::string file = WriteFile(
      folder, "nginx.conf", NginxText(folder.path(), port, engine_port));
  const std::string log = folder.path() + "/error.log";
  return {std::move(folder), {"nginx", "-e", log, "-c", file}, port};
}

Subject Subject::Alone(uint16_t engine_port,
                       const std::vector<std::string>& flags,
                       const std::string& program) {
  TemporaryFolder folder;
  const uint16_t port = FreePort();
  std::vector<std::string> words = ProxyWords(
      WriteFile(folder, "fleet.toml", FleetOf(engine_port, "fail_open")), port);
  words.insert(words.end(), {"--runtime-dir", folder.path()});
  words.insert(words.end(), flags.begin(), flags.end());
  if (!program.empty()) words[0] = program;
  return {std::move(folder), words, port};
}

Subject Subject::Scheduled(uint16_t engine_port, GpuSite* gpu) {
  TemporaryFolder folder;
  const uint16_t port = FreePort();
  const std::string fleet =
      WriteFile(folder, "fleet.toml", FleetOf(engine_port, "fail_closed"));
  gpu->StartDaemon({"--pool", "64MiB", "--fleet", fleet});
  return {std::move(folder), ProxyWords(fleet, port), port};
}

Subject::Subject(TemporaryFolder folder, const std::vector<std::string>& words,
                 uint16_t port)
    : folder_(std::move(folder)),
      port_(port),
      proxy_(process::Command{.words = words, .end_signal = SIGTERM}) {
  if (!process::Eventually([&] { return IsReady(port); })) {
    Die(words[0] + " did not start in time");
  }
}

}  // namespace fineserve::bench
