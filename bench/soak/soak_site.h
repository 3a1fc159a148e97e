#ifndef BENCH_SOAK_SOAK_SITE_H_
#define BENCH_SOAK_SOAK_SITE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "bench/soak/failures.h"
#include "bench/soak/program.h"
#include "daemon/contract/abi/table_reader.h"
#include "tools/lab/process/temporary_folder.h"

namespace fineserve::bench {

// Resources of a process; at rest they may not grow.
struct ProcessSize {
  size_t descriptors = 0;
  size_t private_kib = 0;  // memory that no file backs
};
ProcessSize SizeOf(pid_t pid);

// A machine of its own: an emulated GPU, a runtime folder, fineserved, and the
// programs that are started here. Several may live side by side. Confined to
// one thread.
class SoakSite {
 public:
  // `name` precedes the faults reported here.
  SoakSite(std::string name, Failures* failures);
  SoakSite(const SoakSite&) = delete;
  SoakSite& operator=(const SoakSite&) = delete;
  ~SoakSite();

  // Starts fineserved and waits until it serves; false, and a failure, if it
  // does not.
  bool StartDaemon(const std::vector<std::string>& flags,
                   const process::Environment& more = {});
  void KillDaemon();
  Program& daemon() { return *daemon_; }

  // The first word is the name of one of our programs.
  std::unique_ptr<Program> Start(std::vector<std::string> words,
                                 const process::Environment& more = {});
  // The same under the preload, as the engine `name`.
  std::unique_ptr<Program> StartEngine(const std::string& name,
                                       std::vector<std::string> words,
                                       const process::Environment& more = {});
  // Output of fsctl, empty if it fails.
  std::string Fsctl(const std::vector<std::string>& arguments);

  // The slab table, if the daemon answers.
  absl::optional<abi::TableSnapshot> Table() const;
  // Waits until no dead engine has slabs. False, and a failure, if one keeps
  // them.
  bool AwaitNoQuarantine();
  // Waits until every slab is free, no engine is in the table and the device
  // has no dead client's work left; fsctl must say the same.
  bool AwaitEmpty();

  void Fail(Fault fault, const std::string& what);
  const std::string& folder() const { return folder_.path(); }
  // Path of the daemon's socket; empty if none was started.
  std::string SocketPath() const;

 private:
  std::string DescribePool() const;
  bool FsctlSaysAllFree(size_t slabs);

  const std::string name_;
  Failures* const failures_;
  const process::TemporaryFolder folder_;
  const process::TemporaryFolder device_folder_{"/dev/shm"};
  const process::Environment environment_;
  int started_ = 0;  // programs
  std::unique_ptr<Program> daemon_;
};

}  // namespace fineserve::bench

#endif  // BENCH_SOAK_SOAK_SITE_H_
