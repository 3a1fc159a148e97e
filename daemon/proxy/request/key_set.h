#ifndef DAEMON_PROXY_REQUEST_KEY_SET_H_
#define DAEMON_PROXY_REQUEST_KEY_SET_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fineserve::proxy {

// The API keys that clients may present. An empty set admits every client.
class KeySet {
 public:
  KeySet() = default;
  explicit KeySet(std::vector<std::string> keys) : keys_(std::move(keys)) {}

  bool is_open() const { return keys_.empty(); }

  // Takes the same time for all wrong keys of the same length.
  bool Admits(absl::string_view key) const;
  // `authorization` is the field's value: "Bearer KEY".
  bool AdmitsBearer(absl::string_view authorization) const;

 private:
  std::vector<std::string> keys_;
};

// One key per line; blank lines and lines that begin with '#' are skipped.
// NotFound if the file cannot be read, InvalidArgument if no key is in it: an
// empty file must not admit every client.
absl::StatusOr<KeySet> ReadKeys(const std::string& path);

// One line if users other than the file's own can read it, with the fix; else
// empty.
std::string WarnOfReaders(const std::string& path);

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_REQUEST_KEY_SET_H_
