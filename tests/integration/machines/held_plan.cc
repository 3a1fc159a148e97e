#include "tests/integration/machines/held_plan.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "kernels/driver/descriptor.h"
#include "tests/integration/machines/machines_site.h"
#include "tools/lab/process/eventually.h"

namespace fineserve::integration {
namespace {

using process::TracedThread;

// The leader sends a plan every second, but tracing slows its threads down.
constexpr std::chrono::seconds kPatienceWithLeader(20);
// Separates two kinds of messages by size: on the wire, a query without a plan
// is shorter, and a query with this test's nine places is longer.
constexpr uint64_t kPlanBytes = 300;

// Returns the threads that send for ZeroMQ, one for each of the process's
// contexts.
std::vector<TracedThread> Senders(pid_t process) {
  std::vector<TracedThread> senders;
  const std::string tasks = "/proc/" + std::to_string(process) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks)) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name.rfind("ZMQbg/IO", 0) != 0) continue;
    senders.emplace_back(std::stoi(task.path().filename()));
  }
  return senders;
}

// Returns the peer's port of that process's TCP connection; 0 if `fd` is no
// such connection.
uint16_t PeerPort(pid_t process, int fd) {
  const driver::Descriptor who(
      static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
  const driver::Descriptor its(
      static_cast<int>(syscall(SYS_pidfd_getfd, who.get(), fd, 0)));
  sockaddr_in at = {};
  socklen_t bytes = sizeof(at);
  if (getpeername(its.get(), reinterpret_cast<sockaddr*>(&at), &bytes) != 0) {
    return 0;
  }
  return at.sin_family == AF_INET ? ntohs(at.sin_port) : 0;
}

}  // namespace

std::unique_ptr<TracedThread> HoldBeforePlan(pid_t daemon) {
  std::vector<TracedThread> senders = Senders(daemon);
  std::unique_ptr<TracedThread> held;
  const auto tells = [daemon](const __ptrace_syscall_info& call) {
    return call.entry.nr == SYS_sendto && call.entry.args[2] >= kPlanBytes &&
           PeerPort(daemon, static_cast<int>(call.entry.args[0])) ==
               kDaemonPort;
  };
  process::BecomesTrue(
      [&] {
        for (TracedThread& sender : senders) {
          if (!sender.StandsBefore(tells)) continue;
          held = std::make_unique<TracedThread>(std::move(sender));
          return true;
        }
        return false;
      },
      kPatienceWithLeader);
  return held;
}

}  // namespace fineserve::integration
