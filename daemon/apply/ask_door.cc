#include "daemon/apply/ask_door.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "daemon/abi/socket_path.h"
#include "daemon/base/unix_socket.h"
#include "daemon/clock/steady_now.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::apply {
namespace {

absl::Status Silent(const std::string& path) {
  return absl::DeadlineExceededError(
      absl::StrCat("the process behind ", path,
                   " does not answer; it may be stopped or busy"));
}

absl::Status Gone(const std::string& path) {
  return absl::NotFoundError(
      absl::StrCat("no process answers at ", path, ": ", strerror(errno)));
}

// False: the time is over.
bool Await(int fd, short event, absl::Time deadline) {  // NOLINT: poll's type
  const int64_t left = absl::ToInt64Milliseconds(deadline - SteadyNow());
  pollfd ready = {fd, event, 0};
  return left > 0 && poll(&ready, 1, static_cast<int>(left)) > 0;
}

absl::StatusOr<driver::Descriptor> Connect(const std::string& path) {
  char why[abi::kPathBytes + 128];
  if (!abi::IsTrustedPath(path.c_str(), why, sizeof(why))) {
    return absl::PermissionDeniedError(why);
  }
  driver::Descriptor fd(
      socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!base::ConnectUnix(fd.get(), path)) {
    // EAGAIN: so many wait that a socket cannot even connect.
    return errno == EAGAIN ? Silent(path) : Gone(path);
  }
  if (!abi::IsTrustedPeer(fd.get(), path.c_str(), why, sizeof(why))) {
    return absl::PermissionDeniedError(why);
  }
  return fd;
}

absl::Status Write(int fd, absl::string_view text, const std::string& path,
                   absl::Time deadline) {
  while (!text.empty()) {
    const ssize_t n = send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (n > 0) {
      text.remove_prefix(static_cast<size_t>(n));
    } else if (errno != EAGAIN && errno != EINTR) {
      return Gone(path);
    } else if (!Await(fd, POLLOUT, deadline)) {
      return Silent(path);
    }
  }
  shutdown(fd, SHUT_WR);
  return absl::OkStatus();
}

absl::StatusOr<std::string> Read(int fd, const std::string& path,
                                 absl::Time deadline) {
  std::string text;
  char piece[kPieceBytes];
  while (text.size() <= kMostBytes) {
    const ssize_t n = recv(fd, piece, sizeof(piece), 0);
    if (n > 0) {
      text.append(piece, static_cast<size_t>(n));
    } else if (n == 0) {
      return text;
    } else if (errno != EAGAIN && errno != EINTR) {
      return Gone(path);
    } else if (!Await(fd, POLLIN, deadline)) {
      return Silent(path);
    }
  }
  return absl::DataLossError(absl::StrCat("too long an answer from ", path));
}

}  // namespace

absl::StatusOr<Answer> AskDoor(const std::string& path,
                               const Question& question,
                               absl::Duration timeout) {
  const absl::Time deadline = SteadyNow() + timeout;
  const absl::StatusOr<driver::Descriptor> fd = Connect(path);
  if (!fd.ok()) return fd.status();
  const absl::Status written =
      Write(fd->get(), Encode(question), path, deadline);
  if (!written.ok()) return written;
  const absl::StatusOr<std::string> text = Read(fd->get(), path, deadline);
  if (!text.ok()) return text.status();
  absl::StatusOr<Answer> answer = DecodeAnswer(*text);
  if (answer.ok()) return answer;
  return absl::DataLossError(
      absl::StrCat("an answer of the wrong kind from ", path));
}

}  // namespace fineserve::apply
