#include "bench/micro/gpu_site.h"

#include <signal.h>
#include <stdlib.h>

#include <algorithm>

#include "bench/micro/report.h"
#include "daemon/contract/abi/observer_link.h"
#include "daemon/contract/abi/table_reader.h"
#include "daemon/contract/finding/daemon_sockets.h"
#include "tools/lab/process/eventually.h"

namespace fineserve::bench {

using process::ProgramFolder;

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

GpuSite::GpuSite() {
  setenv("EMUCUDA_DIR", device_folder_.path().c_str(), 1);
  setenv("EMUCUDA_MEMORY", "80GiB", 1);
  setenv("FINESERVE_RUNTIME_DIR", runtime_folder_.path().c_str(), 1);
}

process::Command GpuSite::Fineserved(
    const std::vector<std::string>& flags) const {
  return {.words = process::With({ProgramFolder() + "/fineserved", "--gpu",
                                  "emulated", "--log-level", "error"},
                                 flags),
          .end_signal = SIGTERM};
}

void GpuSite::StartDaemon(const std::vector<std::string>& flags) {
  daemon_.emplace(Fineserved(flags));
  AwaitDaemons(1);
}

void GpuSite::AddDaemon(const std::vector<std::string>& flags) {
  more_.emplace_back(Fineserved(flags));
  AwaitDaemons(1 + more_.size());
}

void GpuSite::AwaitDaemons(size_t count) const {
  const bool serve = process::Eventually([&] {
    const auto sockets = finding::ListSockets(runtime_folder_.path());
    return static_cast<size_t>(std::count_if(sockets.begin(), sockets.end(),
                                             ServesAllZeroed)) >= count;
  });
  if (!serve) Die("fineserved did not start in time");
}

process::Environment GpuSite::UnderPreload(const std::string& name) const {
  return {{"LD_PRELOAD", ProgramFolder() + "/../lib/libfineserve_shim.so"},
          {"LD_LIBRARY_PATH", EmulatedFolder()},
          {"FINESERVE_ENGINE", name}};
}

std::string GpuSite::EmulatedFolder() const {
  return ProgramFolder() + "/../lib/emucuda";
}

}  // namespace fineserve::bench
