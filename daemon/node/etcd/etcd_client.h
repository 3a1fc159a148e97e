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
#include "absl/strings/string_view.h"

namespace fineserve::etcd {

// The bodies that etcd's JSON gateway takes and returns (etcd's rpc.proto as
// JSON: 64-bit numbers are strings, bytes are base64, and zero and false values
// are left out). Pure. An answer is checked before it is used: InvalidArgument
// if it is malformed.

struct Entry {
  std::string key;
  std::string value;
  int64_t create_revision = 0;  // of the write that made the key
  int64_t mod_revision = 0;     // of the last write
  int64_t lease = 0;            // 0: none
};

// The cluster that answers, and the revision of its answer.
struct Header {
  uint64_t cluster = 0;
  int64_t revision = 0;
};

// A transaction's condition: the key's create_revision, or 0 for a key that
// does not exist.
struct CreatedAt {
  std::string key;
  int64_t revision = 0;
};

struct Write {
  std::string key;
  std::string value;
  int64_t lease = 0;
};

// If all conditions in `when` hold, all of `puts` and `deletes` are carried
// out; otherwise none.
struct Txn {
  std::vector<CreatedAt> when;
  std::vector<Write> puts;
  std::vector<std::string> deletes;
};

std::string RangeBody(absl::string_view prefix);
std::string TxnBody(const Txn& txn);
std::string GrantBody(int64_t lease, int64_t ttl_s);
std::string LeaseBody(int64_t lease);  // keep-alive and revoke

struct RangeAnswer {
  Header header;
  std::vector<Entry> entries;  // by key
};
absl::StatusOr<RangeAnswer> ParseRange(absl::string_view body);

struct TxnAnswer {
  Header header;
  bool succeeded = false;  // the conditions held
};
absl::StatusOr<TxnAnswer> ParseTxn(absl::string_view body);

struct LeaseAnswer {
  Header header;
  int64_t ttl_s = 0;  // 0: etcd knows no such lease
};
absl::StatusOr<LeaseAnswer> ParseGrant(absl::string_view body);
absl::StatusOr<LeaseAnswer> ParseKeepAlive(absl::string_view body);
absl::StatusOr<Header> ParseHeader(absl::string_view body);

// Turns a refusal into a status, by etcd's error code and message. `status` is
// the HTTP status. Unavailable if the body is not etcd's.
absl::Status ParseError(int status, absl::string_view body);

// Address at which a member of etcd accepts clients.
struct Endpoint {
  std::string host;
  uint16_t port = 0;
};

struct ClientSettings {
  std::vector<Endpoint> endpoints;  // of one cluster; at least one
  // Time limits for one member's answer, and for a call over all members.
  std::chrono::milliseconds each = std::chrono::milliseconds(1000);
  std::chrono::milliseconds whole = std::chrono::milliseconds(2500);
  // Time after which the first endpoint is asked again, although it did not
  // answer before.
  std::chrono::milliseconds return_to_first = std::chrono::seconds(10);
};

// A client of etcd v3 through its JSON gateway (design note 0031). A call asks
// the member that answered last, then the others; if none answers in time it is
// Unavailable, and a write may then have been done or not. A Range asks the
// first member again now and then, or all clients would end up at the last of
// several members that are restarted in turn. Calls may overlap. Confined to
// the context's thread; calls must end before it.
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

  // Returns all keys that begin with `prefix`, as a majority of the members has
  // them.
  Eventually<absl::StatusOr<RangeAnswer>> Range(std::string prefix);
  Eventually<absl::StatusOr<TxnAnswer>> Commit(Txn txn);
  // Grants a lease with the id `lease`, which the caller draws. Returns its TTL
  // in seconds, which etcd may have made longer.
  Eventually<absl::StatusOr<int64_t>> Grant(int64_t lease, int64_t ttl_s);
  // Renews the lease. NotFound if it has lapsed.
  Eventually<absl::StatusOr<int64_t>> KeepAlive(int64_t lease);
  Eventually<absl::Status> Revoke(int64_t lease);

  uint64_t cluster() const { return cluster_; }  // 0: none has answered
  // Accepts answers only from this cluster from now on.
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
  // Returns the body of an answer with HTTP status 200.
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
