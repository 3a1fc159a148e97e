#ifndef TOOLS_UP_HTTP_HEALTH_H_
#define TOOLS_UP_HTTP_HEALTH_H_

#include <netdb.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace fineserve::fsctl {

// True if some program accepts connections there.
bool IsTaken(const std::string& host, uint16_t port, int timeout_ms);

// Asks engines for their health. Blocks its thread, for the timeout and, for
// one of the hosts that do not answer, for a lookup of its name.
class HealthChecks {
 public:
  enum class Health { kServes, kDoesNot, kUnknownHost };
  struct Server {
    std::string host;  // a name or an address
    uint16_t port = 0;
  };
  // Between two lookups of a host. A name server that is silent takes a second.
  static constexpr uint64_t kLookUpNs = 5'000'000'000;

  // Asks all at once. A server serves if it answers GET /health with 200 within
  // `timeout_ms`. In the order of `servers`.
  std::vector<Health> Ask(const std::vector<Server>& servers, int timeout_ms,
                          uint64_t now_ns);

 private:
  using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;
  struct Host {
    Addresses addresses = {nullptr, &freeaddrinfo};
    bool is_name = false;
    uint64_t looked_up_ns = 0;  // 0: never
    bool answers = false;
  };

  // Null: the host is not known, or not yet. A name that answered is not looked
  // up again until it no longer does, and old addresses are better than none.
  const addrinfo* Find(const Server& server, uint64_t now_ns,
                       bool* may_look_up);

  std::map<std::string, Host> hosts_;  // by "host:port"
};

}  // namespace fineserve::fsctl

#endif  // TOOLS_UP_HTTP_HEALTH_H_
