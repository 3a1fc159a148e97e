#include "shim/link/process_exchange.h"

#include <unistd.h>

#include "daemon/contract/abi/process_start.h"

namespace fineserve::shim {

int ConnectToProcess(const abi::ShareAddress& address, int timeout_ms) {
  const int fd = ConnectToName(address.socket, timeout_ms);
  if (fd < 0) return -1;
  ucred peer;
  if (PeerOf(fd, &peer) && static_cast<uint32_t>(peer.pid) == address.pid &&
      abi::IsSameImage(address.image, abi::ProcessImage(peer.pid))) {
    return fd;
  }
  close(fd);
  return -1;
}

}  // namespace fineserve::shim
