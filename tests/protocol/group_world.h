#ifndef TESTS_PROTOCOL_GROUP_WORLD_H_
#define TESTS_PROTOCOL_GROUP_WORLD_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "daemon/pool/pool_state.h"
#include "shim/ranks/group_leases.h"
#include "shim/testdata/plain_slab_table.h"
#include "tests/protocol/world_parts.h"

namespace fineserve::protocol {

// Initial state of a world of engines on several GPUs, and the faults that are
// injected into it.
struct GroupOptions {
  std::vector<uint32_t> pools;               // slabs of each GPU's pool
  std::vector<std::vector<size_t>> engines;  // the GPUs of each engine
  uint32_t deaths = 0;                       // of processes, in all
  // A slab is returned as soon as rank 0 has executed its steps.
  bool fence_of_rank_0 = false;
  // A slab counts as leased as soon as rank 0's daemon has leased it.
  bool lease_of_rank_0 = false;
  // The engine waits forever for slabs that only some ranks hold.
  bool no_patience = false;
  // If the process that runs a block pool dies, another process runs the pool
  // while its ranks live on.
  bool successors = false;
  // The successor is mistaken for the process that died, like an image that
  // replaces another in one process.
  bool successor_is_predecessor = false;
  uint32_t resizes = 0;  // how often pools are resized, in all
  // A rank shows memory as mapped before it has mapped it.
  bool shows_too_early = false;
};

// A small FineServe on several GPUs, without sockets, processes or memory: a
// machine of the pool (slab::PoolState) for each GPU, engines that span some of
// them made of the shim's own bookkeeping (GroupLeases, ViewLeases), and GPUs
// that execute steps on request, each at its own pace. An engine is a process
// per GPU, its ranks, and one that runs its blocks; a slab is one block.
//
// At every write of a GPU, the slab must be its engine's there, and the rank
// must have mapped the memory that the slab has now. When an engine begins to
// use a slab, all its pools must have leased it that slab, zeroed.
class GroupWorld : public Judged {
 public:
  explicit GroupWorld(const GroupOptions& options);
  ~GroupWorld();
  GroupWorld(const GroupWorld&) = delete;
  GroupWorld& operator=(const GroupWorld&) = delete;

  // Lets one possible event happen, chosen by a number.
  void Happen(uint32_t random);
  // Lets everything under way finish and nothing new begin. Then every slab
  // must be free, or held by a living engine on all its GPUs, and none may move
  // from then on, whatever engines still want. Returns what is wrong.
  std::string Settle();
  uint64_t slabs_used() const { return slabs_used_; }
  uint64_t slabs_returned() const { return slabs_returned_; }
  uint64_t successions() const { return successions_; }
  uint64_t refused_successors() const { return refused_successors_; }
  // Returns how often a step used memory by which a pool had grown.
  uint64_t grown_used() const { return grown_used_; }

 private:
  struct Pool {
    explicit Pool(uint32_t slabs);
    slab::PoolState state;
    shim::PlainSlabTable table;
    std::vector<slab::SlabId> making;
    std::vector<slab::SlabId> filling;
    std::vector<bool> dirty;  // by slab: it is not all zero
  };
  struct Step {
    uint64_t number;
    std::vector<bool> executed;  // by rank
    std::set<uint32_t> used;     // view indices
  };
  struct Message {
    bool want;
    uint32_t value;  // wanted slabs, or slab
    uint32_t lease;
  };
  struct Rank {
    size_t pool;
    slab::EngineId id;
    pid_t pid;
    bool alive = true;
    bool rank_buried = false;
    bool core_buried = false;
    shim::ViewLeases leases;
    shim::PoolSight sight;
    shim::ViewScoreboardWriter* shown = nullptr;
    std::map<uint32_t, uint64_t> mapped;  // memory, by view index
    std::deque<Message> outbox;
    std::vector<bool> wished;  // by slab
  };
  struct Engine {
    pid_t core;
    uint32_t views = 0;
    bool core_alive = true;
    std::deque<Rank> ranks;
    shim::GroupLeases leases;
    uint32_t wanted = 1;
    std::set<uint32_t> held;  // view indices whose block may be handed out
    std::set<uint32_t> used;
    std::map<uint32_t, uint64_t> leaving;  // view index: step to wait for
    std::deque<Step> steps;
    uint64_t steps_begun = 0;
  };
  using Choice = void (GroupWorld::*)(Engine*, size_t);

  void Start(Engine* e, size_t index, const std::vector<size_t>& pools);
  void OpenLeases(Engine* e);
  bool MaySucceed(const Engine& e) const;
  void Succeed(Engine* e, size_t);
  bool RunPools(const Engine& e, pid_t core);
  bool Dead(const Engine& e) const;
  void Carry(Pool* pool);
  void Publish(Pool* pool);
  // The possible events; the second argument is a rank or pool.
  void Look(Engine* e, size_t);
  void Begin(Engine* e, size_t);
  void Free(Engine* e, size_t);
  void Execute(Engine* e, size_t rank);
  void End(Engine* e, size_t);
  void WantOther(Engine* e, size_t);
  void Deliver(Engine* e, size_t rank);
  void Poll(Engine*, size_t pool);
  void Fill(Engine*, size_t pool);
  void Resize(Engine*, size_t pool);
  void Make(Engine*, size_t pool);
  void Map(Engine* e, size_t rank);
  void Wait(Engine*, size_t);
  void DieRank(Engine* e, size_t rank);
  void DieCore(Engine* e, size_t);
  void BuryRank(Engine* e, size_t rank);
  void BuryCore(Engine* e, size_t rank);

  uint64_t MemoryOf(const Rank& rank, uint32_t v);
  void Show(Rank* rank, uint32_t views);
  void Report(Engine* e);
  void ReturnDrained(Engine* e);
  void Send(Engine* e);
  bool Ended(const Engine& e, uint64_t step) const;
  bool IsListed(const Rank& rank, const Engine& e, size_t r) const;
  bool CanExecute(const Engine& e, size_t rank) const;
  void Finish(Engine* e);
  void Round();
  uint64_t Moves() const;
  void CheckNothingLost();

  const GroupOptions options_;
  uint64_t now_ns_ = 1'000'000'000;
  std::deque<Pool> pools_;
  std::deque<Engine> engines_;
  uint32_t deaths_ = 0;
  uint64_t slabs_used_ = 0;
  uint64_t slabs_returned_ = 0;
  uint64_t successions_ = 0;
  uint64_t refused_successors_ = 0;
  uint32_t resizes_ = 0;
  uint64_t grown_used_ = 0;
  pid_t last_successor_ = 100'000;
};

}  // namespace fineserve::protocol

#endif  // TESTS_PROTOCOL_GROUP_WORLD_H_
