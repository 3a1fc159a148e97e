#include "daemon/proxy/admission/admission_link.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "daemon/base/errno_status.h"
#include "daemon/base/log/log.h"
#include "daemon/base/unix_socket.h"
#include "daemon/contract/abi/socket_path.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::proxy {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Protocol = asio::local::stream_protocol;

constexpr size_t kReadBytes = 16 << 10;
// Limit on unsent bytes: a daemon that lets more pile up is not reading.
constexpr size_t kMostUnsentBytes = 16 << 20;
// First pause between two attempts. Heuristic: short, so that a restarted
// daemon is found soon.
constexpr std::chrono::milliseconds kFirstPause(10);
constexpr std::chrono::milliseconds kLongestPause(160);

// OK if only this user and root can listen at `path`.
absl::Status Trust(const std::string& path) {
  char why[abi::kPathBytes + 128];
  if (abi::IsTrustedPath(path.c_str(), why, sizeof(why))) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(why);
}

// Returns Unavailable while there is no listener. Never waits: asio's connect
// would, for a listener whose queue is full.
absl::StatusOr<driver::Descriptor> ConnectTo(const std::string& path) {
  if (absl::Status s = Trust(path); !s.ok()) return s;
  driver::Descriptor fd(
      socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!base::ConnectUnix(fd.get(), path)) {
    return base::Cannot("connect to", path);
  }
  char why[abi::kPathBytes + 128];
  if (!abi::IsTrustedPeer(fd.get(), path.c_str(), why, sizeof(why))) {
    return absl::PermissionDeniedError(why);
  }
  return fd;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PathLink>> PathLink::Connect(
    asio::io_context* io, std::string path, Hearer hearer) {
  if (absl::Status s = Trust(path); !s.ok()) return s;
  std::unique_ptr<PathLink> link(
      new PathLink(io, std::move(path), std::move(hearer)));
  link->Open();
  return link;
}

PathLink::PathLink(asio::io_context* io, std::string path, Hearer hearer)
    : io_(io),
      path_(std::move(path)),
      hearer_(std::move(hearer)),
      socket_(*io),
      retry_(*io),
      pause_(kFirstPause) {}

void PathLink::Open() {
  absl::StatusOr<driver::Descriptor> fd = ConnectTo(path_);
  if (!fd.ok()) {
    if (!absl::IsUnavailable(fd.status())) Warn(fd.status());
    OpenLater();
    return;
  }
  socket_.assign(Protocol(), fd->Release());
  socket_.non_blocking(true);
  unsent_ = wire::ZmtpOpening();
  Write();
  Listen();
}

void PathLink::OpenLater() {
  retry_.expires_after(pause_);
  pause_ = std::min(2 * pause_, kLongestPause);
  retry_.async_wait([this](error_code e) {
    if (!e) Open();
  });
}

void PathLink::Close() {
  error_code ignored;
  socket_.close(ignored);
  reader_ = wire::ZmtpReader();
  received_ = ByteBuffer();
  unsent_.clear();
  OpenLater();
}

// Warns once about each trouble, which may last.
void PathLink::Warn(const absl::Status& s) {
  if (s == warned_) return;
  warned_ = s;
  log::Warning("{}", std::string(s.message()));
}

bool PathLink::Send(absl::string_view bytes) {
  if (!reader_.ready() || unsent_.size() > kMostUnsentBytes) return false;
  wire::AppendZmtpMessage(bytes, &unsent_);
  WriteSoon();
  return true;
}

// Writes once the present callback, and those that are due with it, have
// returned.
void PathLink::WriteSoon() {
  if (std::exchange(write_set_, true)) return;
  asio::post(*io_, [this] {
    write_set_ = false;
    Write();
  });
}

void PathLink::Write() {
  if (!socket_.is_open() || write_set_ || unsent_.empty()) return;
  error_code e;
  unsent_.erase(0, socket_.write_some(asio::buffer(unsent_), e));
  if (e && e != asio::error::would_block) {
    Close();
  } else if (!unsent_.empty()) {
    write_set_ = true;
    socket_.async_wait(Protocol::socket::wait_write, [this](error_code) {
      write_set_ = false;
      Write();
    });
  }
}

void PathLink::Listen() {
  if (!socket_.is_open()) return;
  socket_.async_wait(Protocol::socket::wait_read, [this](error_code e) {
    if (e) return;
    Receive();
    Listen();
  });
}

void PathLink::Receive() {
  bool full = true;
  while (full && socket_.is_open()) {
    error_code e;
    const size_t n = socket_.read_some(
        asio::buffer(received_.Prepare(kReadBytes), kReadBytes), e);
    received_.Commit(n);
    full = n == kReadBytes;
    if (e == asio::error::would_block) return;
    if (e || !Understand()) Close();
  }
}

bool PathLink::Understand() {
  const bool was_ready = reader_.ready();
  const absl::StatusOr<size_t> taken =
      reader_.Read(received_.bytes(), hearer_.on_message, &unsent_);
  if (!taken.ok()) {
    ++garbled_;
    Warn(absl::InvalidArgumentError(
        absl::StrCat(path_, ": closing the connection to what listens there: ",
                     taken.status().message())));
    return false;
  }
  received_.Consume(*taken);
  if (!was_ready && reader_.ready()) {
    pause_ = kFirstPause;
    hearer_.on_connected();
  }
  if (!unsent_.empty()) WriteSoon();
  return unsent_.size() <= 2 * kMostUnsentBytes;  // pings without end
}

SocketLink::SocketLink(asio::io_context* io, wire::ClientSocket socket,
                       Hearer hearer)
    : io_(io),
      hearer_(std::move(hearer)),
      socket_(std::move(socket)),
      // A duplicate, because the socket's descriptor belongs to ZeroMQ.
      readable_(*io, dup(socket_.descriptor())) {
  Listen();
}

void SocketLink::Listen() {
  readable_.async_wait(asio::posix::stream_descriptor::wait_read,
                       [this](error_code e) {
                         if (e) return;
                         Receive();
                         Listen();
                       });
}

bool SocketLink::Send(absl::string_view bytes) {
  if (!socket_.Send(bytes)) return false;
  // ZeroMQ may have swallowed the signal that something can be read.
  ReceiveSoon();
  return true;
}

void SocketLink::Receive() {
  while (const absl::optional<std::string> bytes = socket_.Receive()) {
    hearer_.on_message(*bytes);
  }
}

// Receives once the present callback has returned.
void SocketLink::ReceiveSoon() {
  if (std::exchange(posted_, true)) return;
  asio::post(*io_, [this] {
    posted_ = false;
    Receive();
  });
}

}  // namespace fineserve::proxy
