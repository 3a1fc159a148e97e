#include "bench/slo/serving_site.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "bench/micro/report.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::bench {
namespace {

// Nobody listens on it now, and whoever gets it binds it soon.
uint16_t FreePort() {
  const driver::Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), bytes) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &bytes) !=
          0) {
    Die("no free port");
  }
  return ntohs(address.sin_port);
}

std::string MakeFolder(std::string pattern) {
  if (mkdtemp(pattern.data()) == nullptr) Die("mkdtemp " + pattern);
  return pattern;
}

std::string ModelText(const std::string& name, uint16_t port,
                      uint32_t token_bytes) {
  return absl::StrCat(
      "[[model]]\nname = \"", name,
      "\"\nslo_ttft_ms = 1000\nchunk_tokens = ", ServingSite::kChunkTokens,
      "\nmax_batch = 64\nkv_token_bytes = ", token_bytes,
      "\nprofile = { base_us = ", ServingSite::kBaseUs,
      ", per_token_us = ", ServingSite::kTokenUs,
      ", per_sequence_us = ", ServingSite::kSequenceUs,
      " }\n[[engine]]\nname = \"", name, "\"\nmodel = \"", name,
      "\"\nurl = \"http://127.0.0.1:", port, "\"\n");
}

}  // namespace

ServingSite::ServingSite(const std::string& policy)
    : programs_(std::filesystem::read_symlink("/proc/self/exe").parent_path()),
      folder_(MakeFolder("/tmp/fineserve-bench-XXXXXX")),
      device_folder_(MakeFolder("/dev/shm/fineserve-bench-XXXXXX")),
      fp16_port_(FreePort()),
      fp8_port_(FreePort()),
      proxy_port_(FreePort()) {
  WriteFleet(policy);
  Start("fineserved",
        {programs_ + "/fineserved", "--gpu", "emulated", "--pool", "384MiB",
         "--slab", "8MiB", "--planes", "4", "--fleet", Fleet()},
        {});
  AwaitDaemon();
  StartEngine("fp16", fp16_port_, {"--page", "64KiB"});
  StartEngine("fp8", fp8_port_, {"--planes", "4", "--page", "8KiB"});
  Start("fineserve-proxy", {programs_ + "/fineserve-proxy", "--fleet", Fleet()},
        {});
}

ServingSite::~ServingSite() {
  for (auto p = processes_.rbegin(); p != processes_.rend(); ++p) {
    kill(*p, SIGTERM);
    waitpid(*p, nullptr, 0);
  }
  std::filesystem::remove_all(device_folder_);
  std::filesystem::remove_all(folder_);
}

// An engine that finds no daemon does not wait for one.
void ServingSite::AwaitDaemon() const {
  for (int tries = 0; tries < 500; ++tries) {
    std::ifstream log(folder_ + "/fineserved.log");
    const std::string text(std::istreambuf_iterator<char>(log), {});
    if (absl::StrContains(text, "info: serving ")) return;
    usleep(20'000);
  }
  Die("fineserved does not come up");
}

void ServingSite::WriteFleet(const std::string& policy) const {
  std::filesystem::create_directory(folder_ + "/run");
  std::filesystem::permissions(folder_ + "/run",
                               std::filesystem::perms::owner_all);
  std::ofstream file(Fleet());
  file << "[proxy]\nlisten = \"127.0.0.1:" << proxy_port_
       << "\"\nadmin = \"127.0.0.1:0\"\nwithout_daemon = \"fail_closed\"\n"
          "drain = 1\n[scheduler]\npolicy = \""
       << policy << "\"\n"
       << ModelText("fp16", fp16_port_, 4096)
       << ModelText("fp8", fp8_port_, 2048);
  if (!file.flush()) Die("cannot write " + Fleet());
}

void ServingSite::StartEngine(const std::string& model, uint16_t port,
                              const std::vector<std::string>& format) {
  std::vector<std::string> words = {programs_ + "/tinyserve",
                                    "--view",
                                    "--model",
                                    model,
                                    "--port",
                                    absl::StrCat(port),
                                    "--max-num-batched-tokens",
                                    absl::StrCat(kChunkTokens),
                                    "--max-model-len",
                                    absl::StrCat(kLongestTokens),
                                    "--step-base-us",
                                    absl::StrCat(kBaseUs),
                                    "--step-token-us",
                                    absl::StrCat(kTokenUs),
                                    "--step-sequence-us",
                                    absl::StrCat(kSequenceUs)};
  words.insert(words.end(), format.begin(), format.end());
  Start(model, words,
        {"FINESERVE_ENGINE=" + model,
         "LD_PRELOAD=" + programs_ + "/../lib/libfineserve_shim.so"});
}

void ServingSite::Start(const std::string& name,
                        const std::vector<std::string>& words,
                        const std::vector<std::string>& environment) {
  const pid_t pid = fork();
  if (pid != 0) {
    processes_.push_back(pid);
    return;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int out = open((folder_ + "/" + name + ".log").c_str(),
                       O_WRONLY | O_CREAT | O_TRUNC, 0600);
  dup2(out, STDOUT_FILENO);
  dup2(out, STDERR_FILENO);
  setenv("EMUCUDA_DIR", device_folder_.c_str(), 1);
  setenv("FINESERVE_RUNTIME_DIR", (folder_ + "/run").c_str(), 1);
  setenv("LD_LIBRARY_PATH", (programs_ + "/../lib/emucuda").c_str(), 1);
  for (const std::string& e : environment) putenv(strdup(e.c_str()));
  std::vector<char*> argv;
  for (const std::string& w : words)
    argv.push_back(const_cast<char*>(w.c_str()));
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  perror(argv[0]);
  _exit(127);
}

}  // namespace fineserve::bench
