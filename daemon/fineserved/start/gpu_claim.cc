#include "daemon/fineserved/start/gpu_claim.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "daemon/base/errno_status.h"
#include "daemon/contract/abi/socket_path.h"

namespace fineserve::server {
namespace {

driver::Descriptor NewSocket() {
  return driver::Descriptor(
      socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

struct Address {
  explicit Address(const std::string& name) {
    address.sun_family = AF_UNIX;  // sun_path[0] stays 0: abstract
    memcpy(address.sun_path + 1, name.data(), name.size());
    bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                   name.size());
  }
  const sockaddr* get() const {
    return reinterpret_cast<const sockaddr*>(&address);
  }

  sockaddr_un address = {};
  socklen_t bytes = 0;
};

// Returns the process that listens at the address, as the kernel reports it.
std::string HolderOf(const Address& at) {
  const driver::Descriptor fd = NewSocket();
  ucred holder = {};
  socklen_t bytes = sizeof(holder);
  if (connect(fd.get(), at.get(), at.bytes) != 0 ||
      getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &holder, &bytes) != 0) {
    return "another process";
  }
  return absl::StrCat("pid ", holder.pid, " of user ", holder.uid);
}

}  // namespace

std::string ClaimName(const backing::Device& device) {
  // The end of a long path is its most distinctive part.
  constexpr size_t kMostMachine = 50;
  char gpu[41];
  abi::FormatGpuUuid(device.uuid, gpu);
  std::string name = absl::StrCat("fineserve/", gpu);
  if (!device.emulated) return name;
  const char* const folder = getenv("EMUCUDA_DIR");
  const std::string machine = folder != nullptr ? folder : "";
  absl::StrAppend(
      &name, ":",
      machine.substr(machine.size() - std::min(machine.size(), kMostMachine)));
  return name;
}

absl::StatusOr<driver::Descriptor> ClaimGpu(const backing::Device& device) {
  const std::string name = ClaimName(device);
  const Address at(name);
  driver::Descriptor claim = NewSocket();
  if (!claim.valid()) return base::Cannot("open a socket for", "@" + name);
  if (bind(claim.get(), at.get(), at.bytes) == 0) {
    if (listen(claim.get(), 8) != 0)
      return base::Cannot("listen on", "@" + name);
    return claim;
  }
  if (errno != EADDRINUSE) return base::Cannot("bind", "@" + name);
  return absl::FailedPreconditionError(
      absl::StrCat(HolderOf(at), " serves this GPU already (it holds @", name,
                   "); stop it first, or use its runtime folder"));
}

}  // namespace fineserve::server
