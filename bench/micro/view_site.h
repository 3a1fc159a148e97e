#ifndef BENCH_MICRO_VIEW_SITE_H_
#define BENCH_MICRO_VIEW_SITE_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace fineserve::bench {

// An emulated GPU with a real fineserved and real engines under the preload
// (view_engine.cc), each a process. Not thread-safe.
class ViewSite {
 public:
  // What an engine printed: "name value" lines.
  using Figures = std::map<std::string, double>;

  // Makes the folders; the environment of this process names them.
  ViewSite();
  ~ViewSite();
  ViewSite(const ViewSite&) = delete;
  ViewSite& operator=(const ViewSite&) = delete;

  // Starts fineserved and waits until all slabs are zeroed. One at a time.
  void StartDaemon(const std::vector<std::string>& flags);
  void StopDaemon();
  pid_t daemon_pid() const { return daemon_; }

  // Where the programs and, beside them, the emulated driver lie.
  const std::string& programs() const { return programs_; }
  std::string EmulatedFolder() const { return programs_ + "/../lib/emucuda"; }

  // Runs engines at the same time, each with its flags, and returns what they
  // printed once all have ended well.
  std::vector<Figures> RunEngines(
      const std::vector<std::vector<std::string>>& flags);

 private:
  std::string programs_;
  std::string device_folder_;
  std::string runtime_folder_;
  pid_t daemon_ = 0;
};

}  // namespace fineserve::bench

#endif  // BENCH_MICRO_VIEW_SITE_H_
