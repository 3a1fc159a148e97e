#include "daemon/contract/wire/socket.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/base/errno_status.h"
#include "daemon/contract/abi/socket_path.h"
#include "daemon/contract/wire/message.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::wire {
namespace {

// A daemon of another machine counts as gone after this much silence. It is
// asked, and answers, every second.
constexpr std::chrono::seconds kSilence(5);

absl::Status ZmqError(absl::string_view what, const std::string& path) {
  return absl::UnavailableError(
      absl::StrCat(path, ": ", what, ": ", zmq_strerror(zmq_errno())));
}

// One received frame.
class Frame {
 public:
  Frame() { zmq_msg_init(&message_); }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;
  ~Frame() { zmq_msg_close(&message_); }

  bool Receive(void* socket) {
    return zmq_msg_recv(&message_, socket, ZMQ_DONTWAIT) >= 0;
  }
  bool more() const { return zmq_msg_more(&message_) != 0; }
  std::string bytes() {
    return std::string(static_cast<const char*>(zmq_msg_data(&message_)),
                       zmq_msg_size(&message_));
  }

 private:
  zmq_msg_t message_;
};

void Set(void* socket, int option, int value) {
  zmq_setsockopt(socket, option, &value, sizeof(value));
}

void Set(void* socket, int option, const std::string& text) {
  zmq_setsockopt(socket, option, text.data(), text.size());
}

// Makes the kernels probe each other, since TCP would wait many minutes if a
// link is down. ZeroMQ's heartbeats are unsuitable: after a damaged frame has
// ended a connection, their timer aborts the process (4.3.4, an assertion in
// stream_engine_base.cpp). Also drops a peer that does not finish the
// handshake.
void WatchLink(void* socket) {
  Set(socket, ZMQ_TCP_KEEPALIVE, 1);
  Set(socket, ZMQ_TCP_KEEPALIVE_IDLE, 4);
  Set(socket, ZMQ_TCP_KEEPALIVE_INTVL, 2);
  Set(socket, ZMQ_TCP_KEEPALIVE_CNT, 3);
  Set(socket, ZMQ_HANDSHAKE_IVL, 5000);
  Set(socket, ZMQ_TCP_MAXRT, 10'000);
}

std::string TcpAddress(const std::string& host, uint16_t port) {
  return absl::StrCat("tcp://", host, ":", port);
}

absl::StatusOr<SocketHandle> Open(int type, const std::string& path) {
  SocketHandle handle;
  handle.context = zmq_ctx_new();
  if (handle.context == nullptr) return ZmqError("zmq_ctx_new", path);
  handle.socket = zmq_socket(handle.context, type);
  if (handle.socket == nullptr) return ZmqError("zmq_socket", path);
  zmq_setsockopt(handle.socket, ZMQ_MAXMSGSIZE, &kMessageBytes,
                 sizeof(kMessageBytes));
  Set(handle.socket, ZMQ_LINGER, 0);
  // Limit on the messages for one peer that wait for the kernel. A peer for
  // which more pile up is not reading.
  constexpr int kMostWaiting = 100'000;
  Set(handle.socket, ZMQ_SNDHWM, kMostWaiting);
  Set(handle.socket, ZMQ_RCVHWM, kMostWaiting);
  return handle;
}

int DescriptorOf(const SocketHandle& handle) {
  int fd = -1;
  size_t bytes = sizeof(fd);
  zmq_getsockopt(handle.socket, ZMQ_FD, &fd, &bytes);
  return fd;
}

std::string Address(const std::string& path) {
  return absl::StrCat("ipc://", path);
}

bool SendFrame(void* socket, absl::string_view bytes, int flags) {
  return zmq_send(socket, bytes.data(), bytes.size(), ZMQ_DONTWAIT | flags) >=
         0;
}

}  // namespace

SocketHandle::SocketHandle(SocketHandle&& other) noexcept
    : context(std::exchange(other.context, nullptr)),
      socket(std::exchange(other.socket, nullptr)),
      bound_path(std::exchange(other.bound_path, {})) {}

SocketHandle& SocketHandle::operator=(SocketHandle&& other) noexcept {
  std::swap(context, other.context);
  std::swap(socket, other.socket);
  std::swap(bound_path, other.bound_path);
  return *this;
}

SocketHandle::~SocketHandle() {
  if (!bound_path.empty()) unlink(bound_path.c_str());
  if (socket != nullptr) zmq_close(socket);
  if (context != nullptr) zmq_ctx_term(context);
}

absl::StatusOr<ServerSocket> ServerSocket::Bind(const std::string& path) {
  absl::StatusOr<SocketHandle> handle = Open(ZMQ_ROUTER, path);
  if (!handle.ok()) return handle.status();
  Set(handle->socket, ZMQ_ROUTER_MANDATORY, 1);  // a lost peer is an error
  unlink(path.c_str());
  if (zmq_bind(handle->socket, Address(path).c_str()) != 0) {
    return ZmqError("bind", path);
  }
  handle->bound_path = path;
  // ZeroMQ leaves the mode to the umask. Until this call, the folder keeps the
  // socket private.
  if (chmod(path.c_str(), 0600) != 0) {
    return base::ErrnoStatus(path + ": chmod 600");
  }
  return ServerSocket(*std::move(handle));
}

absl::Status ServerSocket::AlsoBind(const std::string& host, uint16_t port,
                                    const KeyFolder& keys) {
  const absl::StatusOr<KeyPair> own = keys.Own();
  if (!own.ok()) return own.status();
  absl::StatusOr<std::unique_ptr<KeyGate>> gate =
      KeyGate::Open(handle_.context, handle_.socket, keys);
  if (!gate.ok()) return gate.status();
  // Without a gate ZeroMQ would let every peer in, so the gate exists from
  // before the port is open until the socket is read for the last time.
  gate_ = *std::move(gate);
  // A socket's options apply to later binds; the Unix path that is already
  // bound is not affected.
  Set(handle_.socket, ZMQ_CURVE_SERVER, 1);
  Set(handle_.socket, ZMQ_CURVE_SECRETKEY, own->secret_key);
  Set(handle_.socket, ZMQ_ZAP_DOMAIN, std::string("fineserve"));
  WatchLink(handle_.socket);
  const std::string at = TcpAddress(host, port);
  if (zmq_bind(handle_.socket, at.c_str()) == 0) return absl::OkStatus();
  absl::Status s = ZmqError("bind", at);
  gate_.reset();
  return s;
}

int ServerSocket::descriptor() const { return DescriptorOf(handle_); }

absl::optional<ServerSocket::Incoming> ServerSocket::Receive() {
  Frame peer;
  while (peer.Receive(handle_.socket)) {
    Frame body;
    if (!peer.more() || !body.Receive(handle_.socket)) continue;
    if (!body.more()) return Incoming{peer.bytes(), body.bytes()};
    while (body.more() && body.Receive(handle_.socket)) {
    }  // more parts than a message of ours has
  }
  return absl::nullopt;
}

bool ServerSocket::HasIncoming() const {
  int events = 0;
  size_t bytes = sizeof(events);
  zmq_getsockopt(handle_.socket, ZMQ_EVENTS, &events, &bytes);
  return (events & ZMQ_POLLIN) != 0;
}

bool ServerSocket::Send(const std::string& peer, absl::string_view bytes) {
  return SendFrame(handle_.socket, peer, ZMQ_SNDMORE) &&
         SendFrame(handle_.socket, bytes, 0);
}

absl::StatusOr<ClientSocket> ClientSocket::Connect(const std::string& path) {
  // ZeroMQ connects in the background whenever necessary, so only the folder's
  // permissions restrict which processes may listen. In a folder that belongs
  // to this user alone, only this user and root can.
  char why[abi::kPathBytes + 128];
  if (!abi::IsTrustedPath(path.c_str(), why, sizeof(why))) {
    return absl::PermissionDeniedError(why);
  }
  absl::StatusOr<SocketHandle> handle = Open(ZMQ_DEALER, path);
  if (!handle.ok()) return handle.status();
  Set(handle->socket, ZMQ_IMMEDIATE, 1);  // no queue without a connection
  // Interval of ZeroMQ's connection attempts, in ms, so that a restarted daemon
  // is found soon.
  Set(handle->socket, ZMQ_RECONNECT_IVL, 100);
  if (zmq_connect(handle->socket, Address(path).c_str()) != 0) {
    return ZmqError("connect", path);
  }
  return ClientSocket(*std::move(handle));
}

absl::StatusOr<ClientSocket> ClientSocket::Connect(const RemoteDaemon& daemon,
                                                   const KeyPair& own) {
  const std::string at = TcpAddress(daemon.host, daemon.port);
  if (!IsKey(daemon.key)) {
    return absl::InvalidArgumentError(
        absl::StrCat(at, ": its machine has no key here"));
  }
  absl::StatusOr<SocketHandle> handle = Open(ZMQ_DEALER, at);
  if (!handle.ok()) return handle.status();
  Set(handle->socket, ZMQ_IMMEDIATE, 1);
  Set(handle->socket, ZMQ_RECONNECT_IVL, 100);
  Set(handle->socket, ZMQ_RECONNECT_IVL_MAX, 2000);
  Set(handle->socket, ZMQ_CONNECT_TIMEOUT, 2000);
  Set(handle->socket, ZMQ_CURVE_SERVERKEY, daemon.key);
  Set(handle->socket, ZMQ_CURVE_PUBLICKEY, own.public_key);
  Set(handle->socket, ZMQ_CURVE_SECRETKEY, own.secret_key);
  WatchLink(handle->socket);
  if (zmq_connect(handle->socket, at.c_str()) != 0) {
    return ZmqError("connect", at);
  }
  ClientSocket socket(*std::move(handle));
  socket.remote_ = at;
  socket.key_now_ = daemon.key_now;
  socket.heard_ = std::chrono::steady_clock::now();
  return socket;
}

int ClientSocket::descriptor() const { return DescriptorOf(handle_); }

absl::optional<std::string> ClientSocket::Receive() {
  Frame frame;
  if (!frame.Receive(handle_.socket)) return absl::nullopt;
  if (!remote_.empty()) heard_ = std::chrono::steady_clock::now();
  std::string bytes = frame.bytes();
  while (frame.more() && frame.Receive(handle_.socket)) bytes.clear();
  return bytes;
}

void ClientSocket::ConnectAgainIfSilent() {
  const auto now = std::chrono::steady_clock::now();
  if (remote_.empty() || now - heard_ < kSilence) return;
  heard_ = now;
  zmq_disconnect(handle_.socket, remote_.c_str());
  const std::string key = key_now_ ? key_now_() : "";
  if (IsKey(key)) Set(handle_.socket, ZMQ_CURVE_SERVERKEY, key);
  zmq_connect(handle_.socket, remote_.c_str());
}

bool ClientSocket::Send(absl::string_view bytes) {
  ConnectAgainIfSilent();
  return SendFrame(handle_.socket, bytes, 0);
}

}  // namespace fineserve::wire
