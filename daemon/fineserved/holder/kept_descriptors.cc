#include "daemon/fineserved/holder/kept_descriptors.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <climits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace fineserve::holder {
namespace {

// Longer messages than ours are cut.
constexpr size_t kMessageBytes = 4096;
constexpr size_t kDescriptorsPerMessage = 8;

struct Notification {
  std::string text;
  pid_t sender = 0;
  driver::Descriptor first;  // others are closed
};

void TakeControl(const cmsghdr* control, Notification* n) {
  if (control->cmsg_level != SOL_SOCKET) return;
  if (control->cmsg_type == SCM_CREDENTIALS) {
    ucred peer;
    memcpy(&peer, CMSG_DATA(control), sizeof(peer));
    n->sender = peer.pid;
  }
  if (control->cmsg_type != SCM_RIGHTS) return;
  const size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
  for (size_t i = 0; i < count; ++i) {
    int fd;
    memcpy(&fd, CMSG_DATA(control) + i * sizeof(fd), sizeof(fd));
    driver::Descriptor owned(fd);
    if (i == 0) n->first = std::move(owned);
  }
}

bool ReceiveOne(int socket, Notification* n) {
  char bytes[kMessageBytes];
  alignas(
      cmsghdr) char controls[CMSG_SPACE(sizeof(ucred)) +
                             CMSG_SPACE(kDescriptorsPerMessage * sizeof(int))];
  iovec part = {bytes, sizeof(bytes)};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = controls;
  message.msg_controllen = sizeof(controls);
  const ssize_t size =
      recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (size < 0) return false;
  n->text.assign(bytes, static_cast<size_t>(size));
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr;
       c = CMSG_NXTHDR(&message, c)) {
    TakeControl(c, n);
  }
  return true;
}

// Returns a socket with a unique address (autobind, unix(7)).
driver::Descriptor BindSomewhere(std::string* address) {
  driver::Descriptor fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  socklen_t bytes = sizeof(sa_family_t);
  const int on = 1;
  if (!fd.valid() ||
      setsockopt(fd.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0 ||
      bind(fd.get(), reinterpret_cast<sockaddr*>(&name), bytes) != 0) {
    return {};
  }
  bytes = sizeof(name);
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&name), &bytes) != 0) {
    return {};
  }
  const size_t length = bytes - offsetof(sockaddr_un, sun_path);
  *address = absl::StrCat(
      "@", absl::string_view(name.sun_path + 1, length > 0 ? length - 1 : 0));
  return fd;
}

}  // namespace

KeptDescriptors KeptDescriptors::Listen() {
  KeptDescriptors kept;
  kept.socket_ = BindSomewhere(&kept.address_);
  return kept;
}

bool KeptDescriptors::Receive(pid_t child, std::string* text) {
  text->clear();
  Notification n;
  if (!ReceiveOne(socket(), &n)) return false;
  if (n.sender == child) Obey(n.text, std::move(n.first), text);
  return true;
}

// Carries out a message. Closes a descriptor that the child does not want
// stored, as BARRIER=1 requires.
void KeptDescriptors::Obey(absl::string_view message,
                           driver::Descriptor descriptor, std::string* text) {
  std::string name = "stored";
  bool store = false;
  bool remove = false;
  for (absl::string_view line : absl::StrSplit(message, '\n')) {
    if (line == "FDSTORE=1") {
      store = true;
    } else if (line == "FDSTOREREMOVE=1") {
      remove = true;
    } else if (absl::ConsumePrefix(&line, "FDNAME=")) {
      name = std::string(line);
    } else if (line != "FDPOLL=0" && line != "BARRIER=1" && !line.empty()) {
      absl::StrAppend(text, line, "\n");
    }
  }
  if (remove) kept_.erase(name);
  if (store && descriptor.valid()) {
    kept_.insert_or_assign(name, std::move(descriptor));
  }
}

bool KeptDescriptors::GiveToChild() const {
  const int end = SD_LISTEN_FDS_START + static_cast<int>(count());
  // First moves the descriptors away, since some may have numbers that others
  // must get.
  std::vector<driver::Descriptor> copies;
  std::string names;
  for (const auto& [name, descriptor] : kept_) {
    absl::StrAppend(&names, names.empty() ? "" : ":", name);
    copies.emplace_back(fcntl(descriptor.get(), F_DUPFD_CLOEXEC, end));
    if (!copies.back().valid()) return false;
  }
  for (size_t i = 0; i < copies.size(); ++i) {
    if (dup2(copies[i].get(), SD_LISTEN_FDS_START + static_cast<int>(i)) < 0) {
      return false;
    }
  }
  setenv("LISTEN_PID", absl::StrCat(getpid()).c_str(), 1);
  setenv("LISTEN_FDS", absl::StrCat(count()).c_str(), 1);
  setenv("LISTEN_FDNAMES", names.c_str(), 1);
  setenv("NOTIFY_SOCKET", address_.c_str(), 1);
  setenv("FDSTORE", absl::StrCat(INT_MAX).c_str(), 1);
  return true;
}

}  // namespace fineserve::holder
