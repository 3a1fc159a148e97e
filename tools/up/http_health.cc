#include "tools/up/http_health.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <resolv.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/config/health_probe.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::fsctl {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;
using Health = HealthChecks::Health;
using Clock = std::chrono::steady_clock;

// As much of an answer as says whether the server is well.
constexpr size_t kAnswerBytes = 16;

Addresses Resolve(const std::string& host, uint16_t port, int flags) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found);
  return {found, &freeaddrinfo};
}

// A name server that is silent is asked once, for a second.
Addresses LookUp(const std::string& host, uint16_t port) {
  res_init();
  _res.retrans = 1;
  _res.retry = 1;
  return Resolve(host, port, 0);
}

// SO_SNDTIMEO bounds connect as well.
driver::Descriptor Connect(const addrinfo& to, int timeout_ms) {
  driver::Descriptor fd(socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval patience = {timeout_ms / 1000, timeout_ms % 1000 * 1000};
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  if (connect(fd.get(), to.ai_addr, to.ai_addrlen) != 0) fd.Reset();
  return fd;
}

// One question on its way.
struct Question {
  std::string request;
  const addrinfo* next = nullptr;  // address to try if this one fails
  driver::Descriptor socket = {};  // not valid: it is over
  size_t sent = 0;                 // bytes of the request
  std::string answer = {};
  Health health = Health::kDoesNot;
};

// Begins to connect to the next address that lets it, if there is one.
void Connect(Question* q) {
  q->socket.Reset();
  while (!q->socket.valid() && q->next != nullptr) {
    const addrinfo* to = std::exchange(q->next, q->next->ai_next);
    q->socket.Reset(
        socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const bool begun =
        connect(q->socket.get(), to->ai_addr, to->ai_addrlen) == 0 ||
        errno == EINPROGRESS;
    if (!begun) q->socket.Reset();
  }
}

// True if there is more to send or to receive.
bool Proceed(Question* q) {
  if (q->sent < q->request.size()) {
    const ssize_t n = send(q->socket.get(), q->request.data() + q->sent,
                           q->request.size() - q->sent, MSG_NOSIGNAL);
    if (n > 0) q->sent += static_cast<size_t>(n);
    return n > 0 || errno == EAGAIN;
  }
  char piece[kAnswerBytes];
  const ssize_t n = recv(q->socket.get(), piece, sizeof(piece), 0);
  if (n < 0) return errno == EAGAIN;
  q->answer.append(piece, static_cast<size_t>(n));
  const bool serves = config::SaysHealthy(q->answer).value_or(false);
  q->health = serves ? Health::kServes : Health::kDoesNot;
  return n > 0 && q->answer.size() < kAnswerBytes;
}

void Turn(Question* q) {
  if (Proceed(q)) return;
  if (q->sent != 0) q->next = nullptr;  // it was connected
  Connect(q);
}

// Until all are over, or the time is.
void Await(std::vector<Question>* questions, Clock::time_point deadline) {
  for (;;) {
    std::vector<pollfd> ready;
    for (const Question& q : *questions) {
      const bool sends = q.sent < q.request.size();
      ready.push_back({q.socket.get(),
                       static_cast<short>(sends ? POLLOUT : POLLIN),  // NOLINT
                       0});
    }
    const bool all_over =
        std::all_of(questions->begin(), questions->end(),
                    [](const Question& q) { return !q.socket.valid(); });
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - Clock::now());
    if (all_over || left.count() <= 0) return;
    if (poll(ready.data(), ready.size(), static_cast<int>(left.count())) <= 0) {
      return;
    }
    for (size_t i = 0; i < ready.size(); ++i) {
      if (ready[i].revents != 0) Turn(&(*questions)[i]);
    }
  }
}

std::string KeyOf(const HealthChecks::Server& server) {
  return absl::StrCat(server.host, ":", server.port);
}

}  // namespace

bool IsTaken(const std::string& host, uint16_t port, int timeout_ms) {
  const Addresses addresses = LookUp(host, port);
  return addresses != nullptr && Connect(*addresses, timeout_ms).valid();
}

const addrinfo* HealthChecks::Find(const Server& server, uint64_t now_ns,
                                   bool* may_look_up) {
  Host& host = hosts_[KeyOf(server)];
  if (host.addresses == nullptr) {
    host.addresses = Resolve(server.host, server.port, AI_NUMERICHOST);
    host.is_name = host.addresses == nullptr;
  }
  const bool is_due =
      host.looked_up_ns == 0 || now_ns - host.looked_up_ns >= kLookUpNs;
  if (host.is_name && !host.answers && is_due &&
      std::exchange(*may_look_up, false)) {
    host.looked_up_ns = now_ns;
    Addresses found = LookUp(server.host, server.port);
    if (found != nullptr) host.addresses = std::move(found);
  }
  return host.addresses.get();
}

std::vector<Health> HealthChecks::Ask(const std::vector<Server>& servers,
                                      int timeout_ms, uint64_t now_ns) {
  bool may_look_up = true;
  std::vector<Question> questions;
  for (const Server& server : servers) {
    Question& q = questions.emplace_back();
    q.request = config::HealthRequest(server.host, server.port);
    q.next = Find(server, now_ns, &may_look_up);
    const bool is_unknown =
        q.next == nullptr && hosts_.at(KeyOf(server)).looked_up_ns != 0;
    if (is_unknown) q.health = Health::kUnknownHost;
    Connect(&q);
  }
  // Lookups may have taken a while.
  Await(&questions, Clock::now() + std::chrono::milliseconds(timeout_ms));
  std::vector<Health> answers;
  for (size_t i = 0; i < servers.size(); ++i) {
    answers.push_back(questions[i].health);
    hosts_.at(KeyOf(servers[i])).answers =
        questions[i].health == Health::kServes;
  }
  return answers;
}

}  // namespace fineserve::fsctl
