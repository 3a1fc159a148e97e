#ifndef TOOLS_LAB_ENGINES_TINYSERVE_HTTP_HTTP_SERVER_H_
#define TOOLS_LAB_ENGINES_TINYSERVE_HTTP_HTTP_SERVER_H_

#include <cstdint>
#include <functional>
#include <string>

#include "tools/lab/engines/tinyserve/http/service.h"

namespace tinyserve {

struct ServerEvents {
  std::function<void(uint16_t port)> listening;  // clients can connect
  // Called once the last answer has been sent. When it returns, the engine must
  // have let go of all requests.
  std::function<void()> ending;
};

// Serves HTTP/1.1 on host:port (port 0: any) until SIGINT or SIGTERM. If a
// client disconnects before its answer is complete, aborts its request. If it
// cannot listen, returns false and says why.
bool ServeHttp(const std::string& host, uint16_t port, Service* service,
               const ServerEvents& events, std::string* why);

}  // namespace tinyserve

#endif  // TOOLS_LAB_ENGINES_TINYSERVE_HTTP_HTTP_SERVER_H_
