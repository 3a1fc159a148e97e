#include "daemon/contract/wire/key_gate.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace fineserve::wire {
namespace {

constexpr char kQuestions[] = "inproc://zeromq.zap.01";  // given by RFC 27
constexpr char kEvents[] = "inproc://fineserve.key_gate";
// Excludes ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL; see ConnectionWatch.
constexpr int kWatched = ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED |
                         ZMQ_EVENT_HANDSHAKE_FAILED_AUTH |
                         ZMQ_EVENT_DISCONNECTED;
// An event's first frame: its number and a value, in the host's byte order.
constexpr size_t kEventBytes = sizeof(uint16_t) + sizeof(uint32_t);
// Layout of a ZAP request (RFC 27): version, request, domain, address,
// identity, mechanism, credentials.
constexpr size_t kRequest = 1, kMechanism = 5, kKey = 6, kFrames = 7;

// Receives all frames of a message that has come.
std::vector<std::string> ReceiveAll(void* socket) {
  std::vector<std::string> frames;
  for (bool more = true; more;) {
    zmq_msg_t frame;
    zmq_msg_init(&frame);
    if (zmq_msg_recv(&frame, socket, ZMQ_DONTWAIT) < 0) {
      zmq_msg_close(&frame);
      return frames;
    }
    frames.emplace_back(static_cast<const char*>(zmq_msg_data(&frame)),
                        zmq_msg_size(&frame));
    more = zmq_msg_more(&frame) != 0;
    zmq_msg_close(&frame);
  }
  return frames;
}

// True if neither the peer nor the kernel has ended the connection.
bool IsEstablished(const driver::Descriptor& connection) {
  tcp_info info = {};
  socklen_t bytes = sizeof(info);
  return getsockopt(connection.get(), IPPROTO_TCP, TCP_INFO, &info, &bytes) ==
             0 &&
         info.tcpi_state == TCP_ESTABLISHED;
}

}  // namespace

absl::StatusOr<std::unique_ptr<KeyGate>> KeyGate::Open(void* context,
                                                       void* socket,
                                                       KeyFolder keys) {
  driver::Descriptor stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  void* const asked = zmq_socket(context, ZMQ_REP);
  void* const events = zmq_socket(context, ZMQ_PAIR);
  const bool good = asked != nullptr && events != nullptr && stop.get() >= 0 &&
                    zmq_bind(asked, kQuestions) == 0 &&
                    zmq_socket_monitor(socket, kEvents, kWatched) == 0 &&
                    zmq_connect(events, kEvents) == 0;
  if (good) {
    return std::unique_ptr<KeyGate>(
        new KeyGate(socket, std::move(keys), asked, events, std::move(stop)));
  }
  const std::string why = zmq_strerror(zmq_errno());
  if (asked != nullptr) zmq_close(asked);
  if (events != nullptr) zmq_close(events);
  return absl::UnavailableError(absl::StrCat("cannot guard a socket: ", why));
}

KeyGate::KeyGate(void* socket, KeyFolder keys, void* asked, void* events,
                 driver::Descriptor stop)
    : socket_(socket),
      keys_(std::move(keys)),
      asked_(asked),
      events_(events),
      stop_(std::move(stop)),
      thread_([this] { Run(); }) {}

KeyGate::~KeyGate() {
  // Stops the monitor, because the other end of `events_` would wait for a
  // reader.
  zmq_socket_monitor(socket_, nullptr, 0);
  const uint64_t one = 1;
  if (write(stop_.get(), &one, sizeof(one)) != sizeof(one)) return;
  thread_.join();
  for (void* socket : {asked_, events_}) {
    const int at_once = 0;
    zmq_setsockopt(socket, ZMQ_LINGER, &at_once, sizeof(at_once));
    zmq_close(socket);
  }
}

void KeyGate::Run() {
  for (;;) {
    std::array<zmq_pollitem_t, 3> items = {
        {{asked_, 0, ZMQ_POLLIN, 0},
         {events_, 0, ZMQ_POLLIN, 0},
         {nullptr, stop_.get(), ZMQ_POLLIN, 0}}};
    if (zmq_poll(items.data(), items.size(), -1) < 0) {
      if (zmq_errno() == EINTR) continue;
      return;
    }
    if (items[2].revents != 0) return;
    if (items[0].revents != 0) Answer();
    if (items[1].revents != 0) TakeEvent();
  }
}

void KeyGate::Answer() {
  const std::vector<std::string> question = ReceiveAll(asked_);
  if (question.empty()) return;
  std::string machine;
  if (question.size() == kFrames && question[kMechanism] == "CURVE") {
    machine = MachineOf(KeyOfBytes(question[kKey]));
  }
  const std::string request =
      question.size() > kRequest ? question[kRequest] : "";
  const std::array<std::string, 6> answer = {
      "1.0",
      request,
      machine.empty() ? "400" : "200",
      machine.empty() ? "this key is not trusted" : "OK",
      machine,
      ""};
  for (size_t i = 0; i < answer.size(); ++i) {
    const int more = i + 1 < answer.size() ? ZMQ_SNDMORE : 0;
    zmq_send(asked_, answer[i].data(), answer[i].size(), more | ZMQ_DONTWAIT);
  }
}

std::string KeyGate::MachineOf(const std::string& key) {
  const auto trusted = keys_.Trusted();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    trouble_ = std::string(trusted.status().message());
  }
  if (!trusted.ok() || key.empty()) return "";
  const auto found =
      std::find_if(trusted->begin(), trusted->end(),
                   [&](const auto& entry) { return entry.second == key; });
  return found == trusted->end() ? "" : found->first;
}

void KeyGate::TakeEvent() {
  // The second frame is the address at which this end listens.
  const std::vector<std::string> frames = ReceiveAll(events_);
  if (frames.size() != 2 || frames[0].size() != kEventBytes) return;
  // The socket in the folder asks for no keys.
  if (!absl::StartsWith(frames[1], "tcp://")) return;
  uint16_t event;
  int32_t value;
  memcpy(&event, frames[0].data(), sizeof(event));
  memcpy(&value, frames[0].data() + sizeof(event), sizeof(value));
  const absl::optional<ConnectionFault> fault = FaultOf(event, value);
  if (!fault) return;
  refused_[static_cast<size_t>(*fault)].fetch_add(1, std::memory_order_relaxed);
}

absl::optional<ConnectionFault> KeyGate::FaultOf(int event, int value) {
  switch (event) {
    case ZMQ_EVENT_ACCEPTED:
      watch_.Accepted(value);
      // Copies the descriptor, since ZeroMQ closes its own before we can
      // examine it. (ZeroMQ may already have closed it: then the copy is
      // invalid, or of another connection, which ZeroMQ reports next.)
      connections_[value].Reset(fcntl(value, F_DUPFD_CLOEXEC, 0));
      return absl::nullopt;
    case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
      watch_.Settled();
      return absl::nullopt;
    case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
      // The connection ends later, when its peer has read the reason.
      watch_.Settled();
      return ConnectionFault::kUntrusted;
    case ZMQ_EVENT_DISCONNECTED: {
      const bool by_this_end = IsEstablished(connections_[value]);
      connections_.erase(value);
      return watch_.Ended(value, by_this_end);
    }
    default:
      return absl::nullopt;
  }
}

FaultCounts KeyGate::refused() const {
  FaultCounts counts;
  for (size_t i = 0; i < kConnectionFaults; ++i) {
    counts[i] = refused_[i].load(std::memory_order_relaxed);
  }
  return counts;
}

std::string KeyGate::trouble() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return trouble_;
}

}  // namespace fineserve::wire
