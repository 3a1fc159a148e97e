#ifndef DAEMON_PROXY_REQUEST_REQUEST_ID_H_
#define DAEMON_PROXY_REQUEST_REQUEST_ID_H_

#include <string>

#include "absl/strings/string_view.h"
#include "daemon/base/http/random_hex.h"

namespace fineserve::proxy {

// Chooses the ids of requests, as X-Request-Id carries them. Confined to a
// thread.
class RequestIds {
 public:
  // Returns the client's id if it is printable and not longer than 128
  // characters, else a new one of 32 hexadecimal digits.
  std::string For(absl::string_view given);

 private:
  RandomHex random_;
};

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_REQUEST_REQUEST_ID_H_
