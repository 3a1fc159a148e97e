#ifndef DAEMON_WIRE_KEY_GATE_H_
#define DAEMON_WIRE_KEY_GATE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "daemon/wire/keys.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::wire {

// Who may connect to a CURVE server's socket: answers ZeroMQ's questions (ZAP,
// RFC 27) by the trusted keys of a folder, as its file says at that moment, and
// counts who was refused: unknown keys, no keys, a wrong key of the server's,
// and bytes that are no handshake. Has a thread, which ends with this object;
// that must be before the socket's end, and in its thread.
class KeyGate {
 public:
  // `context` and `socket` are ZeroMQ's. Before the socket is bound to TCP.
  static absl::StatusOr<std::unique_ptr<KeyGate>> Open(void* context,
                                                       void* socket,
                                                       KeyFolder keys);
  KeyGate(const KeyGate&) = delete;
  KeyGate& operator=(const KeyGate&) = delete;
  ~KeyGate();

  // Any thread. Relaxed: a statistic.
  uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }

 private:
  KeyGate(void* socket, KeyFolder keys, void* asked, void* events,
          driver::Descriptor stop);

  void Run();
  void Answer();
  void CountEvent();

  void* const socket_;  // the server's
  const KeyFolder keys_;
  void* const asked_;   // REP; the thread's
  void* const events_;  // PAIR; the thread's
  const driver::Descriptor stop_;
  std::atomic<uint64_t> refused_{0};
  std::thread thread_;
};

}  // namespace fineserve::wire

#endif  // DAEMON_WIRE_KEY_GATE_H_
