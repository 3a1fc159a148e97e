#ifndef DAEMON_CONTRACT_ABI_TRANSPORT_H_
#define DAEMON_CONTRACT_ABI_TRANSPORT_H_

// One message on the wire: a datagram with descriptors attached. The shim uses
// it inside foreign processes, hence libc only and errno for errors.

#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "daemon/contract/abi/messages.h"

namespace fineserve::abi {

// A received datagram. Owns its descriptors and closes those that were not
// taken. Can be reused for the next datagram; not thread-safe.
class Received {
 public:
  Received() = default;
  Received(const Received&) = delete;
  Received& operator=(const Received&) = delete;
  ~Received() { Clear(); }

  // Receives one datagram (blocking or not, as the socket is). Returns 0, or
  // errno; EPIPE when the peer has closed. On success everything below
  // describes this datagram; its content has not been checked.
  int ReceiveFrom(int socket);

  size_t bytes() const { return bytes_; }
  // True if the kernel dropped descriptors (MSG_CTRUNC) because this process
  // is near its limit of open files.
  bool descriptors_lost() const { return descriptors_lost_; }
  uint32_t descriptor_count() const { return descriptor_count_; }
  // Ownership of descriptor i passes to the caller.
  int TakeDescriptor(uint32_t i);

  // Returns the sender as reported by the kernel; its pid is 0 if the socket
  // lacks SO_PASSCRED.
  const ucred& sender() const { return sender_; }

  // Returns the header, or null if the datagram is too short, oversized, has
  // another magic, or states a wrong length.
  const MessageHeader* header() const;

  // Copies the message if it is a whole M of this abi_version.
  template <typename M>
  bool As(M* out) const {
    const MessageHeader* h = header();
    if (h == nullptr || h->type != M::kType || bytes_ != sizeof(M) ||
        h->abi_version != kAbiVersion) {
      return false;
    }
    memcpy(out, buffer_, sizeof(M));
    return true;
  }

 private:
  void Clear();
  void CollectControl(msghdr* message);

  alignas(8) char buffer_[kMaxMessageBytes];
  size_t bytes_ = 0;
  bool truncated_ = false;
  bool descriptors_lost_ = false;
  uint32_t descriptor_count_ = 0;
  int descriptors_[kMaxDescriptorsPerMessage];
  ucred sender_ = {};
};

// Sends `bytes` of `message` and duplicates of `descriptors` (the caller keeps
// its own). Never raises SIGPIPE. Returns 0 or errno: EAGAIN when a
// non-blocking socket is full, ETOOMANYREFS when too many descriptors of this
// user are in flight.
int SendBytes(int socket, const void* message, size_t bytes,
              const int* descriptors, uint32_t descriptor_count);

template <typename M>
int Send(int socket, const M& message, const int* descriptors = nullptr,
         uint32_t descriptor_count = 0) {
  return SendBytes(socket, &message, sizeof(M), descriptors, descriptor_count);
}

// Copies at most N - 1 characters and adds the NUL. Fixed char fields only.
template <size_t N>
void CopyText(char (&to)[N], const char* from) {
  const size_t n = strnlen(from, N - 1);
  memcpy(to, from, n);
  memset(to + n, 0, N - n);
}

// True if a fixed char field from a peer is NUL-terminated.
template <size_t N>
bool IsTerminated(const char (&text)[N]) {
  return memchr(text, 0, N) != nullptr;
}

}  // namespace fineserve::abi

#endif  // DAEMON_CONTRACT_ABI_TRANSPORT_H_
