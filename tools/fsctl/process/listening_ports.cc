#include "tools/fsctl/process/listening_ports.h"

#include <stdio.h>

#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "daemon/contract/abi/process_start.h"
#include "tools/fsctl/process/read_file.h"

namespace fineserve::fsctl {
namespace {

namespace fs = std::filesystem;

constexpr int kGroupField = 5;  // of /proc/PID/stat

// A socket's number, in the name of a descriptor's file and in the tables.
using Inode = uint64_t;

// proc(5): "sl local_address rem_address st … inode", where the address is
// hexadecimal "ADDRESS:PORT" and the state 0A is TCP_LISTEN.
std::map<Inode, uint16_t> PortsIn(const std::string& table) {
  std::map<Inode, uint16_t> ports;
  std::istringstream lines(ReadFile(table));
  for (std::string line; std::getline(lines, line);) {
    unsigned port = 0, state = 0;
    unsigned long long inode = 0;
    const int found =
        sscanf(line.c_str(), "%*s %*[^:]:%x %*s %x %*s %*s %*s %*s %*s %llu",
               &port, &state, &inode);
    if (found == 3 && state == 0x0a) ports[inode] = static_cast<uint16_t>(port);
  }
  return ports;
}

void AddPorts(const std::string& process, std::set<uint16_t>* ports) {
  // Its own network, which may be a container's.
  std::map<Inode, uint16_t> known = PortsIn(process + "/net/tcp");
  known.merge(PortsIn(process + "/net/tcp6"));
  std::error_code e;
  for (fs::directory_iterator fd(process + "/fd", e), end; !e && fd != end;
       fd.increment(e)) {
    std::error_code gone;
    const std::string target = fs::read_symlink(fd->path(), gone).string();
    absl::string_view name = target;
    Inode inode = 0;
    if (!absl::ConsumePrefix(&name, "socket:[") ||
        !absl::ConsumeSuffix(&name, "]") || !absl::SimpleAtoi(name, &inode)) {
      continue;
    }
    const auto port = known.find(inode);
    if (port != known.end()) ports->insert(port->second);
  }
}

}  // namespace

std::set<uint16_t> ListeningPorts(pid_t group) {
  std::set<uint16_t> ports;
  std::error_code e;
  for (fs::directory_iterator process("/proc", e), end; !e && process != end;
       process.increment(e)) {
    const std::string path = process->path().string();
    int pid = 0;
    if (!absl::SimpleAtoi(process->path().filename().string(), &pid)) continue;
    if (abi::StatField(pid, kGroupField) == static_cast<uint64_t>(group))
      AddPorts(path, &ports);
  }
  return ports;
}

}  // namespace fineserve::fsctl
