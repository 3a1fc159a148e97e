#include "daemon/contract/abi/observer_link.h"

#include <dirent.h>
#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/errno_status.h"
#include "daemon/base/unix_socket.h"
#include "daemon/contract/abi/printable.h"
#include "daemon/contract/abi/socket_path.h"
#include "daemon/contract/abi/transport.h"
#include "daemon/contract/abi/version.h"

namespace fineserve::abi {
namespace {

constexpr uint32_t kHelloSequence = 1;

absl::StatusCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::StatusCode::kNotFound;
    case EACCES:
    case EPERM:
      return absl::StatusCode::kPermissionDenied;
    case EAGAIN:
    case ETIMEDOUT:
      return absl::StatusCode::kDeadlineExceeded;
    case ECONNREFUSED:
      return absl::StatusCode::kUnavailable;
    case EPIPE:
    case ECONNRESET:
      return absl::StatusCode::kAborted;
    default:
      return absl::StatusCode::kUnknown;
  }
}

absl::Status Errno(int error, absl::string_view path, absl::string_view what) {
  const std::string at = absl::StrCat(path, ": ", what);
  return absl::Status(CodeOf(error),
                      error == EAGAIN ? at + ": no answer within the time limit"
                                      : base::WithErrno(at, error));
}

absl::StatusCode CodeOf(RefusalCode code) {
  switch (code) {
    case RefusalCode::kVersion:
      return absl::StatusCode::kFailedPrecondition;
    case RefusalCode::kNotPermitted:
      return absl::StatusCode::kPermissionDenied;
    case RefusalCode::kCapacity:
    case RefusalCode::kPoolExhausted:
      return absl::StatusCode::kResourceExhausted;
    default:
      return absl::StatusCode::kInvalidArgument;
  }
}

// Returns a connected blocking socket with time limits that the kernel
// enforces. connect() also obeys SO_SNDTIMEO if the daemon's backlog is full.
absl::StatusOr<driver::Descriptor> Connect(const std::string& path,
                                           absl::Duration timeout) {
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": this path is too long for a socket"));
  }
  char why[kPathBytes + 128];
  if (!IsTrustedPath(path.c_str(), why, sizeof(why))) {
    return access(path.c_str(), F_OK) == 0 ? absl::PermissionDeniedError(why)
                                           : absl::NotFoundError(why);
  }
  driver::Descriptor fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Errno(errno, path, "socket");
  const timeval limit = absl::ToTimeval(timeout);
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  if (!base::ConnectUnix(fd.get(), path)) {
    return Errno(errno, path, "connect");
  }
  if (!IsTrustedPeer(fd.get(), path.c_str(), why, sizeof(why))) {
    return absl::PermissionDeniedError(why);
  }
  return fd;
}

absl::Status OtherVersion(absl::string_view path, uint32_t theirs) {
  return absl::FailedPreconditionError(
      absl::StrCat("fineserved at ", path, " speaks ABI version ", theirs,
                   ", this program version ", kAbiVersion));
}

absl::Status NotADaemon(absl::string_view path, absl::string_view what) {
  return absl::DataLossError(
      absl::StrCat(path, ": no fineserved listens here: ", what));
}

absl::Status ToStatus(const Refused& refused, absl::string_view path) {
  if (refused.code == RefusalCode::kVersion &&
      refused.daemon_abi_version != kAbiVersion) {
    return OtherVersion(path, refused.daemon_abi_version);
  }
  return absl::Status(CodeOf(refused.code),
                      absl::StrCat("fineserved at ", path,
                                   " refused: ", Printable(refused.text)));
}

// Copies the Welcome. For any other message, returns an error that describes
// it.
absl::Status Interpret(const Received& received, absl::string_view path,
                       Welcome* welcome) {
  const MessageHeader* header = received.header();
  if (header == nullptr) return NotADaemon(path, "the answer has no header");
  if (header->abi_version != kAbiVersion) {
    return OtherVersion(path, header->abi_version);
  }
  if (header->sequence != kHelloSequence) {
    return NotADaemon(path, "the answer belongs to another request");
  }
  Refused refused;
  if (received.As(&refused)) return ToStatus(refused, path);
  if (!received.As(welcome))
    return NotADaemon(path, "the answer is not a Welcome");
  if (received.descriptors_lost()) {
    return absl::UnknownError(absl::StrCat(
        path,
        ": this process may not take the slab table: raise its limit of open "
        "files; under SELinux, give it the daemon's label"));
  }
  if (received.descriptor_count() < 1) {
    return NotADaemon(path, "the Welcome carries no slab table");
  }
  return absl::OkStatus();
}

Hello MakeHello(Role role, const std::string& engine_name) {
  auto hello = MakeMessage<Hello>(kHelloSequence);
  hello.role = role;
  CopyText(hello.engine_name, engine_name.c_str());
  hello.pid = static_cast<uint32_t>(getpid());
  return hello;
}

absl::StatusOr<ObserverLink> Greet(const std::string& path, const Hello& hello,
                                   absl::Duration timeout) {
  absl::StatusOr<driver::Descriptor> fd = Connect(path, timeout);
  if (!fd.ok()) return fd.status();
  if (const int error = Send(fd->get(), hello); error != 0) {
    return Errno(error, path, "Hello");
  }
  Received received;
  if (const int error = received.ReceiveFrom(fd->get()); error != 0) {
    return Errno(error, path, "Welcome");
  }
  ObserverLink link{};
  if (absl::Status s = Interpret(received, path, &link.welcome); !s.ok()) {
    return s;
  }
  link.socket = *std::move(fd);
  link.table.Reset(received.TakeDescriptor(0));
  return link;
}

}  // namespace

absl::StatusOr<ObserverLink> ConnectObserver(const std::string& path,
                                             absl::Duration timeout) {
  return Greet(path, MakeHello(Role::kObserver, ""), timeout);
}

absl::StatusOr<ObserverLink> ConnectMember(const std::string& path,
                                           const std::string& engine_name,
                                           absl::Duration timeout) {
  return Greet(path, MakeHello(Role::kMember, engine_name), timeout);
}

}  // namespace fineserve::abi
