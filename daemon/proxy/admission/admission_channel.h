#ifndef DAEMON_PROXY_ADMISSION_ADMISSION_CHANNEL_H_
#define DAEMON_PROXY_ADMISSION_ADMISSION_CHANNEL_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "daemon/proxy/admission/admission_link.h"

namespace boost::asio {
class io_context;
}

namespace fineserve::proxy {

class GpuAdmission;

// Carries GpuAdmission's messages to fineserved and back, and calls
// GpuAdmission's Tick. Confined to the proxy's thread. Must outlive the
// io_context's run, but not the exchanges that end with the io_context itself.
class AdmissionChannel {
 public:
  using Connect = std::function<absl::StatusOr<std::unique_ptr<AdmissionLink>>(
      AdmissionLink::Hearer hearer)>;

  // Calls `connect` until it finds the daemon, and then `on_open` once. `io`
  // and `admission` must outlive this object.
  AdmissionChannel(boost::asio::io_context* io, Connect connect,
                   GpuAdmission* admission, std::function<void()> on_open);
  ~AdmissionChannel();

  // Begins to connect; the work ends with the io_context.
  void Start();

 private:
  class Link;
  const std::unique_ptr<Link> link_;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_ADMISSION_ADMISSION_CHANNEL_H_
