#include "bench/proxy/subject.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "bench/micro/report.h"
#include "bench/proxy/tcp.h"

namespace fineserve::bench {
namespace {

std::string MakeFolder() {
  char folder[] = "/tmp/fineserve-bench-XXXXXX";
  return mkdtemp(folder);
}

// Free a moment ago: nginx cannot be told to choose.
uint16_t FreePort() {
  uint16_t port = 0;
  close(Listen(&port));
  return port;
}

std::string NginxText(const std::string& f, uint16_t port,
                      uint16_t engine_port) {
  // One process, as ours is; everything it writes lies in the folder.
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

std::string FleetText(uint16_t port, uint16_t engine_port) {
  return "[proxy]\nlisten = \"127.0.0.1:" + std::to_string(port) +
         "\"\nadmin = \"127.0.0.1:0\"\n[[model]]\nname = \"bench\"\n"
         "slo_ttft_ms = 1000\nkv_token_bytes = 131072\nprofile = { base_us = "
         "8000, per_token_us = 110, per_sequence_us = 60 }\n[[engine]]\n"
         "name = \"e\"\nmodel = \"bench\"\nurl = \"http://127.0.0.1:" +
         std::to_string(engine_port) + "\"\n";
}

std::string BinFolder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

void AwaitPort(uint16_t port) {
  for (int i = 0; i < 500; ++i) {
    const std::string command =
        "exec 2>/dev/null 3<>/dev/tcp/127.0.0.1/" + std::to_string(port);
    if (system(("bash -c '" + command + "'").c_str()) == 0) return;
    usleep(10'000);
  }
  Die("nothing listens on port " + std::to_string(port));
}

}  // namespace

Subject Subject::Nginx(uint16_t engine_port) {
  const std::string folder = MakeFolder();
  const uint16_t port = FreePort();
  const std::string file = folder + "/nginx.conf";
  std::ofstream(file) << NginxText(folder, port, engine_port);
  return {folder, {"nginx", "-e", folder + "/error.log", "-c", file}, port};
}

Subject Subject::FineServe(uint16_t engine_port) {
  const std::string folder = MakeFolder();
  const uint16_t port = FreePort();
  const std::string file = folder + "/fleet.toml";
  std::ofstream(file) << FleetText(port, engine_port);
  return {folder,
          {BinFolder() + "/fineserve-proxy", "--fleet", file, "--runtime-dir",
           folder},
          port};
}

Subject::Subject(const std::string& folder,
                 const std::vector<std::string>& command, uint16_t port)
    : port_(port), folder_(folder) {
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (freopen((folder + "/out").c_str(), "w", stdout) == nullptr) _exit(127);
    std::vector<char*> argv;
    for (const std::string& word : command) {
      argv.push_back(const_cast<char*>(word.c_str()));
    }
    argv.push_back(nullptr);
    execvp(argv[0], argv.data());
    perror(argv[0]);
    _exit(127);
  }
  AwaitPort(port);
}

Subject::Subject(Subject&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      port_(other.port_),
      folder_(std::move(other.folder_)) {}

Subject::~Subject() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  std::filesystem::remove_all(folder_);
}

double Subject::CpuSeconds() const {
  double ns = 0;
  const std::string tasks = "/proc/" + std::to_string(pid_) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks)) {
    std::ifstream file(task.path() / "schedstat");
    double running_ns = 0;
    file >> running_ns;
    ns += running_ns;
  }
  return ns * 1e-9;
}

uint64_t Subject::ResidentBytes() const {
  std::ifstream file("/proc/" + std::to_string(pid_) + "/statm");
  uint64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace fineserve::bench
