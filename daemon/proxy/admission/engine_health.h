#ifndef DAEMON_PROXY_ADMISSION_ENGINE_HEALTH_H_
#define DAEMON_PROXY_ADMISSION_ENGINE_HEALTH_H_

#include "daemon/proxy/admission/daemon_admission.h"
#include "daemon/proxy/http/socket_io.h"

namespace fineserve::proxy {

// Asks each engine of one GPU for its /health every second and tells
// DaemonAdmission whether it serves. Confined to the proxy's thread; must
// outlive the io_context's run.
class EngineHealth {
 public:
  // Both outlive it.
  EngineHealth(asio::io_context* io, DaemonAdmission* admission);
  EngineHealth(const EngineHealth&) = delete;
  EngineHealth& operator=(const EngineHealth&) = delete;

  // Asks for the first time now. The work ends with the io_context.
  void Start();

 private:
  asio::awaitable<void> Run();
  void AskAll();

  asio::io_context* const io_;
  DaemonAdmission* const admission_;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_ADMISSION_ENGINE_HEALTH_H_
