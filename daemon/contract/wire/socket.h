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
  // Returns the present key, if it can change; empty if there is none. May be
  // null.
  std::function<std::string()> key_now = nullptr;
};

// A ZeroMQ context and one socket of it. ZeroMQ's own thread does the I/O.
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

  // Replaces any file at `path`: the caller holds the GPU's lock.
  static absl::StatusOr<ServerSocket> Bind(const std::string& path);
  // Takes messages at a TCP address as well, only from machines that `keys`
  // trusts (CURVE). An error if this machine has no keys.
  absl::Status AlsoBind(const std::string& host, uint16_t port,
                        const KeyFolder& keys);
  // Number of connections refused there, by cause.
  FaultCounts refused() const {
    return gate_ == nullptr ? FaultCounts{} : gate_->refused();
  }
  // Why it refuses all machines there; empty if it does not.
  std::string trouble() const {
    return gate_ == nullptr ? "" : gate_->trouble();
  }

  int descriptor() const;
  absl::optional<Incoming> Receive();
  bool HasIncoming() const;
  // False if the peer has gone or reads too slowly: the message is dropped.
  bool Send(const std::string& peer, absl::string_view bytes);

 private:
  explicit ServerSocket(SocketHandle handle) : handle_(std::move(handle)) {}

  SocketHandle handle_;
  std::unique_ptr<KeyGate> gate_;  // ends before the socket; null: no TCP
};

// A proxy's, a leader's or fsctl's end. Connects, and reconnects, in the
// background. Confined to one thread. No call blocks; descriptor() is as
// ServerSocket's.
class ClientSocket {
 public:
  // PermissionDenied if another user can put a socket at `path`.
  static absl::StatusOr<ClientSocket> Connect(const std::string& path);
  // Connects to a daemon of another machine, by CURVE with this machine's `own`
  // keys. An address at which another program listens looks like one without a
  // listener.
  static absl::StatusOr<ClientSocket> Connect(const RemoteDaemon& daemon,
                                              const KeyPair& own);

  int descriptor() const;
  absl::optional<std::string> Receive();
  // False while there is no connection: nothing is kept for later.
  bool Send(absl::string_view bytes);

 private:
  explicit ClientSocket(SocketHandle handle) : handle_(std::move(handle)) {}
  // Connects again if the daemon is silent. ZeroMQ itself restores a connection
  // that broke, but never one that ended by bytes outside its protocol, such as
  // a damaged frame of CURVE: the daemon would then be silent forever. The same
  // is true if its machine has other keys now.
  void ConnectAgainIfSilent();

  SocketHandle handle_;
  std::string remote_;  // the other machine's address; empty: of this one
  std::function<std::string()> key_now_;
  std::chrono::steady_clock::time_point heard_;
};

}  // namespace fineserve::wire

#endif  // DAEMON_CONTRACT_WIRE_SOCKET_H_
