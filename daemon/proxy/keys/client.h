#ifndef DAEMON_PROXY_KEYS_CLIENT_H_
#define DAEMON_PROXY_KEYS_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "daemon/base/http/api_error.h"

namespace fineserve::proxy {

// A client that is known by its API keys, and its terms.
struct Client {
  std::string name = {};  // empty: neither counted nor limited
  // True if it may say how it is served: priority, SLOs and tenant, without
  // limit.
  bool trusted = false;
  // May use the admin port from another machine.
  bool operates = false;
  std::vector<std::string> models = {};  // that it may ask for; empty: all
  uint32_t requests_per_minute = 0;      // 0: no limit, as the next two
  uint64_t tokens_per_day = 0;           // prompt and output, by the day of UTC
  uint32_t parallel = 0;                 // requests at a time
  absl::optional<int> priority = {};  // its requests', and the most it may say
  uint32_t slo_ttft_ms = 0;           // the shortest it may say; 0: none
  uint32_t slo_tpot_ms = 0;
  absl::Time expires = absl::InfiniteFuture();

  bool operator==(const Client&) const = default;
  bool MayAskFor(absl::string_view model) const;
  // True if its requests count against some limit.
  bool IsLimited() const {
    return requests_per_minute != 0 || tokens_per_day != 0 || parallel != 0;
  }
};

// The clients of a proxy, by their keys. Without any key every client is
// trusted. Immutable, so any thread may read it.
class KeySet {
 public:
  using Held = std::pair<std::string, std::shared_ptr<const Client>>;

  KeySet() = default;
  explicit KeySet(std::vector<Held> keys) : keys_(std::move(keys)) {}

  bool is_open() const { return keys_.empty(); }
  const std::vector<Held>& keys() const { return keys_; }

  // Null if no client has this key. Takes the same time for all wrong keys of
  // the same length.
  std::shared_ptr<const Client> Of(absl::string_view key) const;
  // `authorization` is the value of the header field: "Bearer KEY".
  std::shared_ptr<const Client> OfBearer(absl::string_view authorization) const;

  // True if a client may use the admin port: it is on this machine, or there
  // are no keys with `operates`, or it has such a key, as a bearer token or as
  // the password that a browser asks for (RFC 7617).
  bool MayOperate(bool is_local, absl::string_view authorization,
                  absl::Time now) const;

  // Those with a name, each once.
  std::vector<std::shared_ptr<const Client>> Named() const;

 private:
  std::vector<Held> keys_;
};

// Returns the error (401) for a request with this client's key, or with null
// for no valid key; nullopt if it is served.
absl::optional<ApiError> RefuseByKey(const Client* client, absl::Time now);

// Reads lines of a key and its client's terms; blank lines and lines that begin
// with '#' are skipped:
//
//   sk-1                                a client without a name
//   sk-2 trusted
//   sk-3 name=alice models=chat,code tokens_per_day=1000000
//   sk-4 operator
//   $BOB_KEY name=bob requests_per_minute=60 parallel=4 expires=2027-01-01
//
// A key that begins with '$' names an environment variable that holds it. Keys
// of one name are one client, whose terms are equal: so one key can replace
// another. NotFound if the file cannot be read; InvalidArgument, with the
// line's number, for a word that is not known here, or if there is no key: an
// empty file must not admit every client.
absl::StatusOr<KeySet> ReadKeys(const std::string& path);

// Returns one line, with the fix, if users other than the file's owner can read
// it; else empty. A file that root owns may be readable by our group.
std::string WarnOfReaders(const std::string& path);

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_KEYS_CLIENT_H_
