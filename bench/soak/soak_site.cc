#include "bench/soak/soak_site.h"

#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/contract/abi/observer_link.h"
#include "daemon/contract/finding/daemon_sockets.h"
#include "tools/lab/process/eventually.h"
#include "tools/lab/process/linger_helpers.h"

namespace fineserve::bench {
namespace {

using abi::SlabState;

bool AllFree(const abi::TableSnapshot& table) {
  return table.engines.empty() &&
         std::all_of(table.slabs.begin(), table.slabs.end(), [](const auto& s) {
           return s.word.state == SlabState::kFree;
         });
}

bool Quarantines(const abi::TableSnapshot& table) {
  return std::any_of(table.slabs.begin(), table.slabs.end(),
                     [](const auto& s) {
                       return s.word.state == SlabState::kQuarantined;
                     }) ||
         std::any_of(table.engines.begin(), table.engines.end(),
                     [](const auto& e) {
                       return e.state == abi::EngineState::kQuarantined;
                     });
}

}  // namespace

ProcessSize SizeOf(pid_t pid) {
  const std::string proc = absl::StrCat("/proc/", pid);
  ProcessSize size;
  std::error_code gone;
  size.descriptors = static_cast<size_t>(
      std::distance(std::filesystem::directory_iterator(proc + "/fd", gone),
                    std::filesystem::directory_iterator()));
  std::ifstream status(proc + "/status");
  for (std::string name; status >> name;) {
    if (name == "RssAnon:") status >> size.private_kib;
  }
  return size;
}

SoakSite::SoakSite(std::string name, Failures* failures)
    : name_(std::move(name)),
      failures_(failures),
      environment_{{"FINESERVE_RUNTIME_DIR", folder_.path() + "/run"},
                   {"EMUCUDA_DIR", device_folder_.path()},
                   {"EMUCUDA_MEMORY", "16GiB"}} {}

SoakSite::~SoakSite() {
  daemon_.reset();
  process::EndLingering(device_folder_.path());
}

void SoakSite::Fail(Fault fault, const std::string& what) {
  failures_->Add(fault, absl::StrCat(name_, ": ", what));
}

bool SoakSite::StartDaemon(const std::vector<std::string>& flags,
                           const process::Environment& more) {
  daemon_ =
      Start(process::With({"fineserved", "--gpu", "emulated"}, flags), more);
  if (daemon_->Prints(" serving ")) return true;
  Fail(Fault::kEnded, "fineserved does not serve: " + daemon_->About());
  return false;
}

void SoakSite::KillDaemon() {
  daemon_->Signal(SIGKILL);
  daemon_->Wait();
}

std::unique_ptr<Program> SoakSite::Start(std::vector<std::string> words,
                                         const process::Environment& more) {
  process::Environment environment = environment_;
  environment.insert(more.begin(), more.end());
  const std::string log =
      absl::StrCat(folder_.path(), "/", ++started_, "-", words[0]);
  words[0] = process::ProgramFolder() + "/" + words[0];
  return std::make_unique<Program>(log, std::move(words), environment);
}

std::unique_ptr<Program> SoakSite::StartEngine(
    const std::string& name, std::vector<std::string> words,
    const process::Environment& more) {
  process::Environment environment = more;
  const std::string lib = process::ProgramFolder() + "/../lib/";
  environment["LD_PRELOAD"] = lib + "libfineserve_shim.so";
  environment["LD_LIBRARY_PATH"] = lib + "emucuda";
  environment["FINESERVE_ENGINE"] = name;
  return Start(std::move(words), environment);
}

std::string SoakSite::Fsctl(const std::vector<std::string>& arguments) {
  const auto fsctl = Start(process::With({"fsctl"}, arguments));
  return fsctl->EndsWithin(process::kPatience) && fsctl->Wait() == 0
             ? fsctl->Printed()
             : "";
}

std::string SoakSite::SocketPath() const {
  const auto sockets = finding::ListSockets(folder_.path() + "/run");
  return sockets.empty() ? "" : sockets[0];
}

absl::optional<abi::TableSnapshot> SoakSite::Table() const {
  const auto link =
      abi::ConnectObserver(SocketPath(), absl::FromChrono(process::kPatience));
  if (!link.ok()) return absl::nullopt;
  auto table = abi::ReadTable(link->table.get());
  if (!table.ok()) return absl::nullopt;
  return *std::move(table);
}

bool SoakSite::AwaitNoQuarantine() {
  const bool ended = process::Eventually([&] {
    const auto table = Table();
    return (table && !Quarantines(*table)) || !daemon_->alive();
  });
  if (ended && daemon_->alive()) return true;
  Fail(Fault::kNotAtRest, "a quarantine does not end: " + DescribePool());
  return false;
}

bool SoakSite::AwaitEmpty() {
  size_t slabs = 0;
  const bool empty = process::Eventually([&] {
    const auto table = Table();
    if (table) slabs = table->slabs.size();
    return (table && AllFree(*table) &&
            process::LingerHelpers(device_folder_.path()).empty()) ||
           !daemon_->alive();
  });
  if (empty && daemon_->alive() && FsctlSaysAllFree(slabs)) return true;
  Fail(Fault::kNotAtRest, "the pool is not at rest: " + DescribePool());
  return false;
}

bool SoakSite::FsctlSaysAllFree(size_t slabs) {
  const auto said =
      nlohmann::json::parse(Fsctl({"slabs", "--json"}), nullptr, false);
  const nlohmann::json::json_pointer free("/states/free/slabs");
  return said.is_object() && said.contains(free) && said.at(free) == slabs &&
         said.value("views", nlohmann::json()).empty();
}

std::string SoakSite::DescribePool() const {
  const auto table = Table();
  if (!table) return "no fineserved answers; " + daemon_->About();
  std::string text;
  for (size_t i = 0; i < table->slabs.size(); ++i) {
    const abi::SlabWord word = table->slabs[i].word;
    if (word.state == SlabState::kFree) continue;
    absl::StrAppend(&text, "slab ", i, " state ", static_cast<int>(word.state),
                    " engine ", word.engine, "; ");
  }
  for (const abi::EngineSnapshot& engine : table->engines) {
    absl::StrAppend(&text, "engine ", engine.id, " (", engine.name, ") has ",
                    engine.slabs_held, " slabs, ", engine.member_pids.size(),
                    " members; ");
  }
  return absl::StrCat(text,
                      process::LingerHelpers(device_folder_.path()).size(),
                      " linger; ", daemon_->About());
}

}  // namespace fineserve::bench
