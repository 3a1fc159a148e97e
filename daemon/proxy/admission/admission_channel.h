#ifndef DAEMON_PROXY_ADMISSION_ADMISSION_CHANNEL_H_
#define DAEMON_PROXY_ADMISSION_ADMISSION_CHANNEL_H_

#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <string>

#include "absl/types/optional.h"
#include "daemon/config/fleet.h"
#include "daemon/proxy/admission/daemon_admission.h"
#include "daemon/proxy/http/socket_io.h"
#include "daemon/wire/socket.h"

namespace fineserve::proxy {

// Carries DaemonAdmission's messages to fineserved and back, and calls its
// Tick. Confined to the proxy's thread; must outlive
// the io_context's run.
class AdmissionChannel {
 public:
  // `folder`: fineserved's runtime folder; `gpu`: of the daemon to talk to, as
  // FindAdmissionPath takes it. `on_open` is called once, when there is a
  // daemon to talk to. All outlive it.
  AdmissionChannel(asio::io_context* io, std::string folder, std::string gpu,
                   DaemonAdmission* admission, std::function<void()> on_open);
  AdmissionChannel(const AdmissionChannel&) = delete;
  AdmissionChannel& operator=(const AdmissionChannel&) = delete;

  // Begins; the work ends with the io_context.
  void Start();

 private:
  asio::awaitable<void> Beat();
  asio::awaitable<void> Listen();
  void Open();
  // Reads what has come, after what is under way now.
  void DrainSoon();
  void Drain();
  void FlushSoon();

  asio::io_context* const io_;
  const std::string folder_;
  const std::string gpu_;
  DaemonAdmission* const admission_;
  const std::function<void()> on_open_;
  absl::optional<wire::ClientSocket> socket_;
  asio::steady_timer flush_timer_;
  bool drains_ = false;   // soon
  bool flushes_ = false;  // soon
  bool told_ = false;     // the log: no daemon was found, or several
};

// The daemon that takes requests for the GPU whose UUID begins so; empty: for
// the only one. NotFound if there is none, FailedPrecondition if there are
// several.
absl::StatusOr<std::string> FindAdmissionPath(const std::string& folder,
                                              const std::string& gpu);

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_ADMISSION_ADMISSION_CHANNEL_H_
