#ifndef SHIM_TESTDATA_FAKE_DAEMON_H_
#define SHIM_TESTDATA_FAKE_DAEMON_H_

// A daemon for tests: answers on a real socket from a thread, and misbehaves
// on demand. Its granules are duplicates of one memfd.

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "daemon/abi/messages.h"
#include "daemon/abi/transport.h"

namespace fineserve::shim {

class FakeDaemon {
 public:
  enum class Fault {
    kNone,
    kOtherVersion,  // refuses in the name of version 7
    kRefuseMember,  // refuses Hello with a text
    kCloseAtRule,
    kSilentAtHello,  // takes Hello, says nothing
    kSilentAtLease,
    kCloseAtLease,
    kWrongSequenceAtLease,
    kCloseAtGranules,
    kWrongGranules,  // a batch of another lease
  };
  struct Options {
    Fault fault = Fault::kNone;
    uint64_t epoch = 42;
    uint64_t granule_bytes = 2 << 20;
    uint32_t granules_per_slab = 2;
    uint32_t slab_count = 100;
    std::vector<uint64_t> declared = {};
    std::vector<abi::Rule> rules = {};
  };

  // Listens in `folder` for the GPU; the folder must exist.
  FakeDaemon(const std::string& folder, const uint8_t (&gpu_uuid)[16],
             const Options& options);
  FakeDaemon(const std::string& folder, const uint8_t (&gpu_uuid)[16])
      : FakeDaemon(folder, gpu_uuid, Options()) {}
  ~FakeDaemon();

  std::string path() const { return path_; }
  // What it saw so far. Any thread.
  std::vector<uint32_t> batch_sizes_asked() const;
  std::vector<uint32_t> returned() const;
  abi::Hello last_hello() const;
  int connections() const { return connections_; }
  uint32_t free_slabs() const;
  // The page that the last member got.
  const void* page() const { return page_; }

 private:
  void Run();
  void Serve(int socket);
  bool Answer(int socket, const abi::Received& received);
  bool AnswerHello(int socket, const abi::Hello& hello);
  bool AnswerLease(int socket, const abi::LeaseRequest& request);
  bool AnswerGranules(int socket, const abi::GranuleRequest& request);
  bool AnswerRule(int socket, const abi::RuleRequest& request);
  bool AnswerReturn(int socket, const abi::ReturnRequest& request);
  bool Refuse(int socket, uint32_t sequence, abi::RefusalCode code,
              const char* text);

  const Options options_;
  std::string path_;
  int listener_;
  int stop_[2];
  int granule_;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<uint32_t> batch_sizes_;
  std::vector<uint32_t> returned_;
  std::vector<uint32_t> lease_slabs_;  // by lease - 1; 0: returned
  abi::Hello hello_ = {};
  uint32_t free_slabs_;
  std::atomic<int> connections_{0};
  std::atomic<const void*> page_{nullptr};
  std::thread thread_;  // last: it uses all of the above
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
