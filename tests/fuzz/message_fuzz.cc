// Fuzzes the daemon with any bytes as a client's datagrams: its books stay
// right, and a well-behaved engine beside the fuzzer is still served.
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>

#include "daemon/base/log/log.h"
#include "daemon/base/unix_socket.h"
#include "daemon/fineserved/backing/sim_backing.h"
#include "daemon/fineserved/server/endpoint.h"
#include "daemon/fineserved/server/socket_server.h"
#include "tests/fuzz/target.h"

namespace fineserve::fuzz {
namespace {

void Require(bool holds) {
  if (!holds) abort();
}

// One daemon serves all runs, so that state which a bad message leaves behind
// shows up.
class Daemon {
 public:
  Daemon() {
    fineserve::log::SetLevel("off");
    char folder[] = "/tmp/fineserve-fuzz-XXXXXX";
    Require(mkdtemp(folder) != nullptr);
    folder_ = folder;
    endpoint_ = std::make_unique<server::Endpoint>(
        *server::Endpoint::Claim(folder_, identity_.gpu_uuid));
    server_.Listen(*endpoint_->Listen());
    Require(pool_.Poll().ok());
    good_ = Connect();
    Greet(good_);
  }

  ~Daemon() {
    const std::string lock = endpoint_->socket_path() + ".lock";
    endpoint_.reset();
    unlink(lock.c_str());
    rmdir(folder_.c_str());
  }

  // Sends the bytes. If `greet`, it first greets properly, so that the bytes
  // reach a member's handlers.
  void Feed(const uint8_t* bytes, size_t count, bool greet) {
    driver::Descriptor fd = Connect();
    if (greet) Greet(fd);
    // Cuts the bytes into datagrams as the input specifies.
    while (count > 0) {
      const size_t n = std::min<size_t>(count, 1 + bytes[0] * 5u);
      send(fd.get(), bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
      bytes += n;
      count -= n;
    }
    Turn();
    fd.Reset();
    Turn();
    pool_.slabs().CheckInvariants();
    CheckGoodEngine();
  }

 private:
  static slab::TableIdentity Identity() {
    slab::TableIdentity identity;
    identity.epoch = 1;
    identity.geometry = {4096, 2, 8};
    return identity;
  }

  driver::Descriptor Connect() {
    driver::Descriptor fd(
        socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    Require(base::ConnectUnix(fd.get(), endpoint_->socket_path()));
    return fd;
  }

  void Turn() {
    while (loop_.RunOnce()) {
    }
    Require(pool_.Poll().ok());
    server_.Settle();
  }

  template <typename M>
  M Ask(const driver::Descriptor& fd, const auto& request) {
    Require(abi::Send(fd.get(), request) == 0);
    Turn();
    M answer;
    Require(received_.ReceiveFrom(fd.get()) == 0 && received_.As(&answer));
    return answer;
  }

  void Greet(const driver::Descriptor& fd) {
    auto hello = abi::MakeMessage<abi::Hello>(1);
    hello.role = abi::Role::kMember;
    hello.pid = static_cast<uint32_t>(getpid());
    abi::CopyText(hello.engine_name, "good");
    Ask<abi::Welcome>(fd, hello);
  }

  // Checks that the daemon answers and that leases can be returned. The fuzzer
  // acts as a member of the same engine, so it may have leased slabs.
  void CheckGoodEngine() {
    if (pool_.state().HasView(slab::EngineId{1}, getpid())) {
      Ask<abi::CloseViewDone>(good_,
                              abi::MakeMessage<abi::CloseViewRequest>(3));
    }
    // Lease numbers only grow, and by less than 256 in one input.
    const uint32_t first = last_lease_ + 1;
    for (uint32_t lease = first; lease < first + 256; ++lease) {
      auto back = abi::MakeMessage<abi::ReturnRequest>(2);
      back.lease = lease;
      const slab::LeaseId id{lease};
      if (!pool_.slabs().SlabsOf(slab::EngineId{1}, id).empty()) {
        last_lease_ = lease;
        Ask<abi::ReturnDone>(good_, back);
      }
    }
    Require(pool_.slabs().free_count() == 8);
  }

  const slab::TableIdentity identity_ = Identity();
  std::string folder_;
  ManualClock clock_;
  backing::SimBacking backing_ =
      *backing::SimBacking::Create(Identity().geometry);
  std::unique_ptr<slab::TableWriter> table_ =
      *slab::TableWriter::Create(Identity(), &clock_);
  backing::InlineQueue device_{&backing_};
  server::PoolService pool_{&device_, identity_.geometry,
                            identity_.geometry.slab_count, table_.get(),
                            &clock_};
  server::EventLoop loop_;
  server::SocketServer server_{
      &loop_, &pool_, table_.get(), identity_, &clock_, [](const std::string&) {
        return server::SocketServer::KvRules{{}, {abi::Rule{}, abi::Rule{}}};
      }};
  std::unique_ptr<server::Endpoint> endpoint_;
  driver::Descriptor good_;
  abi::Received received_;
  uint32_t last_lease_ = 0;
};

template <typename M>
std::vector<uint8_t> Bytes(const M& message) {
  const auto* first = reinterpret_cast<const uint8_t*>(&message);
  return {first, first + sizeof(message)};
}

}  // namespace

std::vector<std::vector<uint8_t>> Seeds() {
  auto lease = abi::MakeMessage<abi::LeaseRequest>(1);
  lease.slab_count = 3;
  auto granules = abi::MakeMessage<abi::GranuleRequest>(2);
  granules.lease = 1;
  granules.max_count = 200;
  auto back = abi::MakeMessage<abi::ReturnRequest>(3);
  back.lease = 1;
  auto rule = abi::MakeMessage<abi::RuleRequest>(5);
  rule.index = 1;
  auto hello = abi::MakeMessage<abi::Hello>(4);
  hello.role = abi::Role::kObserver;
  hello.pid = static_cast<uint32_t>(getpid());
  auto view = abi::MakeMessage<abi::ViewRequest>(6);
  view.mode = abi::ViewMode::kView;
  view.planes = 2;
  view.page_bytes = 512;
  view.block_tokens = 16;
  auto pool_granules = abi::MakeMessage<abi::PoolGranuleRequest>(7);
  pool_granules.max_count = 20;
  auto activate = abi::MakeMessage<abi::ActivateRequest>(8);
  activate.slabs = 8;
  auto rank = view;
  rank.flags = abi::kViewOfGroup;
  auto want = abi::MakeMessage<abi::WantNotice>(9);
  want.wanted = 5;
  auto return_slab = abi::MakeMessage<abi::ReturnNotice>(10);
  return_slab.count = 1;
  return_slab.entries[0] = {0, 1};
  const auto close = abi::MakeMessage<abi::CloseViewRequest>(11);
  const auto run = abi::MakeMessage<abi::RunPoolRequest>(12);
  return {Bytes(lease),    Bytes(granules), Bytes(back),
          Bytes(rule),     Bytes(hello),    Bytes(view),
          Bytes(rank),     Bytes(run),      Bytes(pool_granules),
          Bytes(activate), Bytes(want),     Bytes(return_slab),
          Bytes(close)};
}

}  // namespace fineserve::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t count) {
  static fineserve::fuzz::Daemon daemon;
  const bool greet = count % 2 == 0;
  daemon.Feed(bytes, count, greet);
  return 0;
}
