#include "bench/soak/soak_site.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/lab/process/eventually.h"
#include "tools/lab/stage/json_value.h"

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
    : Machine(Process::Stdout::kLog),
      name_(std::move(name)),
      failures_(failures) {
  Set("EMUCUDA_MEMORY", "16GiB");
}

void SoakSite::Fail(Fault fault, const std::string& what) {
  failures_->Add(fault, absl::StrCat(name_, ": ", what));
}

bool SoakSite::StartDaemon(const std::vector<std::string>& flags,
                           const process::Environment& more) {
  daemon_ = LaunchProgram(
      process::With({"fineserved", "--gpu", "emulated"}, flags), more);
  if (daemon_->Logs(" serving ")) return true;
  Fail(Fault::kEnded, "fineserved does not serve: " + daemon_->About());
  return false;
}

std::unique_ptr<Process> SoakSite::StartEngine(
    const std::string& name, std::vector<std::string> words,
    const process::Environment& more) {
  process::Environment environment = more;
  environment["FINESERVE_ENGINE"] = name;
  return LaunchPreloaded(std::move(words), environment);
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
    return (table && AllFree(*table) && !Lingers()) || !daemon_->alive();
  });
  if (empty && daemon_->alive() && FsctlSaysAllFree(slabs)) return true;
  Fail(Fault::kNotAtRest, "the pool is not at rest: " + DescribePool());
  return false;
}

bool SoakSite::FsctlSaysAllFree(size_t slabs) {
  const std::string said = Fsctl({"slabs", "--json"}).out;
  return stage::JsonAt(said, "/states/free/slabs") == absl::StrCat(slabs) &&
         stage::JsonAt(said, "/views/0").empty();
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
  return absl::StrCat(text, Lingers() ? "a dead client's work lingers; " : "",
                      daemon_->About());
}

}  // namespace fineserve::bench
