#include "tools/lab/stage/machine.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "absl/time/time.h"
#include "daemon/base/unix_socket.h"
#include "daemon/contract/abi/observer_link.h"
#include "daemon/contract/abi/transport.h"
#include "daemon/contract/finding/daemon_sockets.h"

namespace fineserve::stage {

using process::Eventually;
using process::With;
using process::Words;

namespace {

// Returns the parent of bin/ and lib/: the build folder, or a bundle.
std::filesystem::path Prefix() {
  return std::filesystem::path(process::ProgramFolder()).parent_path();
}

std::string Shim() {
  const auto installed = Prefix() / "lib/fineserve/libfineserve_shim.so";
  return std::filesystem::exists(installed)
             ? installed
             : Prefix() / "lib/libfineserve_shim.so";
}

}  // namespace

Machine::Machine(Process::Stdout out)
    : out_(out),
      environment_{{"FINESERVE_RUNTIME_DIR", folder() + "/run"},
                   {"EMUCUDA_DIR", device_folder_.path()},
                   {"EMUCUDA_MEMORY", "1GiB"}} {}

Machine::~Machine() { EndLingering(); }

std::string Machine::Gpu() {
  const char* wanted = getenv("FINESERVE_TEST_GPU");
  return wanted == nullptr ? "emulated" : wanted;
}

bool Machine::OnEmulatedGpu() { return Gpu().rfind("emulated", 0) == 0; }

std::string Machine::Program(const std::string& name) const {
  return Prefix() / "bin" / name;
}

Process::Environment Machine::EngineEnvironment(
    const Process::Environment& more) const {
  Process::Environment e = environment_;
  e["LD_PRELOAD"] = Shim();
  if (OnEmulatedGpu()) e["LD_LIBRARY_PATH"] = Prefix() / "lib" / "emucuda";
  for (const auto& [name, value] : more) e[name] = value;
  return e;
}

std::unique_ptr<Process> Machine::StartDaemon(
    const std::vector<std::string>& arguments) {
  auto daemon = LaunchDaemon(arguments);
  AwaitDaemon(daemon.get());
  return daemon;
}

std::unique_ptr<Process> Machine::LaunchDaemon(
    const std::vector<std::string>& arguments) {
  return LaunchProgram(With(
      Words("fineserved --pool 64MiB --slab 4MiB --gpu " + Gpu()), arguments));
}

bool Machine::AwaitDaemon(Process* daemon) {
  const bool serves = daemon->Logs(" serving ") && daemon->alive();
  EXPECT_TRUE(serves) << daemon->About();
  return serves;
}

std::unique_ptr<Process> Machine::LaunchEngine(
    const std::string& kv, const std::vector<std::string>& arguments,
    const Process::Environment& more) {
  Process::Environment environment = {{"FINESERVE_KV_SIZES", kv}};
  environment.insert(more.begin(), more.end());
  return LaunchPreloaded(
      With(Words("stock_engine --layers 2 --hold --weights 8MiB "
                 "--workspace 3MiB --small 100 --kv " +
                 kv),
           arguments),
      environment);
}

std::unique_ptr<Process> Machine::LaunchProgram(
    std::vector<std::string> words, const Process::Environment& more) const {
  words[0] = Program(words[0]);
  Process::Environment environment = more;
  environment.insert(environment_.begin(), environment_.end());
  return std::make_unique<Process>(words, environment, out_);
}

std::unique_ptr<Process> Machine::LaunchPreloaded(
    std::vector<std::string> words, const Process::Environment& more) const {
  words[0] = Program(words[0]);
  return std::make_unique<Process>(words, EngineEnvironment(more), out_);
}

std::unique_ptr<Process> Machine::StartRandomView(
    const std::string& name, const std::vector<std::string>& flags,
    const Process::Environment& more) const {
  Process::Environment environment = more;
  environment["FINESERVE_ENGINE"] = name;
  auto engine = LaunchPreloaded(With(Words("view_engine --random 3600"), flags),
                                environment);
  EXPECT_NE(engine->ReadLineWith("ready"), "") << engine->Stderr();
  return engine;
}

std::unique_ptr<Process> Machine::StartEngine(
    const std::string& kv, const std::vector<std::string>& arguments,
    const Process::Environment& more) {
  auto engine = LaunchEngine(kv, arguments, more);
  EXPECT_EQ(engine->ReadLineWith("kv zero"), "kv zero: yes")
      << engine->Stderr();
  EXPECT_NE(engine->ReadLineWith("ready"), "") << engine->Stderr();
  return engine;
}

std::unique_ptr<Process> Machine::StartEngineWithoutDaemon(
    const std::string& kv, const std::vector<std::string>& arguments,
    const Process::Environment& more) {
  auto engine = LaunchEngine(kv, arguments, more);
  const std::string found = engine->ReadLineWith("kv zero");
  if (OnEmulatedGpu()) {
    EXPECT_EQ(found.rfind("kv zero: no", 0), 0u) << found;
  }
  EXPECT_NE(engine->ReadLineWith("ready"), "") << engine->Stderr();
  return engine;
}

void Machine::Enter() const {
  for (const auto& [name, value] : environment_) {
    setenv(name.c_str(), value.c_str(), 1);
  }
}

Finished Machine::Fsctl(const std::vector<std::string>& arguments) {
  return RunToEnd(With({Program("fsctl")}, arguments), environment_);
}

std::vector<std::string> Machine::Sockets() const {
  return finding::ListSockets(folder() + "/run");
}

std::string Machine::SocketPath() const {
  const auto sockets = Sockets();
  EXPECT_EQ(sockets.size(), 1u);
  return sockets.empty() ? "" : sockets[0];
}

driver::Descriptor Machine::Connect() {
  driver::Descriptor fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  EXPECT_TRUE(base::ConnectUnix(fd.get(), SocketPath()));
  return fd;
}

abi::TableSnapshot Machine::TableAt(const std::string& socket) {
  const auto link =
      abi::ConnectObserver(socket, absl::FromChrono(process::kPatience));
  if (!link.ok()) {
    ADD_FAILURE() << link.status();
    return {};
  }
  const auto table = abi::ReadTable(link->table.get());
  if (!table.ok()) {
    ADD_FAILURE() << table.status();
    return {};
  }
  return *table;
}

absl::optional<abi::TableSnapshot> Machine::TableIfServed(
    absl::Duration limit) const {
  const auto sockets = Sockets();
  if (sockets.size() != 1) return absl::nullopt;
  const auto link = abi::ConnectObserver(sockets[0], limit);
  if (!link.ok()) return absl::nullopt;
  auto table = abi::ReadTable(link->table.get());
  if (!table.ok()) return absl::nullopt;
  return *std::move(table);
}

uint32_t Machine::SlabsIn(abi::SlabState state) {
  const abi::TableSnapshot table = Table();
  return static_cast<uint32_t>(std::count_if(
      table.slabs.begin(), table.slabs.end(),
      [&](const auto& slab) { return slab.word.state == state; }));
}

uint32_t Machine::SlabsOf(pid_t member) {
  for (const abi::EngineSnapshot& engine : Table().engines) {
    for (uint32_t pid : engine.member_pids) {
      if (static_cast<pid_t>(pid) == member) {
        return static_cast<uint32_t>(engine.slabs_held);
      }
    }
  }
  return 0;
}

bool Machine::EventuallyFree(uint32_t slabs) {
  return Eventually([&] { return SlabsIn(abi::SlabState::kFree) == slabs; });
}

}  // namespace fineserve::stage
