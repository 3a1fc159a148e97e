#ifndef DAEMON_NODE_ETCD_GATEWAY_H_
#define DAEMON_NODE_ETCD_GATEWAY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fineserve::etcd {

// The bodies that etcd's JSON gateway takes and gives (etcd's rpc.proto as
// JSON: 64-bit numbers are strings, bytes are base64, and what is zero or false
// is left out). Pure. An answer is checked before it is used: InvalidArgument
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

// A transaction's condition: the key's create_revision; 0 if there is no such
// key.
struct CreatedAt {
  std::string key;
  int64_t revision = 0;
};

struct Write {
  std::string key;
  std::string value;
  int64_t lease = 0;
};

// If all of `when` hold, all of `puts` and `deletes` are done; else nothing is.
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

// Turns a refusal into a status, by etcd's code and words. `status` is of HTTP.
// Unavailable if the body is not etcd's.
absl::Status ParseError(int status, absl::string_view body);

}  // namespace fineserve::etcd

#endif  // DAEMON_NODE_ETCD_GATEWAY_H_
