#ifndef SHIM_LINK_PROCESS_EXCHANGE_H_
#define SHIM_LINK_PROCESS_EXCHANGE_H_

// Questions to another process under the preload
// (daemon/contract/abi/share_messages.h).

#include "daemon/contract/abi/share_messages.h"
#include "daemon/contract/abi/transport.h"
#include "kernels/driver/descriptor.h"
#include "shim/link/seqpacket.h"

namespace fineserve::shim {

// Returns a connection to the process, or -1. The kernel confirms that the peer
// is that process and runs as this process's user.
int ConnectToProcess(const abi::ShareAddress& address, int timeout_ms);

enum class Asked {
  kAnswered,
  kSilent,  // it may read the request later
  kHungUp,  // it may have read it
  kUnsent,
};

// Sends a request on a separate connection, and takes its answer.
template <typename Request, typename Answer>
Asked AskProcess(const abi::ShareAddress& address, const Request& request,
                 int timeout_ms, abi::Received* received, Answer* answer) {
  const driver::Descriptor socket(ConnectToProcess(address, timeout_ms));
  if (!socket.valid() || abi::Send(socket.get(), request) != 0) {
    return Asked::kUnsent;
  }
  if (WaitReadable(socket.get(), timeout_ms) != 0) return Asked::kSilent;
  return received->ReceiveFrom(socket.get()) == 0 && received->As(answer)
             ? Asked::kAnswered
             : Asked::kHungUp;
}

}  // namespace fineserve::shim

#endif  // SHIM_LINK_PROCESS_EXCHANGE_H_
