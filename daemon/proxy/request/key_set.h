#ifndef DAEMON_PROXY_REQUEST_KEY_SET_H_
#define DAEMON_PROXY_REQUEST_KEY_SET_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fineserve::proxy {

// The keys that clients may present. Without any, everybody may come.
class KeySet {
 public:
  KeySet() = default;
  explicit KeySet(std::vector<std::string> keys) : keys_(std::move(keys)) {}

  bool is_open() const { return keys_.empty(); }

  // `authorization` is the field's value: "Bearer KEY". Takes the same time
  // for every wrong key of a length.
  bool Admits(absl::string_view authorization) const;

 private:
  std::vector<std::string> keys_;
};

// One key a line; blank lines and lines that begin with '#' are skipped.
// NotFound if the file cannot be read, InvalidArgument if no key is in it: an
// empty file must not open the door.
absl::StatusOr<KeySet> ReadKeys(const std::string& path);

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_REQUEST_KEY_SET_H_
