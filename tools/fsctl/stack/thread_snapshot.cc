#include "tools/fsctl/stack/thread_snapshot.h"

#include <elf.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "daemon/contract/abi/printable.h"
#include "tools/fsctl/processes/inspected_process.h"

namespace fineserve::fsctl {
namespace {

// A thread must be scheduled before it can stop, which takes time on a busy
// machine.
constexpr double kPatience = 1;
constexpr double kPatienceWithUninterruptible = 0.02;
constexpr timespec kBetweenLooks = {0, 20'000};
// Bytes below the stack pointer where a leaf function may keep values (System V
// ABI for x86-64).
constexpr uint64_t kRedZone = 128;

double Seconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec);
}

std::string FileOf(pid_t pid, pid_t tid, const char* name) {
  return ReadFile(absl::StrCat("/proc/", pid, "/task/", tid, "/", name));
}

// Returns the value after "key" and a colon in a text of lines; empty if it has
// none.
std::string ValueOf(const std::string& lines, const std::string& key) {
  const size_t at = lines.find(key);
  if (at == std::string::npos) return "";
  const size_t from = lines.find(':', at);
  if (from == std::string::npos) return "";
  return std::string(absl::StripAsciiWhitespace(
      lines.substr(from + 1, lines.find('\n', from) - from - 1)));
}

// Returns the time on the scheduler's clock, in s; negative if the kernel does
// not report it.
double LastRun(const std::string& sched) {
  double ms = -1;
  if (!absl::SimpleAtod(ValueOf(sched, "se.exec_start"), &ms)) return -1;
  return ms / 1000;
}

std::vector<pid_t> ThreadsOf(pid_t pid) {
  std::vector<pid_t> threads;
  std::error_code trouble;
  const std::string folder = absl::StrCat("/proc/", pid, "/task");
  for (const auto& entry :
       std::filesystem::directory_iterator(folder, trouble)) {
    pid_t tid = 0;
    if (absl::SimpleAtoi(entry.path().filename().string(), &tid)) {
      threads.push_back(tid);
    }
  }
  std::sort(threads.begin(), threads.end());
  return threads;
}

ThreadSnapshot Describe(pid_t pid, pid_t tid) {
  ThreadSnapshot t;
  t.tid = tid;
  const std::string name(absl::StripSuffix(FileOf(pid, tid, "comm"), "\n"));
  t.name = abi::Printable(name.data(), name.size());
  const std::string state = ValueOf(FileOf(pid, tid, "status"), "State");
  if (!state.empty()) t.state = state[0];
  t.kernel_wait = FileOf(pid, tid, "wchan");
  if (t.kernel_wait == "0") t.kernel_wait.clear();
  const double ran = LastRun(FileOf(pid, tid, "sched"));
  const double now = LastRun(ReadFile("/proc/thread-self/sched"));
  if (t.state != 'R' && ran >= 0 && now >= ran) t.idle_s = now - ran;
  return t;
}

// Copies the stack's memory from `begin` to its end.
std::string CopyMemory(pid_t pid, uint64_t begin) {
  std::string copy(kStackBytes, '\0');
  iovec local = {copy.data(), copy.size()};
  // The copy ends after the last complete part that is mapped.
  std::array<iovec, kStackBytes / kPageBytes + 1> parts;
  uint64_t at = begin;
  size_t n = 0;
  while (at < begin + kStackBytes) {
    const uint64_t end =
        std::min((at / kPageBytes + 1) * kPageBytes, begin + kStackBytes);
    parts[n++] = {reinterpret_cast<void*>(at), end - at};
    at = end;
  }
  const ssize_t got = process_vm_readv(pid, &local, 1, parts.data(), n, 0);
  copy.resize(std::max<ssize_t>(got, 0));
  return copy;
}

#if defined(__x86_64__)
uint64_t StackPointer(const user_regs_struct& r) { return r.rsp; }
uint64_t PthreadSelf(const ThreadSnapshot& t) { return t.registers.fs_base; }
#elif defined(__aarch64__)
uint64_t StackPointer(const user_regs_struct& r) { return r.sp; }
// glibc's descriptor of a thread ends where this register points. Its size is
// taken from the glibc of this process: if the thread uses another glibc, its
// Python frames are not found.
uint64_t PthreadSelf(const ThreadSnapshot& t) {
  uint64_t end = 0;
  iovec found = {&end, sizeof(end)};
  if (ptrace(PTRACE_GETREGSET, t.tid, NT_ARM_TLS, &found) != 0) return 0;
  return end - (reinterpret_cast<uint64_t>(__builtin_thread_pointer()) -
                static_cast<uint64_t>(pthread_self()));
}
#endif

void Copy(ThreadSnapshot* t, const PythonReader* python) {
  iovec registers = {&t->registers, sizeof(t->registers)};
  if (ptrace(PTRACE_GETREGSET, t->tid, NT_PRSTATUS, &registers) != 0) {
    t->trouble =
        absl::StrCat("its registers cannot be read: ", strerror(errno));
    return;
  }
  t->stack_begin = StackPointer(t->registers) - kRedZone;
  t->stack = CopyMemory(t->tid, t->stack_begin);
  // If the stack ends at a page, its red zone is not mapped until a leaf
  // function uses it.
  if (t->stack.empty()) {
    t->stack_begin = StackPointer(t->registers);
    t->stack = CopyMemory(t->tid, t->stack_begin);
  }
  if (t->stack.empty()) t->trouble = "its stack cannot be read";
  if (python != nullptr) t->python = python->CallsOf(PthreadSelf(*t));
}

struct Stop {
  enum class How { kStopped, kLate, kEnded } how;
  double after = 0;  // the last look at which it ran
  int signal = 0;    // that it was about to take, and takes when it goes on
};

Stop AwaitStop(pid_t tid, double patience) {
  const double begin = Seconds();
  double look = begin;
  for (double after = begin;; after = look) {
    look = Seconds();
    int status = 0;
    const pid_t got = waitpid(tid, &status, __WALL | WNOHANG);
    if (got < 0 && errno != EINTR) return {Stop::How::kEnded};
    if (got == tid) {
      if (!WIFSTOPPED(status)) return {Stop::How::kEnded};
      return {Stop::How::kStopped, after,
              status >> 16 == 0 ? WSTOPSIG(status) : 0};
    }
    if (look > begin + patience) return {Stop::How::kLate};
    nanosleep(&kBetweenLooks, nullptr);
  }
}

absl::Status MayNotTrace(pid_t pid) {
  const std::string scope(
      absl::StripSuffix(ReadFile("/proc/sys/kernel/yama/ptrace_scope"), "\n"));
  return absl::PermissionDeniedError(absl::StrCat(
      "this user may not trace pid ", pid,
      scope.empty() || scope == "0"
          ? "; run fsctl as root (in a container, with CAP_SYS_PTRACE)"
          : absl::StrCat(" (kernel.yama.ptrace_scope is ", scope,
                         "); run fsctl as root"),
      ", or see whether a debugger traces it already"));
}

// False if the thread has ended.
absl::StatusOr<bool> Snapshot(pid_t pid, const PythonReader* python,
                              ThreadSnapshot* t) {
  if (ptrace(PTRACE_SEIZE, t->tid, 0, 0) != 0) {
    if (errno == ESRCH) return false;
    return MayNotTrace(pid);
  }
  if (ptrace(PTRACE_INTERRUPT, t->tid, 0, 0) != 0) return false;
  const double patience =
      t->state == 'D' ? kPatienceWithUninterruptible : kPatience;
  const Stop stop = AwaitStop(t->tid, patience);
  switch (stop.how) {
    case Stop::How::kEnded:
      return false;
    case Stop::How::kLate:
      t->trouble = absl::StrCat("it did not stop within ", 1000 * patience,
                                " ms (state ", std::string(1, t->state), ")");
      return true;
    case Stop::How::kStopped:
      break;
  }
  Copy(t, python);
  ptrace(PTRACE_DETACH, t->tid, 0, stop.signal);
  t->stopped_s = Seconds() - stop.after;
  return true;
}

absl::StatusOr<std::vector<ThreadSnapshot>> SnapshotAll(
    pid_t pid, const PythonReader* python) {
  std::vector<ThreadSnapshot> threads;
  for (const pid_t tid : ThreadsOf(pid)) {
    ThreadSnapshot t = Describe(pid, tid);
    const absl::StatusOr<bool> taken = Snapshot(pid, python, &t);
    if (!taken.ok()) return taken.status();
    if (*taken) threads.push_back(std::move(t));
  }
  if (threads.empty()) {
    return absl::NotFoundError(absl::StrCat("pid ", pid, " has ended"));
  }
  return threads;
}

}  // namespace

absl::StatusOr<std::vector<ThreadSnapshot>> SnapshotThreads(
    pid_t pid, const PythonReader* python) {
  absl::StatusOr<std::vector<ThreadSnapshot>> threads;
  // Runs in a separate thread. When that thread ends, all its tracing ends, so
  // that a traced thread which stops after our wait is released.
  std::thread([&] {
    const sched_param first = {.sched_priority = 1};
    sched_setscheduler(0, SCHED_RR, &first);  // EPERM: as it is
    threads = SnapshotAll(pid, python);
  }).join();
  return threads;
}

}  // namespace fineserve::fsctl
