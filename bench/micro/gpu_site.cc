#include "bench/micro/gpu_site.h"

#include <signal.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "bench/report/report.h"
#include "daemon/contract/abi/observer_link.h"
#include "daemon/contract/abi/table_reader.h"
#include "tools/lab/process/eventually.h"

namespace fineserve::bench {
namespace {

bool ServesAllZeroed(const std::string& socket) {
  const auto link = abi::ConnectObserver(socket);
  if (!link.ok()) return false;
  const auto table = abi::ReadTable(link->table.get());
  return table.ok() &&
         std::all_of(table->slabs.begin(), table->slabs.end(), [](auto& s) {
           return s.word.state == abi::SlabState::kFree;
         });
}

}  // namespace

GpuSite::GpuSite() : Machine(stage::Process::Stdout::kLog) {
  Set("EMUCUDA_MEMORY", "80GiB");
  Enter();
}

void GpuSite::StartDaemon(const std::vector<std::string>& flags) {
  StopDaemon();
  AddDaemon(flags);
}

void GpuSite::AddDaemon(const std::vector<std::string>& flags) {
  daemons_.push_back(LaunchProgram(process::With(
      {"fineserved", "--gpu", "emulated", "--log-level", "error"}, flags)));
  const bool serve = process::Eventually([&] {
    const auto sockets = Sockets();
    return static_cast<size_t>(std::count_if(sockets.begin(), sockets.end(),
                                             ServesAllZeroed)) >=
           daemons_.size();
  });
  if (!serve) Die("fineserved did not start: " + daemons_.back()->About());
}

std::vector<FigureLines> GpuSite::RunPrograms(
    const std::string& program,
    const std::vector<std::vector<std::string>>& flags) const {
  std::vector<std::unique_ptr<FigureProgram>> engines;
  for (size_t i = 0; i < flags.size(); ++i) {
    engines.push_back(std::make_unique<FigureProgram>(
        process::Command{.words = process::With({Program(program)}, flags[i]),
                         .environment = UnderPreload(absl::StrCat("bench-", i)),
                         .end_signal = SIGTERM}));
  }
  std::vector<FigureLines> figures;
  for (const auto& engine : engines) figures.push_back(engine->Finish());
  return figures;
}

}  // namespace fineserve::bench
