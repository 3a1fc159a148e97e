#ifndef DAEMON_PROXY_REQUEST_KEY_SET_H_
#define DAEMON_PROXY_REQUEST_KEY_SET_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fineserve::proxy {

// The rights of a client.
enum class Standing {
  kStranger,  // nothing: it has no valid key
  kClient,    // ask
  kTrusted,   // and say how it is to be served
};

// The API keys that clients may present. An empty set trusts every client.
class KeySet {
 public:
  KeySet() = default;
  // `trusted` are keys like the others.
  explicit KeySet(std::vector<std::string> keys,
                  std::vector<std::string> trusted = {})
      : keys_(std::move(keys)), trusted_(std::move(trusted)) {}

  bool is_open() const { return keys_.empty() && trusted_.empty(); }

  // Takes the same time for all wrong keys of the same length.
  Standing Of(absl::string_view key) const;
  // `authorization` is the field's value: "Bearer KEY".
  Standing OfBearer(absl::string_view authorization) const;

 private:
  std::vector<std::string> keys_;
  std::vector<std::string> trusted_;
};

// One key per line, with the word "trusted" behind it if it is; blank lines and
// lines that begin with '#' are skipped. NotFound if the file cannot be read,
// InvalidArgument if a line has another word, or if no key is in it: an empty
// file must not admit every client.
absl::StatusOr<KeySet> ReadKeys(const std::string& path);

// One line if users other than the file's own can read it, with the fix; else
// empty.
std::string WarnOfReaders(const std::string& path);

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_REQUEST_KEY_SET_H_
