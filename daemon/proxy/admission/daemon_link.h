#ifndef DAEMON_PROXY_ADMISSION_DAEMON_LINK_H_
#define DAEMON_PROXY_ADMISSION_DAEMON_LINK_H_

#include <functional>

#include "absl/strings/string_view.h"

namespace fineserve::proxy {

// The proxy's connection to one fineserved, which it makes again whenever it is
// lost. Confined to the proxy's thread. Must outlive its io_context's run.
class DaemonLink {
 public:
  struct Hearer {
    // The daemon has answered on a new connection, so it knows nothing of what
    // was sent before.
    std::function<void()> on_connected;
    // `bytes`: aligned to 8, valid during the call.
    std::function<void(absl::string_view bytes)> on_message;
  };

  virtual ~DaemonLink() = default;

  // Sends one message. False while there is no connection, or if the daemon
  // does not read: nothing is kept for later.
  virtual bool Send(absl::string_view bytes) = 0;
  // Hands over at once what has come, which otherwise waits for its turn in the
  // event loop.
  virtual void Receive() = 0;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_ADMISSION_DAEMON_LINK_H_
