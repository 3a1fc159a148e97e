#ifndef SHIM_TESTDATA_FAKE_DAEMON_H_
#define SHIM_TESTDATA_FAKE_DAEMON_H_

// A daemon for tests. It answers on a real socket from a thread, and misbehaves
// on demand. The granules of its leases are duplicates of one memfd.

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/contract/abi/messages.h"
#include "daemon/contract/abi/transport.h"
#include "shim/link/daemon_link.h"
#include "shim/link/seqpacket.h"

namespace fineserve::shim {

// Limit on a test's wait for an event that must happen: a busy machine is slow,
// not wrong.
inline constexpr int kPatienceMs = 60'000;
inline constexpr DaemonLink::Timeouts kPatient = {
    .join_ms = kPatienceMs, .request_ms = kPatienceMs, .reconnect_pause_ms = 0};

class FakeDaemon {
 public:
  enum class Fault {
    kNone,
    kOtherVersion,       // refuses as a daemon of the next version
    kRefuseMember,       // refuses Hello with a text
    kCloseAtFirstHello,  // of all connections
    kCloseAtRule,
    kSilentAtHello,    // reads Hello, does not answer
    kLoseDescriptors,  // leaves this process no descriptor below its limit
    kSilentAtLease,    // counts the request, does not answer
    kCloseAtLease,
    kWaitForSlabs,  // answers a lease once enough slabs are returned
    kWrongSequenceAtLease,
    kCloseAtGranules,
    kWrongGranules,  // a batch of another lease
    kRefuseView,
    kCloseAtView,
    kWrongView,   // grants shares that are not whole granules
    kShrinkable,  // its table is not sealed
    kRefuseActivate,
    kCloseAtActivate,
    kCloseAtPoolGranules,  // from the second batch on
    kRefusePoolGranules,
    kRefuseGranulesOnce,  // of the pool: the second batch
    kSilentAtPoolGranules,
    kSilentAtReturn,
  };
  struct Options {
    Fault fault = Fault::kNone;
    uint64_t epoch = 42;
    uint64_t granule_bytes = 2 << 20;
    uint32_t granules_per_slab = 2;
    uint32_t slab_count = 100;
    const char* exhausted = "the pool has 0 slabs left";  // its refusal
    std::vector<uint64_t> declared = {};
    std::vector<abi::Rule> rules = {};
    uint32_t floor_slabs = 1;      // of a view
    uint32_t cap_slabs = 0;        // of a view; 0 for all
    uint32_t most_granules = 253;  // of the pool in one batch
    // The answers to requests for room, in order, followed by 0. If it is
    // empty, the table says that the daemon gives no room.
    std::vector<uint64_t> room = {};
  };

  // Listens in `folder` for the GPU; the folder must exist.
  FakeDaemon(const std::string& folder, const uint8_t (&gpu_uuid)[16],
             const Options& options);
  FakeDaemon(const std::string& folder, const uint8_t (&gpu_uuid)[16])
      : FakeDaemon(folder, gpu_uuid, Options()) {}
  ~FakeDaemon();

  std::string path() const { return path_; }
  // Number of messages received so far, including those that wait to be read.
  // Safe on any thread.
  std::vector<uint32_t> batch_sizes_asked() const;
  std::vector<uint32_t> returned() const;
  uint32_t leases_asked() const { return leases_asked_; }
  std::vector<uint64_t> rooms_asked() const;  // bytes
  abi::Hello last_hello() const;
  int connections() const { return connections_; }
  uint32_t free_slabs() const;
  // Sets how it misbehaves from now on.
  void set_fault(Fault fault) { fault_ = fault; }
  // Closes the connection and goes on listening.
  void Disconnect();
  // The scoreboard of the last member.
  const void* scoreboard() const { return scoreboard_; }

  // For views. Slabs are FREE unless a test changes them.
  static constexpr uint32_t kEngine = 1;
  static constexpr uint32_t kSlot = 3;
  struct ViewLog {
    abi::ViewRequest request = {};
    uint32_t active_slabs = 0;
    uint32_t active_wanted = 0;
    std::vector<uint32_t> wanted;
    std::vector<std::pair<uint32_t, uint32_t>> returned;  // slab, lease
    int closed = 0;
    int suspended = 0;
  };
  ViewLog views() const;
  // Waits until `done(views())`, for at most kPatienceMs, since a notice is not
  // answered, and is read some time after it was sent.
  template <typename Done>
  bool Eventually(Done done) const {
    return Becomes([&] { return done(views()); });
  }
  // Like Eventually, for any condition that changes when the daemon reads a
  // message.
  template <typename Condition>
  static bool Becomes(Condition condition) {
    const uint64_t deadline_ms = NowMs() + kPatienceMs;
    while (!condition()) {
      if (NowMs() > deadline_ms) return false;
      Breathe();
    }
    return true;
  }
  // Waits until `slabs` are free, since a client does not wait for a return.
  bool GetsBack(uint32_t slabs) const {
    return Becomes([&] { return free_slabs() == slabs; });
  }
  int view_scoreboard() const { return view_scoreboard_; }  // descriptor
  abi::SlabEntry* SlabAt(uint32_t slab) const;
  // Writes a slab's word and, if `tell`, raises `changes` and wakes waiters.
  void SetSlab(uint32_t slab, abi::SlabWord word, bool tell = true);
  // Makes a slab free, as of `since_ns`.
  void SetFreeSince(uint32_t slab, uint64_t since_ns);
  // Withdraw removes a slab's granules; Regrow gives it new ones.
  void Withdraw(uint32_t slab) { SetSlab(slab, {abi::SlabState::kAbsent}); }
  void Regrow(uint32_t slab);
  void Lease(uint32_t slab, uint32_t lease) {
    SetSlab(slab, {abi::SlabState::kPartial, kEngine, lease});
  }
  void Free(uint32_t slab) { SetSlab(slab, {}); }
  void AskBack(uint32_t slab, uint32_t lease) {
    SetSlab(slab, {abi::SlabState::kReturning, kEngine, lease});
  }
  // Returns the table; null before the first member.
  abi::TableHeader* table() const { return table_; }

 private:
  void Run();
  void Serve(int socket);
  void CatchUp() const;
  bool Answer(int socket, const abi::Received& received);
  bool AnswerHello(int socket, const abi::Hello& hello);
  bool AnswerLease(int socket, const abi::LeaseRequest& request);
  bool AnswerGranules(int socket, const abi::GranuleRequest& request);
  bool AnswerRule(int socket, const abi::RuleRequest& request);
  bool AnswerRoom(int socket, const abi::RoomRequest& request);
  bool AnswerReturn(int socket, const abi::ReturnRequest& request);
  bool AnswerView(int socket, const abi::ViewRequest& request);
  bool AnswerPoolGranules(int socket, const abi::PoolGranuleRequest& request);
  bool AnswerActivate(int socket, const abi::ActivateRequest& request);
  bool Note(const abi::Received& received, int socket);
  static int Memfd(const char* name, size_t bytes);
  int MakeTable();
  static void Breathe();
  bool Refuse(int socket, uint32_t sequence, abi::RefusalCode code,
              const char* text);

  const Options options_;
  std::atomic<Fault> fault_;
  const char* const exhausted_;
  std::string path_;
  int listener_;
  int stop_[2];
  int granule_;
  int table_descriptor_ = -1;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<uint32_t> batch_sizes_;
  std::vector<uint32_t> returned_;
  std::vector<uint64_t> rooms_;
  std::vector<uint32_t> lease_slabs_;  // by lease - 1; 0 if returned
  abi::Hello hello_ = {};
  uint32_t free_slabs_;
  std::atomic<uint32_t> leases_asked_{0};
  std::atomic<int> connections_{0};
  std::atomic<int> socket_{-1};    // of the present member
  std::atomic<bool> busy_{false};  // with a message
  std::atomic<const void*> scoreboard_{nullptr};
  std::atomic<abi::TableHeader*> table_{nullptr};
  std::atomic<int> view_scoreboard_{-1};
  ViewLog views_;
  int pool_batches_ = 0;
  abi::LeaseRequest waiting_ = {};  // kWaitForSlabs; of 0 slabs: none
  std::thread thread_;              // last: it uses all of the above
};

// A new empty folder under the system's temporary one, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace fineserve::shim

#endif  // SHIM_TESTDATA_FAKE_DAEMON_H_
