#ifndef BENCH_MICRO_PROCESS_H_
#define BENCH_MICRO_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace fineserve::bench {

// What a bench needs to run real programs. What fails ends the bench.

// The folder of our programs, and of this bench.
std::string ProgramFolder();

// A port of 127.0.0.1 that nobody listens on; whoever gets it binds it soon.
uint16_t FreePort();

// A folder of its own, mode 0700, removed with this object.
class Folder {
 public:
  // In `parent`, like "/tmp".
  explicit Folder(const std::string& parent);
  Folder(Folder&& other) noexcept;
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder();

  const std::string& path() const { return path_; }

 private:
  std::string path_;  // empty: moved from
};

// A program that runs beside the bench and does not outlive it. Told to end
// (SIGTERM) with this object, which waits for that.
class Process {
 public:
  // `environment`: "NAME=value", on top of ours. Standard output goes to
  // `output`, or nowhere; standard error is ours.
  explicit Process(const std::vector<std::string>& words,
                   const std::vector<std::string>& environment = {},
                   int output = -1);
  Process(Process&& other) noexcept;
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process();

  pid_t pid() const { return pid_; }
  // Until it has ended by itself; its status as waitpid's.
  int Wait();

  // Of all its threads since it began (/proc/PID/task/TID/schedstat, precise
  // to ns).
  double CpuSeconds() const;
  uint64_t ResidentBytes() const;

 private:
  pid_t pid_;  // -1: ended, or moved from
};

}  // namespace fineserve::bench

#endif  // BENCH_MICRO_PROCESS_H_
