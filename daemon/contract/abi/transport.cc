#include "daemon/contract/abi/transport.h"

#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

namespace fineserve::abi {
namespace {

constexpr size_t kDescriptorSpace =
    CMSG_SPACE(sizeof(int) * kMaxDescriptorsPerMessage);
constexpr size_t kControlBytes = kDescriptorSpace + CMSG_SPACE(sizeof(ucred));

}  // namespace

void Received::Clear() {
  for (uint32_t i = 0; i < descriptor_count_; ++i) {
    if (descriptors_[i] >= 0) close(descriptors_[i]);
  }
  descriptor_count_ = 0;
  bytes_ = 0;
  truncated_ = false;
  descriptors_lost_ = false;
  sender_ = {};
}

int Received::ReceiveFrom(int socket) {
  Clear();
  alignas(cmsghdr) char control[kControlBytes];
  iovec iov = {buffer_, sizeof(buffer_)};
  msghdr message = {};
  message.msg_iov = &iov;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t n;
  do {
    n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (n < 0 && errno == EINTR);
  if (n < 0) return errno;
  CollectControl(&message);
  // Every message of ours has a header, so an empty read means that the peer
  // has closed.
  if (n == 0) return EPIPE;
  bytes_ = static_cast<size_t>(n);
  truncated_ = (message.msg_flags & MSG_TRUNC) != 0;
  return 0;
}

void Received::CollectControl(msghdr* message) {
  descriptors_lost_ = (message->msg_flags & MSG_CTRUNC) != 0;
  for (cmsghdr* c = CMSG_FIRSTHDR(message); c != nullptr;
       c = CMSG_NXTHDR(message, c)) {
    if (c->cmsg_level != SOL_SOCKET) continue;
    if (c->cmsg_type == SCM_RIGHTS) {
      const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      memcpy(descriptors_ + descriptor_count_, CMSG_DATA(c),
             count * sizeof(int));
      descriptor_count_ += static_cast<uint32_t>(count);
    } else if (c->cmsg_type == SCM_CREDENTIALS) {
      memcpy(&sender_, CMSG_DATA(c), sizeof(sender_));
    }
  }
}

int Received::TakeDescriptor(uint32_t i) {
  const int fd = descriptors_[i];
  descriptors_[i] = -1;
  return fd;
}

const MessageHeader* Received::header() const {
  if (truncated_ || bytes_ < sizeof(MessageHeader)) return nullptr;
  const auto* h = reinterpret_cast<const MessageHeader*>(buffer_);
  return h->magic == kMessageMagic && h->bytes == bytes_ ? h : nullptr;
}

int SendBytes(int socket, const void* message, size_t bytes,
              const int* descriptors, uint32_t descriptor_count) {
  alignas(cmsghdr) char control[kDescriptorSpace];
  iovec iov = {const_cast<void*>(message), bytes};
  msghdr header = {};
  header.msg_iov = &iov;
  header.msg_iovlen = 1;
  if (descriptor_count > 0) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(sizeof(int) * descriptor_count);
    cmsghdr* c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int) * descriptor_count);
    memcpy(CMSG_DATA(c), descriptors, sizeof(int) * descriptor_count);
  }
  ssize_t n;
  do {
    n = sendmsg(socket, &header, MSG_NOSIGNAL);
  } while (n < 0 && errno == EINTR);
  return n < 0 ? errno : 0;
}

}  // namespace fineserve::abi
