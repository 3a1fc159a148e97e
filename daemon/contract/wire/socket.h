#ifndef DAEMON_CONTRACT_WIRE_SOCKET_H_
#define DAEMON_CONTRACT_WIRE_SOCKET_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "daemon/contract/wire/connection_watch.h"
#include "daemon/contract/wire/key_gate.h"
#include "daemon/contract/wire/keys.h"

namespace fineserve::wire {

// Address at which a daemon of another machine takes admission messages, and
// the key that proves its identity.
struct RemoteDaemon {
  std::string host;
  uint16_t port = 0;
  std::string key;
  // Returns the daemon's present key, if it can change; empty if there is none.
  // The function may be null.
  std::function<std::string()> key_now = nullptr;
};

// A ZeroMQ context with one socket. ZeroMQ's own thread does the I/O.
struct SocketHandle {
  SocketHandle() = default;
  SocketHandle(SocketHandle&& other) noexcept;
  SocketHandle& operator=(SocketHandle&& other) noexcept;
  ~SocketHandle();

  void* context = nullptr;
  void* socket = nullptr;
  std::string bound_path = {};  // that is removed at the end
};

// The daemon's end: many peers, each with a routing id that ZeroMQ assigns.
// Confined to one thread. No call blocks. Messages that a peer has not read
// when this end closes are lost, even if its machine has received them.
//
// descriptor() becomes readable when something may have happened; ZeroMQ
// signals edges, so after each signal, and after every Send, call Receive until
// it gives nothing.
class ServerSocket {
 public:
  struct Incoming {
    std::string peer;
    std::string bytes;
  };

  // Replaces any file at `path`, which is safe because the caller holds the
  // GPU's lock.
  static absl::StatusOr<ServerSocket> Bind(const std::string& path);
  // Also accepts messages at a TCP address, only from machines that `keys`
  // trusts (CURVE). Returns an error if this machine has no keys.
  absl::Status AlsoBind(const std::string& host, uint16_t port,
                        const KeyFolder& keys);
  // Returns the number of connections refused at the TCP address, by cause.
  FaultCounts refused() const {
    return gate_ == nullptr ? FaultCounts{} : gate_->refused();
  }
  // Returns the reason if every machine is refused at the TCP address;
  // otherwise empty.
  std::string trouble() const {
    return gate_ == nullptr ? "" : gate_->trouble();
  }

  int descriptor() const;
  absl::optional<Incoming> Receive();
  bool HasIncoming() const;
  // Returns false if the peer has gone or reads too slowly. The message is then
  // dropped.
  bool Send(const std::string& peer, absl::string_view bytes);

 private:
  explicit ServerSocket(SocketHandle handle) : handle_(std::move(handle)) {}

  SocketHandle handle_;
  std::unique_ptr<KeyGate> gate_;  // ends before the socket; null: no TCP
};

// A proxy's, a leader's or fsctl's end. Connects and reconnects in the
// background. Confined to one thread. No call blocks; descriptor() works as in
// ServerSocket.
class ClientSocket {
 public:
  // PermissionDenied if another user can put a socket at `path`.
  static absl::StatusOr<ClientSocket> Connect(const std::string& path);
  // Connects to a daemon of another machine, by CURVE with this machine's `own`
  // keys. If another program listens at the address, that looks the same as an
  // address without a listener.
  static absl::StatusOr<ClientSocket> Connect(const RemoteDaemon& daemon,
                                              const KeyPair& own);

  int descriptor() const;
  absl::optional<std::string> Receive();
  // Returns false while there is no connection; the message is then dropped,
  // not kept for later.
  bool Send(absl::string_view bytes);

 private:
  explicit ClientSocket(SocketHandle handle) : handle_(std::move(handle)) {}
  // Reconnects if the daemon is silent. ZeroMQ itself restores a connection
  // that broke, but never one that ended by bytes outside its protocol, such as
  // a damaged CURVE frame: the daemon would then be silent forever. The same
  // happens if the daemon's machine has other keys now.
  void ConnectAgainIfSilent();

  SocketHandle handle_;
  std::string remote_;  // the other machine's address; empty: of this one
  std::function<std::string()> key_now_;
  std::chrono::steady_clock::time_point heard_;
};

}  // namespace fineserve::wire

#endif  // DAEMON_CONTRACT_WIRE_SOCKET_H_
