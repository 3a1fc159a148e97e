#ifndef TOOLS_UP_HTTP_HEALTH_H_
#define TOOLS_UP_HTTP_HEALTH_H_

#include <netdb.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fineserve::fsctl {

// True if some program accepts connections at that address.
bool IsTaken(const std::string& host, uint16_t port, int timeout_ms);

// Asks engines for their health repeatedly. Blocks its thread: for the wait,
// and sometimes for the lookup of a name.
class HealthChecks {
 public:
  enum class Health { kServes, kDoesNot, kUnknownHost };
  struct Server {
    std::string host;  // a name or an address
    uint16_t port = 0;
  };
  struct Answer {
    Health health = Health::kDoesNot;
    uint64_t asked_ns = 0;  // now, or when the question began that is over now
  };
  // Between two lookups of a host.
  static constexpr uint64_t kLookUpNs = 5'000'000'000;
  // The next lookup starts, at the earliest, this many times the duration of
  // the last one after its start, since silent name servers take seconds.
  static constexpr int64_t kLookUpPeriods = 5;
  // Time for an answer. SGLang generates a token first, which takes a second.
  static constexpr int kPatienceMs = 2'000;

  explicit HealthChecks(int patience_ms = kPatienceMs);
  ~HealthChecks();

  // If a lookup is due, looks up the host whose last lookup is the longest ago.
  // A host that answers is not looked up again until it stops answering, and
  // old addresses are kept if a lookup fails.
  void LookUp(const std::vector<Server>& servers, uint64_t now_ns);
  // Asks all servers at once, and waits up to `wait_ms` for answers. A server
  // serves if it answers GET /health with 200. A server that still has time to
  // answer keeps its former result, and is not asked again before that time is
  // over. Results are in the order of `servers`; other servers are forgotten.
  std::vector<Answer> Ask(const std::vector<Server>& servers, uint64_t now_ns,
                          int wait_ms);

 private:
  struct Question;
  using Addresses = std::shared_ptr<addrinfo>;
  struct Host {
    Addresses addresses;
    bool is_name = false;
    uint64_t looked_up_ns = 0;  // 0: never
    bool answers = false;
  };
  Host& HostOf(const Server& server);
  Question* QuestionTo(const Server& server, uint64_t now_ns);
  static void Await(const std::vector<Question*>& questions, int wait_ms);

  const int patience_ms_;
  std::map<std::string, Host> hosts_;
  std::map<std::pair<std::string, uint16_t>, std::unique_ptr<Question>>
      questions_;
  uint64_t next_look_up_ns_ = 0;
};

}  // namespace fineserve::fsctl

#endif  // TOOLS_UP_HTTP_HEALTH_H_
