#ifndef TOOLS_UP_HTTP_HEALTH_H_
#define TOOLS_UP_HTTP_HEALTH_H_

#include <cstdint>
#include <string>

namespace fineserve::fsctl {

// True if some program accepts connections there.
bool IsTaken(const std::string& host, uint16_t port, int timeout_ms);

// True if the server answers GET /health with 200 within `timeout_ms`.
bool IsHealthy(const std::string& host, uint16_t port, int timeout_ms);

}  // namespace fineserve::fsctl

#endif  // TOOLS_UP_HTTP_HEALTH_H_
