#ifndef DAEMON_FINESERVED_ADMISSION_PROXY_BOOK_H_
#define DAEMON_FINESERVED_ADMISSION_PROXY_BOOK_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "daemon/contract/wire/message_types.h"
#include "daemon/scheduling/local/local_scheduler.h"

namespace fineserve::admission {

// The proxies that have greeted this daemon, each with its latest word about
// the engines, and the requests that they have here: a proxy counts its own,
// the scheduler all of them.
//
// Invariant: a request has an Origin exactly while its proxy's `requests` names
// it, so that each side finds the other. Times are CLOCK_MONOTONIC, ns.
// Confined to a thread.
class ProxyBook {
 public:
  struct Trouble {
    std::string what;
    uint64_t since_ns = 0;
  };
  struct Proxy {
    uint64_t heard_ns = 0;
    bool lost = false;                        // a message did not reach it
    bool has_told = false;                    // all that it runs is known
    uint64_t plan_number = 0;                 // that it follows
    std::map<std::string, bool> serves;       // by engine
    std::set<std::string> stopped;            // engines, by an operator
    std::map<std::string, Trouble> troubles;  // by engine, if it has one
    // For each engine that does not serve, the time since which it has not.
    std::map<std::string, uint64_t> silent_ns;
    uint64_t unscheduled = 0;  // requests, by its own word
    std::unordered_map<uint64_t, sched::RequestId> requests;  // by its own id
  };
  struct Origin {
    std::string peer;
    uint64_t request;
    sched::ModelId model;
    sched::Micros since = 0;
    std::string name = {};  // its x-request-id
  };

  const std::map<std::string, Proxy>& all() const { return proxies_; }
  bool empty() const { return proxies_.empty(); }
  bool Has(const std::string& peer) const { return proxies_.count(peer) != 0; }
  // Returns null if the peer has not greeted this daemon, or was dropped since.
  Proxy* Find(const std::string& peer);
  const Origin* FindOrigin(sched::RequestId id) const;

  // True if each proxy that has greeted has also listed its running requests,
  // which it does in its second greeting.
  bool AllHaveTold() const;
  // Returns the oldest plan that a proxy follows; UINT64_MAX without proxies.
  uint64_t OldestPlan() const;

  // Replaces what is known from the proxy about the engines, and adds the proxy
  // if it is new.
  Proxy* Greet(const std::string& peer, const wire::HelloT& hello,
               uint64_t now_ns);
  void Drop(const std::string& peer);

  // Gives a proxy's request an id for the scheduler; nullopt if the request
  // already has one.
  absl::optional<sched::RequestId> Enter(Proxy* from, Origin origin);
  void Forget(sched::RequestId id);
  // Forgets all requests of the proxy, waiting and running, and returns them.
  std::vector<sched::RequestId> ForgetAll(Proxy* from);

  // True if any proxy says that the engine serves.
  bool Serves(const std::string& engine) const;
  bool IsStopped(const std::string& engine) const;
  // Returns when the last proxy lost the engine; 0 if no proxy says.
  uint64_t SilentSince(const std::string& engine) const;
  // Returns each trouble of the engine, with the earliest time since which a
  // proxy has known it.
  std::map<std::string, uint64_t> TroublesOf(const std::string& engine) const;

 private:
  std::map<std::string, Proxy> proxies_;  // by peer
  std::unordered_map<sched::RequestId, Origin> origins_;
  uint64_t last_request_ = 0;
};

}  // namespace fineserve::admission

#endif  // DAEMON_FINESERVED_ADMISSION_PROXY_BOOK_H_
