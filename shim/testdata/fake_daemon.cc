#include "shim/testdata/fake_daemon.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "daemon/contract/abi/engine_scoreboard.h"
#include "daemon/contract/abi/socket_path.h"
#include "daemon/contract/abi/transport.h"
#include "daemon/contract/abi/view_scoreboard.h"

namespace fineserve::shim {
namespace {

int Listen(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  abi::CopyText(address.sun_path, path.c_str());
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  unlink(path.c_str());
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(fd, 8) != 0) {
    perror("fake daemon");
  }
  return fd;
}

}  // namespace

int FakeDaemon::Memfd(const char* name, size_t bytes) {
  const int fd = memfd_create(name, MFD_CLOEXEC);
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) perror(name);
  return fd;
}

FakeDaemon::FakeDaemon(const std::string& folder, const uint8_t (&gpu_uuid)[16],
                       const Options& options)
    : options_(options),
      fault_(options.fault),
      exhausted_(options.exhausted),
      granule_(Memfd("granule", 4096)),
      free_slabs_(options.slab_count) {
  char path[abi::kPathBytes];
  abi::SocketPath(folder.c_str(), gpu_uuid, path);
  path_ = path;
  listener_ = Listen(path_);
  if (pipe(stop_) != 0) perror("pipe");
  thread_ = std::thread(&FakeDaemon::Run, this);
}

FakeDaemon::~FakeDaemon() {
  close(stop_[1]);
  thread_.join();
  close(stop_[0]);
  close(listener_);
  close(granule_);
  if (view_scoreboard_ >= 0) close(view_scoreboard_);
  if (table_descriptor_ >= 0) close(table_descriptor_);
  unlink(path_.c_str());
}

std::vector<uint32_t> FakeDaemon::batch_sizes_asked() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return batch_sizes_;
}

void FakeDaemon::Breathe() { usleep(200); }

void FakeDaemon::Disconnect() {
  const int before = connections_;
  Becomes([&] {
    const int socket = socket_;
    if (socket >= 0) shutdown(socket, SHUT_RDWR);
    return socket < 0 || connections_ > before;
  });
}

// Waits until all messages were handled. The number of unread bytes is read
// first, because a message that has been taken off the socket keeps the daemon
// busy until it has been handled.
void FakeDaemon::CatchUp() const {
  Becomes([&] {
    int bytes = 0;
    const int socket = socket_;
    return socket < 0 ||
           (ioctl(socket, FIONREAD, &bytes) == 0 && bytes == 0 && !busy_);
  });
}

std::vector<uint32_t> FakeDaemon::returned() const {
  CatchUp();
  std::lock_guard<std::mutex> lock(mutex_);
  return returned_;
}

abi::Hello FakeDaemon::last_hello() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return hello_;
}

uint32_t FakeDaemon::free_slabs() const {
  CatchUp();
  std::lock_guard<std::mutex> lock(mutex_);
  return free_slabs_;
}

// Serves one client at a time, until the other end of stop_ is closed.
void FakeDaemon::Run() {
  for (;;) {
    pollfd p[2] = {{stop_[0], 0, 0}, {listener_, POLLIN, 0}};
    poll(p, 2, -1);
    if (p[0].revents != 0) return;
    const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) return;
    ++connections_;
    socket_ = socket;
    Serve(socket);
    socket_ = -1;
    busy_ = false;
    close(socket);
  }
}

void FakeDaemon::Serve(int socket) {
  abi::Received received;
  for (;;) {
    pollfd p[2] = {{stop_[0], 0, 0}, {socket, POLLIN, 0}};
    poll(p, 2, -1);
    busy_ = true;
    if (p[0].revents != 0 || received.ReceiveFrom(socket) != 0 ||
        !Answer(socket, received)) {
      return;
    }
    busy_ = false;
  }
}

bool FakeDaemon::Answer(int socket, const abi::Received& received) {
  abi::Hello hello;
  abi::LeaseRequest lease;
  abi::GranuleRequest granules;
  abi::ReturnRequest back;
  abi::RuleRequest rule;
  abi::RoomRequest room;
  if (received.As(&room)) return AnswerRoom(socket, room);
  if (received.As(&rule)) return AnswerRule(socket, rule);
  if (received.As(&hello)) return AnswerHello(socket, hello);
  if (received.As(&lease)) return AnswerLease(socket, lease);
  if (received.As(&granules)) return AnswerGranules(socket, granules);
  if (received.As(&back)) return AnswerReturn(socket, back);
  abi::ViewRequest view;
  abi::PoolGranuleRequest pool;
  abi::ActivateRequest activate;
  if (received.As(&view)) return AnswerView(socket, view);
  if (received.As(&pool)) return AnswerPoolGranules(socket, pool);
  if (received.As(&activate)) return AnswerActivate(socket, activate);
  return Note(received, socket);
}

bool FakeDaemon::Refuse(int socket, uint32_t sequence, abi::RefusalCode code,
                        const char* text) {
  auto refused = abi::MakeMessage<abi::Refused>(sequence);
  refused.code = code;
  refused.daemon_abi_version = abi::kAbiVersion;
  if (fault_ == Fault::kOtherVersion) {
    refused.daemon_abi_version = abi::kAbiVersion + 1;
    refused.header.abi_version = abi::kAbiVersion + 1;
  }
  abi::CopyText(refused.text, text);
  return abi::Send(socket, refused) == 0;
}

bool FakeDaemon::AnswerHello(int socket, const abi::Hello& hello) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    hello_ = hello;
  }
  const uint32_t sequence = hello.header.sequence;
  if (fault_ == Fault::kSilentAtHello) return true;
  if (fault_ == Fault::kCloseAtFirstHello && connections_ == 1) return false;
  if (fault_ == Fault::kOtherVersion) {
    return Refuse(socket, sequence, abi::RefusalCode::kVersion, "version 7");
  }
  if (fault_ == Fault::kRefuseMember) {
    return Refuse(socket, sequence, abi::RefusalCode::kCapacity,
                  "64 engines are joined already");
  }
  auto welcome = abi::MakeMessage<abi::Welcome>(sequence);
  welcome.epoch = options_.epoch;
  welcome.engine_id = 1;
  welcome.granule_bytes = options_.granule_bytes;
  welcome.granules_per_slab = options_.granules_per_slab;
  welcome.slab_count = options_.slab_count;
  for (uint64_t bytes : options_.declared) {
    welcome.declared_sizes[welcome.declared_size_count++] = bytes;
  }
  welcome.rule_count = static_cast<uint32_t>(options_.rules.size());
  const int fds[2] = {MakeTable(),
                      Memfd("fineserve-scoreboard", abi::kScoreboardBytes)};
  scoreboard_ =
      mmap(nullptr, abi::kScoreboardBytes, PROT_READ, MAP_SHARED, fds[1], 0);
  if (fault_ == Fault::kLoseDescriptors) {
    // poll() refuses more descriptors than the limit, so it is not 0.
    const int next = dup(socket);
    close(next);
    rlimit limit = {};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = static_cast<rlim_t>(std::min({fds[0], fds[1], next}));
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  const bool sent = abi::Send(socket, welcome, fds, 2) == 0;
  close(fds[0]);
  close(fds[1]);
  return sent;
}

bool FakeDaemon::AnswerRule(int socket, const abi::RuleRequest& request) {
  if (fault_ == Fault::kCloseAtRule) return false;
  auto answer = abi::MakeMessage<abi::RuleAnswer>(request.header.sequence);
  answer.index = request.index;
  answer.rule = options_.rules.at(request.index);
  return abi::Send(socket, answer) == 0;
}

bool FakeDaemon::AnswerRoom(int socket, const abi::RoomRequest& request) {
  auto answer = abi::MakeMessage<abi::RoomAnswer>(request.header.sequence);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const size_t n = rooms_.size();
    if (n < options_.room.size()) answer.coming_bytes = options_.room[n];
    rooms_.push_back(request.bytes);
  }
  return abi::Send(socket, answer) == 0;
}

std::vector<uint64_t> FakeDaemon::rooms_asked() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return rooms_;
}

bool FakeDaemon::AnswerLease(int socket, const abi::LeaseRequest& request) {
  ++leases_asked_;
  if (fault_ == Fault::kCloseAtLease) return false;
  if (fault_ == Fault::kSilentAtLease) return true;
  std::lock_guard<std::mutex> lock(mutex_);
  uint32_t sequence = request.header.sequence;
  if (request.slab_count > free_slabs_ && fault_ == Fault::kWaitForSlabs) {
    waiting_ = request;
    return true;
  }
  if (request.slab_count > free_slabs_) {
    return Refuse(socket, sequence, abi::RefusalCode::kPoolExhausted,
                  exhausted_);
  }
  if (fault_ == Fault::kWrongSequenceAtLease) ++sequence;
  free_slabs_ -= request.slab_count;
  lease_slabs_.push_back(request.slab_count);
  auto grant = abi::MakeMessage<abi::LeaseGrant>(sequence);
  grant.lease = static_cast<uint32_t>(lease_slabs_.size());
  grant.slab_count = request.slab_count;
  return abi::Send(socket, grant) == 0;
}

bool FakeDaemon::AnswerGranules(int socket,
                                const abi::GranuleRequest& request) {
  if (fault_ == Fault::kCloseAtGranules) return false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    batch_sizes_.push_back(request.max_count);
  }
  auto batch = abi::MakeMessage<abi::GranuleBatch>(request.header.sequence);
  batch.lease = request.lease;
  if (fault_ == Fault::kWrongGranules) ++batch.lease;
  batch.first = request.first;
  batch.count = request.max_count;
  const std::vector<int> fds(batch.count, granule_);
  return abi::Send(socket, batch, fds.data(), batch.count) == 0;
}

bool FakeDaemon::AnswerReturn(int socket, const abi::ReturnRequest& request) {
  abi::LeaseRequest waiting = {};
  {
    std::lock_guard<std::mutex> lock(mutex_);
    returned_.push_back(request.lease);
    free_slabs_ += lease_slabs_.at(request.lease - 1);
    std::swap(waiting, waiting_);
  }
  if (fault_ == Fault::kSilentAtReturn) return true;
  auto done = abi::MakeMessage<abi::ReturnDone>(request.header.sequence);
  done.lease = request.lease;
  return abi::Send(socket, done) == 0 &&
         (waiting.slab_count == 0 || AnswerLease(socket, waiting));
}

TemporaryFolder::TemporaryFolder() {
  std::string pattern = "/tmp/fineserve-test-XXXXXX";
  path_ = mkdtemp(pattern.data());
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

int FakeDaemon::MakeTable() {
  if (table_descriptor_ >= 0) return dup(table_descriptor_);
  const size_t bytes = abi::TableBytes(options_.slab_count);
  const int fd =
      memfd_create(abi::kTableMemfdName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) perror("table");
  auto* table = static_cast<abi::TableHeader*>(
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  memcpy(table->magic, abi::kTableMagic, sizeof(table->magic));
  table->abi_version = abi::kAbiVersion;
  table->table_bytes = bytes;
  table->epoch = options_.epoch;
  table->engine_capacity = abi::kEngineCapacity;
  table->engines_offset = sizeof(abi::TableHeader);
  table->slabs_offset =
      static_cast<uint32_t>(sizeof(abi::TableHeader) +
                            abi::kEngineCapacity * sizeof(abi::EngineEntry));
  table->granule_bytes = options_.granule_bytes;
  table->granules_per_slab = options_.granules_per_slab;
  table->slab_count = options_.slab_count;
  table->gives_room = options_.room.empty() ? 0 : 1;
  table_ = table;
  if (fault_ != Fault::kShrinkable) {
    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  }
  table_descriptor_ = fd;
  return dup(fd);
}

abi::SlabEntry* FakeDaemon::SlabAt(uint32_t slab) const {
  auto* base = reinterpret_cast<char*>(table());
  return reinterpret_cast<abi::SlabEntry*>(base + table()->slabs_offset) + slab;
}

void FakeDaemon::Regrow(uint32_t slab) {
  SlabAt(slab)->memory.fetch_add(1, std::memory_order_relaxed);
  SetSlab(slab, {});
}

void FakeDaemon::SetSlab(uint32_t slab, abi::SlabWord word, bool tell) {
  auto* base = reinterpret_cast<char*>(table());
  // Release, like the daemon's store: pairs with the shim's acquire of the
  // word.
  SlabAt(slab)->word.store(abi::SlabWord::Pack(word),
                           std::memory_order_release);
  if (!tell) return;
  auto* engines =
      reinterpret_cast<abi::EngineEntry*>(base + table()->engines_offset);
  std::atomic<uint32_t>* changes = &engines[kSlot].changes;
  // Release: publishes the word.
  changes->fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, changes, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void FakeDaemon::SetFreeSince(uint32_t slab, uint64_t since_ns) {
  SlabAt(slab)->since_ns.store(since_ns, std::memory_order_relaxed);
  SetSlab(slab, {abi::SlabState::kFree});
}

FakeDaemon::ViewLog FakeDaemon::views() const {
  CatchUp();
  std::lock_guard<std::mutex> lock(mutex_);
  return views_;
}

bool FakeDaemon::AnswerView(int socket, const abi::ViewRequest& request) {
  if (fault_ == Fault::kRefuseView) {
    return Refuse(socket, request.header.sequence, abi::RefusalCode::kFormat,
                  "slabs of 4 MiB hold no such block");
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    views_.request = request;
  }
  if (fault_ == Fault::kCloseAtView) return false;
  auto answer = abi::MakeMessage<abi::ViewAnswer>(request.header.sequence);
  answer.granules_per_plane = options_.granules_per_slab / request.planes;
  answer.plane_bytes = answer.granules_per_plane * options_.granule_bytes;
  if (fault_ == Fault::kWrongView) answer.plane_bytes += 4096;
  answer.slab_count = options_.slab_count;
  answer.engine_slot = kSlot;
  answer.floor_slabs = options_.floor_slabs;
  answer.cap_slabs =
      options_.cap_slabs != 0 ? options_.cap_slabs : options_.slab_count;
  const int scoreboard = Memfd(abi::kViewScoreboardMemfdName,
                               abi::ViewScoreboardBytes(options_.slab_count));
  const bool sent = abi::Send(socket, answer, &scoreboard, 1) == 0;
  const int before = view_scoreboard_.exchange(scoreboard);
  if (before >= 0) close(before);
  return sent;
}

bool FakeDaemon::AnswerPoolGranules(int socket,
                                    const abi::PoolGranuleRequest& request) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    batch_sizes_.push_back(request.max_count);
    ++pool_batches_;
  }
  if (fault_ == Fault::kSilentAtPoolGranules) return true;
  if (fault_ == Fault::kRefusePoolGranules ||
      (fault_ == Fault::kRefuseGranulesOnce && pool_batches_ == 2)) {
    return Refuse(socket, request.header.sequence,
                  abi::RefusalCode::kUnknownLease, "not yours");
  }
  if (fault_ == Fault::kCloseAtPoolGranules && pool_batches_ >= 2) {
    return false;
  }
  auto batch = abi::MakeMessage<abi::GranuleBatch>(request.header.sequence);
  batch.first = request.first;
  // Sends fewer granules than requested, like a daemon that is short of
  // descriptors.
  batch.count = std::min(request.max_count, options_.most_granules);
  std::vector<int> fds;
  for (uint32_t i = 0; i < batch.count; ++i) {
    const uint32_t number = request.first + i + 1;
    fds.push_back(Memfd("granule", 4096));
    if (pwrite(fds.back(), &number, sizeof(number), 0) < 0) perror("granule");
  }
  const bool sent = abi::Send(socket, batch, fds.data(), batch.count) == 0;
  for (int fd : fds) close(fd);
  return sent;
}

bool FakeDaemon::AnswerActivate(int socket,
                                const abi::ActivateRequest& request) {
  if (fault_ == Fault::kCloseAtActivate) return false;
  if (fault_ == Fault::kRefuseActivate) {
    return Refuse(socket, request.header.sequence, abi::RefusalCode::kView,
                  "too few slabs");
  }
  std::lock_guard<std::mutex> lock(mutex_);
  views_.active_slabs = request.slabs;
  views_.active_wanted = request.wanted;
  const auto done =
      abi::MakeMessage<abi::ActivateDone>(request.header.sequence);
  return abi::Send(socket, done) == 0;
}

bool FakeDaemon::Note(const abi::Received& received, int socket) {
  std::lock_guard<std::mutex> lock(mutex_);
  abi::WantNotice want;
  abi::ReturnNotice back;
  abi::CloseViewRequest closing;
  if (received.As(&want)) {
    views_.wanted.push_back(want.wanted);
    return true;
  }
  if (received.As(&back)) {
    for (uint32_t i = 0; i < back.count; ++i) {
      views_.returned.emplace_back(back.entries[i].slab, back.entries[i].lease);
    }
    return true;
  }
  if (!received.As(&closing)) return false;
  ++(closing.suspended == 1 ? views_.suspended : views_.closed);
  const auto done =
      abi::MakeMessage<abi::CloseViewDone>(closing.header.sequence);
  return abi::Send(socket, done) == 0;
}

}  // namespace fineserve::shim
