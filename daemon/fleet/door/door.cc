#include "daemon/fleet/door/door.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "daemon/base/clock/clock.h"
#include "daemon/base/errno_status.h"
#include "daemon/base/unix_socket.h"
#include "daemon/base/whole_file.h"
#include "daemon/contract/abi/socket_path.h"
#include "kernels/driver/descriptor.h"
#include "kernels/driver/descriptor_limit.h"

namespace fineserve::apply {
namespace {

constexpr char kSuffix[] = ".fleet";
constexpr int kBacklog = 16;
constexpr int kMostEvents = 16;
constexpr timespec kSignPeriod = {0, 250'000'000};

absl::StatusOr<driver::Descriptor> ListenAt(const std::string& path) {
  driver::Descriptor listener(
      socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!base::BindUnix(listener.get(), path)) return base::Cannot("bind", path);
  if (listen(listener.get(), kBacklog) != 0) {
    return base::Cannot("listen on", path);
  }
  return listener;
}

timespec Monotonic() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now;
}

driver::Descriptor SignAlarm() {
  driver::Descriptor alarm(
      timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  const itimerspec period = {kSignPeriod, kSignPeriod};
  if (timerfd_settime(alarm.get(), 0, &period, nullptr) != 0) return {};
  return alarm;
}

bool Watch(const driver::Descriptor& events, int operation, int fd,
           uint32_t what) {
  epoll_event event = {};
  event.events = what;
  event.data.fd = fd;
  return epoll_ctl(events.get(), operation, fd, &event) == 0;
}

absl::Status Silent(const std::string& path) {
  return absl::DeadlineExceededError(
      absl::StrCat("the process behind ", path,
                   " does not answer; it may be stopped or busy"));
}

absl::Status Gone(const std::string& path) {
  return base::ErrnoStatus("no process answers at " + path,
                           absl::StatusCode::kNotFound);
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
    // EAGAIN means that the queue is full, because the process does not accept
    // connections.
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

absl::StatusOr<std::unique_ptr<Door>> Door::Open(const std::string& folder,
                                                 const std::string& name,
                                                 Reply reply) {
  mkdir(folder.c_str(), 0700);  // if it fails, so does what follows
  const std::string path = absl::StrCat(folder, "/", name, kSuffix);
  char why[abi::kPathBytes + 128];
  if (!abi::IsTrustedPath(path.c_str(), why, sizeof(why))) {
    return absl::PermissionDeniedError(why);
  }
  absl::StatusOr<driver::Descriptor> listener = ListenAt(path);
  if (!listener.ok()) return listener.status();
  driver::Descriptor alarm = SignAlarm();
  driver::Descriptor events(epoll_create1(EPOLL_CLOEXEC));
  if (!events.valid() ||
      !Watch(events, EPOLL_CTL_ADD, listener->get(), EPOLLIN) ||
      !Watch(events, EPOLL_CTL_ADD, alarm.get(), EPOLLIN)) {
    return base::Cannot("watch", path);
  }
  return std::unique_ptr<Door>(new Door(path, *std::move(listener),
                                        std::move(alarm), std::move(events),
                                        std::move(reply)));
}

Door::Door(std::string path, driver::Descriptor listener,
           driver::Descriptor alarm, driver::Descriptor events, Reply reply)
    : path_(std::move(path)),
      listener_(std::move(listener)),
      alarm_(std::move(alarm)),
      events_(std::move(events)),
      reply_(std::move(reply)) {
  SetSignOfLife();
  LookAtDisk();
}

Door::~Door() { unlink(path_.c_str()); }

void Door::Turn() {
  epoll_event events[kMostEvents];
  const int count = epoll_wait(events_.get(), events, kMostEvents, 0);
  for (int i = 0; i < count; ++i) {
    if (events[i].data.fd == listener_.get()) {
      Accept();
      continue;
    }
    if (events[i].data.fd == alarm_.get()) {
      TakeAlarm();
      LookAtDisk();
      // Gives no sign of life if this process cannot accept a client, because
      // it then cannot answer either.
      if (driver::MayAccept(listener_.get())) SetSignOfLife();
      Listen(true);
      continue;
    }
    // A client that was dropped in this turn is already gone.
    const auto client = clients_.find(events[i].data.fd);
    if (client == clients_.end()) continue;
    if (!Serve(&client->second)) clients_.erase(client);
  }
}

void Door::TakeAlarm() {
  uint64_t expirations;
  (void)!read(alarm_.get(), &expirations, sizeof(expirations));
}

// Uses the monotonic clock, because the wall clock may be set while a process
// hangs.
void Door::SetSignOfLife() {
  const timespec times[] = {{0, UTIME_OMIT}, Monotonic()};
  utimensat(AT_FDCWD, path_.c_str(), times, 0);
}

void Door::LookAtDisk() {
  const bool is_full =
      base::FreeBytes(path_).value_or(UINT64_MAX) < base::kFullBelowBytes;
  if (!is_full) full_since_.reset();
  if (is_full && !full_since_) full_since_ = std::chrono::steady_clock::now();
}

void Door::Accept() {
  for (;;) {
    if (!driver::MayAccept(listener_.get())) return Listen(false);
    driver::Descriptor socket(accept4(listener_.get(), nullptr, nullptr,
                                      SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) return;
    char why[abi::kPathBytes + 128];
    const int fd = socket.get();
    if (!abi::IsTrustedPeer(fd, path_.c_str(), why, sizeof(why)) ||
        !Watch(events_, EPOLL_CTL_ADD, fd, EPOLLIN)) {
      continue;
    }
    MakeRoom();
    clients_[fd] = {std::move(socket), "", false, "", ++arrivals_};
  }
}

// Starts to accept clients, or stops until the next sign of life.
void Door::Listen(bool listens) {
  const uint32_t what = listens ? uint32_t{EPOLLIN} : 0;
  Watch(events_, EPOLL_CTL_MOD, listener_.get(), what);
}

void Door::MakeRoom() {
  if (clients_.size() < kMostClients) return;
  clients_.erase(std::min_element(clients_.begin(), clients_.end(),
                                  [](const auto& a, const auto& b) {
                                    return a.second.number < b.second.number;
                                  }));
}

bool Door::Serve(Client* client) {
  return client->answers ? Write(client) : Read(client);
}

bool Door::Read(Client* client) {
  char piece[kPieceBytes];
  ssize_t n;
  while ((n = recv(client->socket.get(), piece, sizeof(piece), 0)) > 0) {
    client->question.append(piece, static_cast<size_t>(n));
    if (client->question.size() > kMostBytes) return false;
  }
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  const absl::StatusOr<Question> question = DecodeQuestion(client->question);
  Answer answer;
  if (question.ok()) {
    answer = reply_(*question);
  } else {
    answer.error = std::string(question.status().message());
  }
  if (full_since_) {
    answer.full_disk_s = absl::ToDoubleSeconds(
        absl::FromChrono(std::chrono::steady_clock::now() - *full_since_));
  }
  client->answer = Encode(answer);
  client->answers = true;
  return Write(client);
}

bool Door::Write(Client* client) {
  ssize_t n;
  while ((n = send(client->socket.get(), client->answer.data(),
                   client->answer.size(), MSG_NOSIGNAL)) > 0) {
    client->answer.erase(0, static_cast<size_t>(n));
    if (client->answer.empty()) return false;
  }
  if (errno != EAGAIN && errno != EINTR) return false;
  return Watch(events_, EPOLL_CTL_MOD, client->socket.get(), EPOLLOUT);
}

std::string ProcessDoor(const std::string& program) {
  return absl::StrCat(program, "-", getpid());
}

bool IsDoorOf(const std::string& path, const std::string& program) {
  return absl::StartsWith(std::filesystem::path(path).filename().string(),
                          program + "-");
}

absl::optional<double> DoorSilence(const std::string& path) {
  struct stat door;
  if (stat(path.c_str(), &door) != 0) return absl::nullopt;
  const timespec now = Monotonic();
  const double silence =
      static_cast<double>(now.tv_sec - door.st_mtim.tv_sec) +
      static_cast<double>(now.tv_nsec - door.st_mtim.tv_nsec) * 1e-9;
  if (silence < 0) return absl::nullopt;
  return silence;
}

std::vector<std::string> ListDoors(const std::string& folder) {
  std::vector<std::string> doors;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == kSuffix) doors.push_back(entry.path());
  }
  std::sort(doors.begin(), doors.end());
  return doors;
}

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
