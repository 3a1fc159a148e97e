#include "bench/micro/view_site.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "bench/micro/report.h"
#include "daemon/abi/client.h"
#include "daemon/abi/table_reader.h"
#include "kernels/driver/descriptor.h"

extern "C" char** environ;

namespace fineserve::bench {
namespace {

// Starts a program with its standard output at `out` (-1: ours).
pid_t Spawn(const std::vector<std::string>& words,
            const std::vector<std::string>& environment, int out) {
  std::vector<char*> argv;
  for (const auto& w : words) argv.push_back(const_cast<char*>(w.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> env;
  for (char** e = environ; *e != nullptr; ++e) env.push_back(*e);
  for (const auto& e : environment) env.push_back(const_cast<char*>(e.c_str()));
  env.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (out >= 0) posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  pid_t pid;
  const int error = posix_spawn(&pid, words[0].c_str(), &actions, nullptr,
                                argv.data(), env.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) Die(absl::StrCat("cannot start ", words[0]));
  return pid;
}

bool ServesAllZeroed(const std::string& runtime_folder) {
  for (const std::string& socket : abi::ListSockets(runtime_folder)) {
    const auto link = abi::ConnectObserver(socket);
    if (!link.ok()) continue;
    const auto reader = abi::TableReader::Map(link->table.get());
    if (!reader.ok()) continue;
    const auto table = reader->Read();
    if (!table.ok()) continue;
    return std::all_of(table->slabs.begin(), table->slabs.end(), [](auto& s) {
      return s.word.state == abi::SlabState::kFree;
    });
  }
  return false;
}

ViewSite::Figures Parse(FILE* lines) {
  ViewSite::Figures figures;
  char name[128];
  double value;
  while (fscanf(lines, "%127s %lf\n", name, &value) == 2) figures[name] = value;
  return figures;
}

std::string MakeFolder(std::string pattern) {
  if (mkdtemp(pattern.data()) == nullptr) Die("mkdtemp " + pattern);
  return pattern;
}

}  // namespace

ViewSite::ViewSite()
    : programs_(std::filesystem::read_symlink("/proc/self/exe").parent_path()),
      device_folder_(MakeFolder("/dev/shm/fineserve-bench-XXXXXX")),
      runtime_folder_(MakeFolder("/tmp/fineserve-bench-XXXXXX")) {
  setenv("EMUCUDA_DIR", device_folder_.c_str(), 1);
  setenv("EMUCUDA_MEMORY", "80GiB", 1);
  setenv("FINESERVE_RUNTIME_DIR", runtime_folder_.c_str(), 1);
}

ViewSite::~ViewSite() {
  StopDaemon();
  std::filesystem::remove_all(device_folder_);
  std::filesystem::remove_all(runtime_folder_);
}

void ViewSite::StartDaemon(const std::vector<std::string>& flags) {
  std::vector<std::string> words = {programs_ + "/fineserved", "--gpu",
                                    "emulated", "--log-level", "error"};
  words.insert(words.end(), flags.begin(), flags.end());
  daemon_ = Spawn(words, {}, -1);
  for (int tries = 0; !ServesAllZeroed(runtime_folder_); ++tries) {
    if (tries == 1000) Die("fineserved does not come up");
    usleep(20'000);
  }
}

void ViewSite::StopDaemon() {
  if (daemon_ == 0) return;
  kill(daemon_, SIGTERM);
  waitpid(daemon_, nullptr, 0);
  daemon_ = 0;
}

std::vector<ViewSite::Figures> ViewSite::RunEngines(
    const std::vector<std::vector<std::string>>& flags) {
  struct Running {
    pid_t pid;
    FILE* lines;
  };
  std::vector<Running> running;
  for (size_t i = 0; i < flags.size(); ++i) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) Die("pipe2");
    std::vector<std::string> words = {programs_ + "/bench_view_engine"};
    words.insert(words.end(), flags[i].begin(), flags[i].end());
    const pid_t pid = Spawn(
        words,
        {absl::StrCat("LD_PRELOAD=", programs_, "/../lib/libfineserve_shim.so"),
         absl::StrCat("LD_LIBRARY_PATH=", EmulatedFolder()),
         absl::StrCat("FINESERVE_ENGINE=bench-", i)},
        ends[1]);
    close(ends[1]);
    running.push_back({pid, fdopen(ends[0], "r")});
  }
  std::vector<Figures> figures;
  for (const Running& engine : running) {
    figures.push_back(Parse(engine.lines));
    fclose(engine.lines);
    int status = 0;
    waitpid(engine.pid, &status, 0);
    if (status != 0) Die(absl::StrCat("an engine ended with status ", status));
  }
  return figures;
}

}  // namespace fineserve::bench
