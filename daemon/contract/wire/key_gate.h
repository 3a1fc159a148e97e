#ifndef DAEMON_CONTRACT_WIRE_KEY_GATE_H_
#define DAEMON_CONTRACT_WIRE_KEY_GATE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "daemon/contract/wire/connection_watch.h"
#include "daemon/contract/wire/keys.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::wire {

// Decides which peers may connect to a CURVE server's socket: answers ZeroMQ's
// questions (ZAP, RFC 27) by the keys that a folder's file trusts at that
// moment, and counts refusals by cause (ConnectionFault). Its thread ends with
// this object, which must be destroyed before the socket and in the socket's
// thread.
class KeyGate {
 public:
  // `context` and `socket` are ZeroMQ's. Must be called before the socket is
  // bound to TCP.
  static absl::StatusOr<std::unique_ptr<KeyGate>> Open(void* context,
                                                       void* socket,
                                                       KeyFolder keys);
  KeyGate(const KeyGate&) = delete;
  KeyGate& operator=(const KeyGate&) = delete;
  ~KeyGate();

  // Any thread. Relaxed: these are only statistics.
  FaultCounts refused() const;
  // Returns why no key at all was trusted at the last connection; empty if the
  // file of trusted keys could be read. Any thread.
  std::string trouble() const;

 private:
  KeyGate(void* socket, KeyFolder keys, void* asked, void* events,
          driver::Descriptor stop);

  void Run();
  void Answer();
  // Returns the machine that has this key; empty if no trusted machine has it.
  std::string MachineOf(const std::string& key);
  void TakeEvent();
  absl::optional<ConnectionFault> FaultOf(int event, int value);

  void* const socket_;  // the server's
  const KeyFolder keys_;
  void* const asked_;   // REP; the thread's
  void* const events_;  // PAIR; the thread's
  const driver::Descriptor stop_;
  // The thread's.
  ConnectionWatch watch_;
  std::map<int, driver::Descriptor> connections_;  // copies, by ZeroMQ's own
  std::array<std::atomic<uint64_t>, kConnectionFaults> refused_ = {};
  mutable std::mutex mutex_;
  std::string trouble_;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace fineserve::wire

#endif  // DAEMON_CONTRACT_WIRE_KEY_GATE_H_
