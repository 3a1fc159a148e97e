#ifndef BENCH_SOAK_ENGINE_KILLS_H_
#define BENCH_SOAK_ENGINE_KILLS_H_

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/soak/failures.h"
#include "bench/soak/progress.h"
#include "bench/soak/soak_site.h"

namespace fineserve::bench {

// Outcomes of killed engines, on one site.
struct EngineKillFigures {
  uint64_t kills = 0;
  uint64_t starting = 0;    // before they said anything
  uint64_t holding = 0;     // with slabs
  uint64_t asked_back = 0;  // of which some had been asked back
  uint64_t lingering = 0;   // with device writes that outlive them
  uint64_t exited = 0;      // ended by themselves before their kill
  uint64_t refused = 0;     // found no slabs when they started
  uint64_t slabs_quarantined = 0, slabs_returned = 0;
  double longest_rest_s = 0;  // from kills to the end of their quarantines
  ProcessSize first, last;    // fineserved's, with an empty pool
};

// Runs engines on one pool that is too small for them. They hold KV, write it,
// and search it for bytes of other engines. Kills several at a time, at any
// moment of their lives, and replaces them. Checks that the pool comes to rest
// after each batch, and is empty when all are dead. Confined to one thread.
class EngineKills {
 public:
  EngineKills(SoakSite* site, uint64_t seed, Progress* progress)
      : site_(*site), random_(seed), progress_(*progress) {}

  EngineKillFigures Run(uint64_t kills);

 private:
  // An engine and, sometimes, a second process of the same engine that has
  // whole slabs.
  struct Seat {
    std::unique_ptr<Process> engine, member;
    bool lingers = false;
    bool grows_old = false;  // most batches leave it alone
  };

  uint64_t Random(uint64_t below) { return random_() % below; }
  void Fill(Seat* seat);
  std::unique_ptr<Process> StartView(const std::string& name,
                                     const process::Environment& device);
  std::unique_ptr<Process> StartWhole(const std::string& name,
                                      const process::Environment& device);
  // Starts an engine whose device still has work queued for its slabs when the
  // engine is killed.
  std::unique_ptr<Process> StartQueued(const std::string& name,
                                       const process::Environment& device);
  // Waits until each engine has its KV, so that most of them die later than
  // that.
  void AwaitStarts();
  // Kills some at once. False if the pool does not come to rest.
  bool KillBatch();
  std::vector<Seat*> ChooseVictims();
  void Kill(const std::vector<Seat*>& seats);
  void CountWhatTheyHold(const std::vector<Seat*>& seats);
  // Checks the program's output and its exit status.
  void Judge(Process* program, const Seat& seat);
  void ReplaceExited();
  // Kills all engines. Then the pool must be empty, and one engine must get all
  // of it, zeroed.
  bool EndRound();
  bool WholePoolIsZero();
  uint64_t LeasesGranted() const;
  void NoteSize();

  SoakSite& site_;
  std::mt19937_64 random_;
  Progress& progress_;
  uint64_t started_ = 0;
  std::vector<Seat> seats_;
  EngineKillFigures figures_;
};

}  // namespace fineserve::bench

#endif  // BENCH_SOAK_ENGINE_KILLS_H_
