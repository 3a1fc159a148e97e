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

// Asks engines for their health. Blocks its thread: for the timeout, and for a
// lookup of a name now and then.
class HealthChecks {
 public:
  enum class Health { kServes, kDoesNot, kUnknownHost };
  struct Server {
    std::string host;  // a name or an address
    uint16_t port = 0;
  };
  // Between two lookups of a host.
  static constexpr uint64_t kLookUpNs = 5'000'000'000;
  // Silent name servers take seconds: at least so many times as long as the
  // last lookup took is from its start to the next one's.
  static constexpr int64_t kLookUpPeriods = 5;

  // Looks up the name, if one is due, of the host for which that is longest
  // ago. A name that answered is not looked up again until it no longer does,
  // and old addresses are better than none.
  void LookUp(const std::vector<Server>& servers, uint64_t now_ns);
  // Asks all at once. A server serves if it answers GET /health with 200 within
  // `timeout_ms`. In the order of `servers`.
  std::vector<Health> Ask(const std::vector<Server>& servers, int timeout_ms);

 private:
  using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;
  struct Host {
    Addresses addresses = {nullptr, &freeaddrinfo};
    bool is_name = false;
    uint64_t looked_up_ns = 0;  // 0: never
    bool answers = false;
  };
  Host& HostOf(const Server& server);

  std::map<std::string, Host> hosts_;
  uint64_t next_look_up_ns_ = 0;
};

}  // namespace fineserve::fsctl

#endif  // TOOLS_UP_HTTP_HEALTH_H_
