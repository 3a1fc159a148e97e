#ifndef DAEMON_CONTRACT_WIRE_KEYS_H_
#define DAEMON_CONTRACT_WIRE_KEYS_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fineserve::wire {

// A machine's key pair for CURVE, in ZeroMQ's notation: 40 characters of Z85.
struct KeyPair {
  std::string public_key;
  std::string secret_key;
};
absl::StatusOr<KeyPair> NewKeyPair();
// True if it may be a public key.
bool IsKey(absl::string_view text);
// Returns the text of a key from its 32 bytes on the wire; empty for any other
// number of bytes.
std::string KeyOfBytes(absl::string_view bytes);

// A machine's keys, in a folder of its own:
//
//   secret    0600: "public KEY\nsecret KEY\n"
//   trusted   "NAME KEY\n" for each machine that may connect, and whose daemons
//             are connected to
//
// The files are read again with every call. Stateless; any thread.
class KeyFolder {
 public:
  // Returns $FINESERVE_KEYS, or /etc/fineserve/curve if it is not set.
  static std::string Default();
  explicit KeyFolder(std::string folder) : folder_(std::move(folder)) {}

  const std::string& path() const { return folder_; }
  // Returns the machine's own keys. NotFound if it has none; PermissionDenied
  // if others can read the secret one. Errors say what to do.
  absl::StatusOr<KeyPair> Own() const;
  // Writes the machine's own keys and creates the folder if it is missing.
  // AlreadyExists if there are keys, unless `replace`.
  absl::Status WriteOwn(const KeyPair& keys, bool replace) const;

  // Returns the trusted keys by machine; empty if there is no such file.
  absl::StatusOr<std::map<std::string, std::string>> Trusted() const;
  // Trusts the machine's key instead of any former one. InvalidArgument if the
  // machine's name or the key is invalid.
  absl::Status Trust(const std::string& machine, const std::string& key) const;
  // NotFound if the machine was not trusted.
  absl::Status Distrust(const std::string& machine) const;

 private:
  std::string SecretPath() const { return folder_ + "/secret"; }
  std::string TrustedPath() const { return folder_ + "/trusted"; }
  absl::Status WriteTrusted(
      const std::map<std::string, std::string>& trusted) const;

  std::string folder_;
};

}  // namespace fineserve::wire

#endif  // DAEMON_CONTRACT_WIRE_KEYS_H_
