// The cost of a KV block: see kQuestion.

#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "bench/micro/block_workload.h"
#include "bench/micro/gpu_site.h"
#include "bench/micro/on_demand.h"
#include "bench/report/report.h"
#include "shim/view/block_allocator.h"

namespace fineserve::bench {
namespace {

constexpr char kQuestion[] = R"(What does a KV block cost?

Compared: (a) our block allocator, (b) a free list in shared memory under a
robust mutex, (c) a request to a daemon for each block, (d) pages mapped on
demand at published driver latencies, with and without a buffer of mapped
pages, and (e) the least that any shared allocator pays: a pair of CAS on a
warm word.

Two workloads. "steady": 1,024 blocks are in use; the oldest are freed and as
many are taken, so that no page ever empties. "burst": 512 blocks are taken and
then all freed in random order. Llama-3.1-8B FP16: 32 planes, pages of 64 KiB,
32 blocks in 2 MiB. Figures are ns for taking and freeing one block; rounds of
all ways alternate, and medians are reported. Two engines are two threads with
an allocator each, except that (b) has one list for both.

The bench then measures (a) through the C interface, in an engine under the
preload with a view from a real fineserved. Finally it runs two such engines
under loads that rise and fall out of phase, so that slabs move back and forth:
in each step of 2 ms up to 2 sequences of 8 blocks begin, 64 run at most, and
each grows by a block in 16 steps; the watermark is 4 steps. How often was a
block missing although the pool had one (watermark misses), and how many driver
calls did serving make?)";

constexpr uint32_t kSlabs = 128;
constexpr uint32_t kPlanes = 32;
constexpr uint64_t kPlaneBytes = 2 << 20;
constexpr uint64_t kPageBytes = 64 << 10;
constexpr uint32_t kBlocksPerSlab = kPlaneBytes / kPageBytes;
constexpr int kRounds = 21;

class Ours : public Blocks {
 public:
  Ours() {
    blocks_.Create(kSlabs, kPlaneBytes, kPageBytes);
    for (uint32_t v = 1; v <= kSlabs; ++v) blocks_.Link(v);
  }
  void Allocate(uint32_t count, uint32_t* ids) override {
    if (!blocks_.Allocate(count, ids)) abort();
  }
  void Free(uint32_t count, const uint32_t* ids) override {
    if (blocks_.Free(count, ids) != count) abort();
  }

 private:
  shim::BlockAllocator blocks_;
};

// A list that every engine of a GPU would share.
struct SharedList {
  pthread_mutex_t mutex;
  uint32_t count;
  uint32_t ids[2 * kSlabs * kBlocksPerSlab];

  static SharedList* Create() {
    auto* list = static_cast<SharedList*>(
        mmap(nullptr, sizeof(SharedList), PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    pthread_mutexattr_t robust;
    pthread_mutexattr_init(&robust);
    pthread_mutexattr_setpshared(&robust, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&list->mutex, &robust);
    list->count = 2 * kSlabs * kBlocksPerSlab;
    std::iota(list->ids, list->ids + list->count, 0u);
    return list;
  }
};

class RobustMutex : public Blocks {
 public:
  explicit RobustMutex(SharedList* list) : list_(*list) {}
  void Allocate(uint32_t count, uint32_t* ids) override {
    pthread_mutex_lock(&list_.mutex);
    for (uint32_t i = 0; i < count; ++i) ids[i] = list_.ids[--list_.count];
    pthread_mutex_unlock(&list_.mutex);
  }
  void Free(uint32_t count, const uint32_t* ids) override {
    pthread_mutex_lock(&list_.mutex);
    for (uint32_t i = 0; i < count; ++i) list_.ids[list_.count++] = ids[i];
    pthread_mutex_unlock(&list_.mutex);
  }

 private:
  SharedList& list_;
};

// A process that answers at once, over the same kind of socket as our daemon's.
// Frees are sent without waiting for an answer.
class Requests : public Blocks {
 public:
  Requests() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0) abort();
    server_.emplace([&] {
      close(ends[0]);
      return Serve(ends[1]);
    });
    close(ends[1]);
    socket_ = ends[0];
  }
  ~Requests() override { close(socket_); }
  void Allocate(uint32_t count, uint32_t* ids) override {
    for (uint32_t i = 0; i < count; ++i) {
      Message message = {1, 0, {}};
      if (send(socket_, &message, sizeof(message), 0) < 0 ||
          recv(socket_, &message, sizeof(message), 0) <= 0) {
        abort();
      }
      ids[i] = message.id;
    }
  }
  void Free(uint32_t count, const uint32_t* ids) override {
    for (uint32_t i = 0; i < count; ++i) {
      const Message message = {2, ids[i], {}};
      if (send(socket_, &message, sizeof(message), 0) < 0) abort();
    }
  }

 private:
  struct Message {
    uint32_t what;
    uint32_t id;
    char rest[56];
  };

  static int Serve(int socket) {
    std::vector<uint32_t> free(kSlabs * kBlocksPerSlab);
    std::iota(free.begin(), free.end(), 0u);
    Message message;
    while (recv(socket, &message, sizeof(message), 0) > 0) {
      if (message.what == 2) {
        free.push_back(message.id);
        continue;
      }
      message.id = free.back();
      free.pop_back();
      if (send(socket, &message, sizeof(message), MSG_NOSIGNAL) < 0) break;
    }
    return 0;
  }

  absl::optional<process::ChildProcess> server_;
  int socket_;
};

class Mapped : public Blocks {
 public:
  explicit Mapped(bool buffer)
      : pages_(kSlabs, kBlocksPerSlab, kPlanes, DriverLatency{}, buffer) {}
  void Allocate(uint32_t count, uint32_t* ids) override {
    pages_.Allocate(count, ids);
  }
  void Free(uint32_t count, const uint32_t* ids) override {
    pages_.Free(count, ids);
  }
  uint64_t driver_calls() const { return pages_.driver_calls(); }

 private:
  OnDemand pages_;
};

// Runs two engines together; returns the mean of both.
double Together(Workload* a, Workload* b,
                const std::function<double(Workload*)>& run) {
  std::atomic<int> waiting{2};
  double ns[2];
  const auto one = [&](int i, Workload* w) {
    waiting.fetch_sub(1);
    while (waiting.load() > 0) std::this_thread::yield();
    ns[i] = run(w);
  };
  std::thread other([&] { one(1, b); });
  one(0, a);
  other.join();
  return (ns[0] + ns[1]) / 2;
}

using Samples = std::map<std::string, std::vector<double>>;

constexpr uint32_t kCheap = 1 << 18;  // blocks per round, if they are cheap

struct Engines {
  explicit Engines(SharedList* list) : mutex_a(list), mutex_b(list) {}

  Requests requests;  // first: it forks
  Ours ours_a, ours_b;
  RobustMutex mutex_a, mutex_b;
  Mapped buffered{true}, unbuffered{false};
};

void Round(Samples* s, Engines* e) {
  Workload ours(&e->ours_a), ours2(&e->ours_b);
  Workload mutex(&e->mutex_a), mutex2(&e->mutex_b), requests(&e->requests);
  const auto steady1 = [](Workload* w) { return w->Steady(1, kCheap); };
  const auto steady16 = [](Workload* w) { return w->Steady(16, kCheap); };
  (*s)["(e) CAS pair on a warm word (ns)"].push_back(CasPair(kCheap));
  (*s)["(a) ours, steady, 1 a call (ns)"].push_back(steady1(&ours));
  (*s)["(a) ours, steady, 16 a call (ns)"].push_back(steady16(&ours));
  (*s)["(a) ours, steady, 1 a call, 2 engines (ns)"].push_back(
      Together(&ours, &ours2, steady1));
  (*s)["(a) ours, steady, 16 a call, 2 engines (ns)"].push_back(
      Together(&ours, &ours2, steady16));
  (*s)["(b) robust mutex, steady, 1 a call (ns)"].push_back(steady1(&mutex));
  (*s)["(b) robust mutex, steady, 16 a call (ns)"].push_back(steady16(&mutex));
  (*s)["(b) robust mutex, steady, 1 a call, 2 engines (ns)"].push_back(
      Together(&mutex, &mutex2, steady1));
  (*s)["(b) robust mutex, steady, 16 a call, 2 engines (ns)"].push_back(
      Together(&mutex, &mutex2, steady16));
  (*s)["(c) request per block, steady (ns)"].push_back(
      requests.Steady(1, 4096));
  (*s)["(a) ours, burst (ns)"].push_back(ours.Burst(64));
  (*s)["(b) robust mutex, burst (ns)"].push_back(mutex.Burst(64));
}

void MappedRound(Samples* s, Engines* e) {
  Workload off(&e->unbuffered), on(&e->buffered);
  (*s)["(d) on demand, steady (ns)"].push_back(off.Steady(1, 1 << 14));
  (*s)["(d) on demand, burst, no buffer (ns)"].push_back(off.Burst(1));
  (*s)["(d) on demand, burst, buffer (ns)"].push_back(on.Burst(1));
}

// Measures real engines under the preload, with a real daemon.
void Serving(Report* report) {
  GpuSite site;
  site.StartDaemon({"--pool", "4GiB", "--slab", "64MiB"});
  const auto alone = site.RunEngines({{"--per-block"}})[0];
  report->Figure("(a) through the C interface, 1 a call (ns)",
                 alone.at("one_ns"));
  report->Figure("(a) through the C interface, 16 a call (ns)",
                 alone.at("sixteen_ns"));
  report->Claim("C interface, 1 a call / CAS pair", alone.at("one_per_cas"), 3,
                Compare::kAtMost);
  report->Claim("C interface, 16 a call, per block / CAS pair",
                alone.at("sixteen_per_cas"), 1, Compare::kAtMost);
  site.StopDaemon();
  // The pool is so small that two engines out of phase must exchange slabs.
  site.StartDaemon({"--pool", "96MiB", "--slab", "4MiB"});
  for (const char* mode : {"view", "guarded"}) {
    const std::vector<std::string> flags = {"--mode", mode, "--serve", "10"};
    std::vector<std::string> other = flags;
    other.push_back("--idle-first");
    const auto engines = site.RunEngines({flags, other});
    double calls = 0;
    double misses = 0;
    for (size_t i = 0; i < engines.size(); ++i) {
      const std::string name =
          std::string("serving, ") + mode + ", engine " + std::to_string(i + 1);
      for (const char* figure :
           {"steps", "returned_slabs", "refused_admissions",
            "failed_allocations", "watermark_misses", "driver_calls_serving"}) {
        report->Figure(name + ": " + figure, engines[i].at(figure));
      }
      calls += engines[i].at("driver_calls_serving");
      misses += engines[i].at("watermark_misses");
    }
    if (std::string(mode) == "view") {
      report->Claim("driver calls while serving, view", calls, 0,
                    Compare::kAtMost);
    }
    report->Claim(std::string("watermark misses, ") + mode, misses, 0,
                  Compare::kAtMost);
  }
}

int Main(int argc, char** argv) {
  const Arguments arguments =
      Arguments::ReadOrExit(argc, argv, {"blocks", kQuestion});
  SharedList* list = SharedList::Create();
  Engines engines(list);
  Samples samples;
  for (int i = 0; i < kRounds; ++i) Round(&samples, &engines);
  for (int i = 0; i < 3; ++i) MappedRound(&samples, &engines);
  Report report("blocks");
  for (const auto& [name, values] : samples) {
    report.Figure(name, Median(values));
  }
  report.Figure("(d) driver calls, no buffer",
                static_cast<double>(engines.unbuffered.driver_calls()));
  report.Figure("(d) driver calls, buffer",
                static_cast<double>(engines.buffered.driver_calls()));
  const auto ratio = [&](const char* a, const char* b) {
    // Compares round by round, so that a slow phase of the machine affects
    // both.
    std::vector<double> ratios;
    for (size_t i = 0; i < samples[a].size(); ++i) {
      ratios.push_back(samples[a][i] / samples[b][i]);
    }
    return Median(ratios);
  };
  report.Claim("ours, 1 a call / CAS pair",
               ratio("(a) ours, steady, 1 a call (ns)",
                     "(e) CAS pair on a warm word (ns)"),
               3, Compare::kAtMost);
  report.Claim("ours, 16 a call, per block / CAS pair",
               ratio("(a) ours, steady, 16 a call (ns)",
                     "(e) CAS pair on a warm word (ns)"),
               1, Compare::kAtMost);
  report.Claim("request per block / ours, 1 a call",
               ratio("(c) request per block, steady (ns)",
                     "(a) ours, steady, 1 a call (ns)"),
               100, Compare::kAtLeast);
  Serving(&report);
  return Finish(report, arguments);
}

}  // namespace
}  // namespace fineserve::bench

int main(int argc, char** argv) { return fineserve::bench::Main(argc, argv); }
