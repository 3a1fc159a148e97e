#include "bench/micro/gpu_site.h"

#include <signal.h>
#include <stdlib.h>

#include <algorithm>

#include "bench/micro/report.h"
#include "daemon/abi/observer_link.h"
#include "daemon/abi/table_reader.h"
#include "tests/process/eventually.h"

namespace fineserve::bench {

using process::ProgramFolder;

namespace {

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

}  // namespace

GpuSite::GpuSite() {
  setenv("EMUCUDA_DIR", device_folder_.path().c_str(), 1);
  setenv("EMUCUDA_MEMORY", "80GiB", 1);
  setenv("FINESERVE_RUNTIME_DIR", runtime_folder_.path().c_str(), 1);
}

void GpuSite::StartDaemon(const std::vector<std::string>& flags) {
  std::vector<std::string> words = {ProgramFolder() + "/fineserved", "--gpu",
                                    "emulated", "--log-level", "error"};
  words.insert(words.end(), flags.begin(), flags.end());
  daemon_.emplace(process::Command{.words = words, .end_signal = SIGTERM});
  if (!process::Eventually(
          [&] { return ServesAllZeroed(runtime_folder_.path()); })) {
    Die("fineserved did not start in time");
  }
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
