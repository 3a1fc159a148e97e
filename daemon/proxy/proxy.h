#ifndef DAEMON_PROXY_PROXY_H_
#define DAEMON_PROXY_PROXY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/base/clock/clock.h"
#include "daemon/fleet/config/fleet.h"
#include "daemon/fleet/config/fleet_description.h"
#include "daemon/proxy/admission/admission.h"
#include "daemon/proxy/keys/client.h"
#include "daemon/proxy/relay/limits.h"

namespace boost::asio {
class io_context;
}

namespace fineserve::proxy {

// The proxy's configuration, as read from the fleet file and the flags.
struct Setup {
  std::shared_ptr<const config::Fleet> fleet;
  KeySet keys;
  std::map<std::string, std::string> outside_keys = {};  // by its name
  std::string ledger_path = {};  // of what clients with names have spent
  // Describes the fleet as in the file, without the flags.
  config::FleetDescription written = {};
  std::string warning = {};  // of what can be served but should not; or empty
};

class AccessLog;
class OtlpExporter;
class TlsFront;

// Receivers of each request's life. The objects behind the pointers must
// outlive the proxy.
struct Hearers {
  size_t recent_requests = 0;  // to keep for the admin port
  AccessLog* access_log = nullptr;
  OtlpExporter* exporter = nullptr;
  double trace_sample = 1;  // of traces that begin here
};

// Listens on both ports and serves until a signal ends it. The caller's thread
// does all the work: an exchange costs tens of microseconds, an engine's step
// tens of milliseconds.
class Proxy {
 public:
  // Binds the ports, so that an address in use is an error here. The pointers
  // must outlive the proxy. `runtime_folder` contains fineserved's sockets, for
  // the page. SIGHUP calls `read_again`; SIGUSR1 reopens the access log. If
  // `tls` is given, the clients' port speaks TLS.
  static absl::StatusOr<std::unique_ptr<Proxy>> Start(
      const Setup& setup, const Limits& limits,
      const std::string& runtime_folder, Admission* admission,
      const Clock* clock, std::function<absl::StatusOr<Setup>()> read_again,
      const Hearers& hearers = {}, TlsFront* tls = nullptr);
  virtual ~Proxy() = default;

  // For example "127.0.0.1:8000", with the port that the system chose if it was
  // 0.
  virtual std::string listen_address() const = 0;
  virtual std::string admin_address() const = 0;

  // Opens a door in the runtime folder, through which fsctl can bring a new
  // fleet. An error says why there is none.
  virtual absl::Status OpenDoor(const std::string& folder,
                                const std::string& fleet_path) = 0;

  // The event loop, for other work on the proxy's thread.
  virtual boost::asio::io_context* context() = 0;

  // Serves until SIGTERM or SIGINT, and then until running requests have ended,
  // but no longer than the fleet's drain. A second signal ends it at once.
  virtual void Serve() = 0;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_PROXY_H_
