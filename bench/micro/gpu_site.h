#ifndef BENCH_MICRO_GPU_SITE_H_
#define BENCH_MICRO_GPU_SITE_H_

#include <memory>
#include <string>
#include <vector>

#include "bench/micro/figure_lines.h"
#include "tools/lab/stage/machine.h"

namespace fineserve::bench {

// An emulated GPU of 80 GiB, or several, and a real fineserved on each. This
// process runs on that machine, so only one site can exist at a time. Not
// thread-safe.
class GpuSite : public stage::Machine {
 public:
  GpuSite();

  // Starts fineserved and waits until all slabs are zeroed. Only one daemon at
  // a time.
  void StartDaemon(const std::vector<std::string>& flags);
  void StopDaemon() { daemons_.clear(); }
  // Starts another fineserved on another GPU ("--gpu emulated:1" and
  // EMUCUDA_DEVICES), and waits in the same way.
  void AddDaemon(const std::vector<std::string>& flags);
  pid_t daemon_pid() const { return daemons_[0]->pid(); }

  // Returns the environment in which a program is the engine `name`.
  process::Environment UnderPreload(const std::string& name) const {
    return EngineEnvironment({{"FINESERVE_ENGINE", name}});
  }
  // Runs several of our programs under the preload at the same time, each with
  // its flags, and returns the lines that they printed once all have succeeded.
  std::vector<FigureLines> RunPrograms(
      const std::string& program,
      const std::vector<std::vector<std::string>>& flags) const;
  // Does the same with engines (view_engine.cc).
  std::vector<FigureLines> RunEngines(
      const std::vector<std::vector<std::string>>& flags) const {
    return RunPrograms("bench_view_engine", flags);
  }
  static std::string EmulatedFolder() {
    return process::ProgramFolder() + "/../lib/emucuda";
  }

 private:
  std::vector<std::unique_ptr<stage::Process>> daemons_;
};

}  // namespace fineserve::bench

#endif  // BENCH_MICRO_GPU_SITE_H_
