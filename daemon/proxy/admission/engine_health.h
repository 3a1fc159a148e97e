#ifndef DAEMON_PROXY_ADMISSION_ENGINE_HEALTH_H_
#define DAEMON_PROXY_ADMISSION_ENGINE_HEALTH_H_

namespace boost::asio {
class io_context;
}

namespace fineserve::proxy {

class DaemonAdmission;

// Asks each engine of one GPU for its /health every second and tells
// DaemonAdmission whether it serves. Confined to the proxy's thread; must
// outlive the io_context's run.
class EngineHealth {
 public:
  // Both outlive this object.
  EngineHealth(boost::asio::io_context* io, DaemonAdmission* admission)
      : io_(io), admission_(admission) {}
  EngineHealth(const EngineHealth&) = delete;
  EngineHealth& operator=(const EngineHealth&) = delete;

  // Asks for the first time at once. The work ends with the io_context.
  void Start();

 private:
  void AskAll();

  boost::asio::io_context* const io_;
  DaemonAdmission* const admission_;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_ADMISSION_ENGINE_HEALTH_H_
