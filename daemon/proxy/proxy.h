#ifndef DAEMON_PROXY_PROXY_H_
#define DAEMON_PROXY_PROXY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/config/fleet.h"
#include "daemon/proxy/admission/admission.h"
#include "daemon/proxy/exchange/service.h"

namespace boost::asio {
class io_context;
}

namespace fineserve::proxy {

// What the proxy runs on, as read from the fleet file and the flags.
struct Setup {
  std::shared_ptr<const config::Fleet> fleet;
  KeySet keys;
};

// Listens on both ports and serves until told to end. One thread, its caller's:
// an exchange costs tens of microseconds, an engine's step tens of
// milliseconds.
class Proxy {
 public:
  // Binds the ports, so that an address that is taken is an error here. All
  // outlive the proxy; `read_again` is asked at SIGHUP.
  static absl::StatusOr<std::unique_ptr<Proxy>> Start(
      const Setup& setup, const Limits& limits, Admission* admission,
      const Clock* clock, std::function<absl::StatusOr<Setup>()> read_again);
  virtual ~Proxy() = default;

  // "127.0.0.1:8000", with the port that the system chose for 0.
  virtual std::string listen_address() const = 0;
  virtual std::string admin_address() const = 0;

  // What else is to be done on the proxy's thread.
  virtual boost::asio::io_context* context() = 0;

  // Until SIGTERM or SIGINT; then as long as streams need, but no longer than
  // the fleet's drain. A second signal ends it at once.
  virtual void Serve() = 0;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_PROXY_H_
