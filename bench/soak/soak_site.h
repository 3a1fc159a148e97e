#ifndef BENCH_SOAK_SOAK_SITE_H_
#define BENCH_SOAK_SOAK_SITE_H_

#include <signal.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "bench/soak/failures.h"
#include "daemon/contract/abi/table_reader.h"
#include "tools/lab/process/eventually.h"
#include "tools/lab/stage/machine.h"

namespace fineserve::bench {

using stage::Process;

// Resources of a process, which must not grow at rest.
struct ProcessSize {
  size_t descriptors = 0;
  size_t private_kib = 0;  // memory that no file backs
};
ProcessSize SizeOf(pid_t pid);

// A machine whose troubles count as failures of the soak. Several can exist
// side by side. Confined to one thread.
class SoakSite : public stage::Machine {
 public:
  // `name` precedes the faults that this object reports.
  SoakSite(std::string name, Failures* failures);

  // Starts fineserved and waits until it serves. If it does not, reports a
  // failure and returns false.
  bool StartDaemon(const std::vector<std::string>& flags,
                   const process::Environment& more = {});
  void KillDaemon() { daemon_->EndBy(SIGKILL); }
  Process& daemon() { return *daemon_; }

  // Starts one of our programs under the preload, as the engine `name`.
  std::unique_ptr<Process> StartEngine(const std::string& name,
                                       std::vector<std::string> words,
                                       const process::Environment& more = {});

  // Returns the slab table if the daemon answers.
  absl::optional<abi::TableSnapshot> Table() const {
    return TableIfServed(absl::FromChrono(process::kPatience));
  }
  // Waits until no dead engine has slabs. If one keeps them, reports a failure
  // and returns false.
  bool AwaitNoQuarantine();
  // Waits until every slab is free, no engine is in the table and the device
  // has no work left of dead clients; fsctl must report the same.
  bool AwaitEmpty();

  void Fail(Fault fault, const std::string& what);

 private:
  std::string DescribePool() const;
  bool FsctlSaysAllFree(size_t slabs);

  const std::string name_;
  Failures* const failures_;
  std::unique_ptr<Process> daemon_;
};

}  // namespace fineserve::bench

#endif  // BENCH_SOAK_SOAK_SITE_H_
