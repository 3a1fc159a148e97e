#ifndef DAEMON_NODE_ETCD_ETCD_CLIENT_H_
#define DAEMON_NODE_ETCD_ETCD_CLIENT_H_

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/node/etcd/gateway.h"

namespace fineserve::etcd {

// Address at which a member of etcd takes clients.
struct Endpoint {
  std::string host;
  uint16_t port = 0;
};

struct ClientSettings {
  std::vector<Endpoint> endpoints;  // of one cluster; at least one
  // For one member's answer, and for a call over all members.
  std::chrono::milliseconds each = std::chrono::milliseconds(1000);
  std::chrono::milliseconds whole = std::chrono::milliseconds(2500);
  // After which the first endpoint is asked again, that had not answered.
  std::chrono::milliseconds return_to_first = std::chrono::seconds(10);
};

// A client of etcd v3 through its JSON gateway (design note 0031). A call asks
// the member that answered last, then the others; if none answers in time it is
// Unavailable, and a write may then have been done or not. A Range asks the
// first member again now and then: members that are restarted in turn would
// else leave all clients to the one that was last. Calls may overlap.
// Confined to the context's thread; calls must end before it.
//
// The first answer tells which cluster this is. An answer of another cluster is
// refused (FailedPrecondition) and counted, and the next call begins with
// another member.
class EtcdClient {
 public:
  template <typename T>
  using Eventually = boost::asio::awaitable<T>;

  EtcdClient(boost::asio::io_context* io, ClientSettings settings)
      : io_(*io), settings_(std::move(settings)) {}
  EtcdClient(const EtcdClient&) = delete;
  EtcdClient& operator=(const EtcdClient&) = delete;

  // All keys that begin with `prefix`, as a majority of the members has them.
  Eventually<absl::StatusOr<RangeAnswer>> Range(std::string prefix);
  Eventually<absl::StatusOr<TxnAnswer>> Commit(Txn txn);
  // A lease with the id `lease`, which the caller draws. Returns its TTL, s,
  // which etcd may have made longer.
  Eventually<absl::StatusOr<int64_t>> Grant(int64_t lease, int64_t ttl_s);
  // NotFound if the lease has lapsed.
  Eventually<absl::StatusOr<int64_t>> KeepAlive(int64_t lease);
  Eventually<absl::Status> Revoke(int64_t lease);

  uint64_t cluster() const { return cluster_; }  // 0: none has answered
  // Only this cluster is believed from now on.
  void SetCluster(uint64_t cluster) { cluster_ = cluster; }
  uint64_t strangers() const { return strangers_; }  // answers refused

 private:
  struct Answer {
    absl::Status transport;
    int status = 0;  // of HTTP
    std::string body;
  };

  Eventually<Answer> Post(Endpoint to, std::string path, std::string body,
                          std::chrono::milliseconds limit);
  // The body of an answer with HTTP status 200.
  Eventually<absl::StatusOr<std::string>> Call(std::string path,
                                               std::string body, size_t first);
  size_t FirstToRead();
  absl::Status CheckCluster(const Header& header);

  boost::asio::io_context& io_;
  const ClientSettings settings_;
  size_t first_ = 0;  // the endpoint that is asked first
  std::chrono::steady_clock::time_point return_at_;
  uint64_t cluster_ = 0;
  uint64_t strangers_ = 0;
};

}  // namespace fineserve::etcd

#endif  // DAEMON_NODE_ETCD_ETCD_CLIENT_H_
