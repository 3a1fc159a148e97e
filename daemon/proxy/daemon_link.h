#ifndef DAEMON_PROXY_DAEMON_LINK_H_
#define DAEMON_PROXY_DAEMON_LINK_H_

#include <boost/asio/steady_timer.hpp>
#include <map>
#include <memory>
#include <string>

#include "absl/types/optional.h"
#include "daemon/config/fleet.h"
#include "daemon/proxy/daemon_admission.h"
#include "daemon/proxy/socket_io.h"
#include "daemon/wire/socket.h"

namespace fineserve::proxy {

// Carries DaemonAdmission's messages to fineserved and back, calls its Tick,
// and asks each engine's /health. Confined to the proxy's thread; must outlive
// the io_context's run.
class DaemonLink {
 public:
  // `folder`: fineserved's runtime folder; `gpu`: of the daemon to talk to, as
  // FindAdmissionPath takes it. All outlive it.
  DaemonLink(asio::io_context* io, std::string folder, std::string gpu,
             DaemonAdmission* admission);
  DaemonLink(const DaemonLink&) = delete;
  DaemonLink& operator=(const DaemonLink&) = delete;

  // Begins; the work ends with the io_context.
  void Start();

 private:
  asio::awaitable<void> Beat();
  asio::awaitable<void> Listen();
  asio::awaitable<void> AskHealth();
  void AskEngines();
  void Open();
  // Reads what has come, after what is under way now.
  void DrainSoon();
  void Drain();
  void FlushSoon();

  asio::io_context* const io_;
  const std::string folder_;
  const std::string gpu_;
  DaemonAdmission* const admission_;
  absl::optional<wire::ClientSocket> socket_;
  asio::steady_timer flush_timer_;
  bool drains_ = false;   // soon
  bool flushes_ = false;  // ditto
  bool told_ = false;     // that there is no daemon, or several
};

// The daemon that takes requests for the GPU whose UUID begins so; empty: for
// the only one. NotFound if there is none, FailedPrecondition if there are
// several.
absl::StatusOr<std::string> FindAdmissionPath(const std::string& folder,
                                              const std::string& gpu);

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_DAEMON_LINK_H_
