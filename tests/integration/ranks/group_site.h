#ifndef TESTS_INTEGRATION_RANKS_GROUP_SITE_H_
#define TESTS_INTEGRATION_RANKS_GROUP_SITE_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/driver/descriptor.h"
#include "tests/integration/site.h"

namespace fineserve::integration {

// An engine that spans GPUs: one process that runs its block pool, and a rank
// on each GPU. All ranks serve at random and check every byte.
class GroupEngine {
 public:
  GroupEngine(std::string name, std::unique_ptr<Process> parent)
      : name_(std::move(name)), parent_(std::move(parent)) {}

  const std::string& name() const { return name_; }
  Process& parent() { return *parent_; }
  // Opens the ranks that the engine's first line names. False if the engine has
  // ended.
  bool FindRanks();
  // Waits until it serves.
  bool AwaitReady();
  // Sends a signal to one rank, once FindRanks has found the ranks.
  void SignalRank(size_t rank, int signal);
  size_t ranks() const { return ranks_.size(); }
  // Waits until all the engine's processes have ended, killed or not.
  bool EventuallyEnds();
  // Returns a figure of the engine's answer to "stats"; -1, and a failure, if
  // it has none.
  int64_t Stat(const std::string& figure);

 private:
  std::string name_;
  std::unique_ptr<Process> parent_;
  std::vector<driver::Descriptor> ranks_;  // pidfds
};

// Emulated GPUs with pools of different sizes, engines that span some of them,
// and a plain engine on the first GPU. There are two GPUs unless the test says
// otherwise.
class GroupSite : public Site {
 protected:
  static constexpr int kGpus = 2;

  explicit GroupSite(std::vector<uint32_t> pool_slabs = {18, 24})
      : sockets_(pool_slabs.size()),
        daemons_(pool_slabs.size()),
        pool_slabs_(std::move(pool_slabs)) {}

  void SetUp() override;
  // The options of the GPU's daemon that choose its pool.
  virtual std::vector<std::string> PoolOptions(int gpu) const;
  int gpus() const { return static_cast<int>(pool_slabs_.size()); }
  void StartPool(int gpu);
  std::unique_ptr<GroupEngine> LaunchGroup(const std::string& gpus);
  std::unique_ptr<GroupEngine> StartGroup(const std::string& gpus);
  // Starts an engine that may leave the GPUs, with weights and memory that its
  // ranks share.
  std::unique_ptr<GroupEngine> StartEvictableGroup(const std::string& gpus);
  void StartPlain();

  abi::TableSnapshot TableOf(int gpu) { return TableAt(sockets_[gpu]); }
  // Returns the number of slabs that the engine of this name holds on the GPU,
  // dead or alive.
  uint64_t SlabsHeld(int gpu, const std::string& name);
  bool EventuallyHoldsNothing(const std::string& name);
  bool EventuallyAllFree();
  // Returns the number of slabs that engines have given back on the GPU.
  uint64_t Returned(int gpu) { return TableOf(gpu).counters.slabs_returned; }
  // True once each of the engines has got further slabs and some slabs have
  // been returned on each GPU; false if that does not happen in time.
  bool Trade(const std::vector<GroupEngine*>& engines);
  // True if the engine gets new slabs, and steps, from now on.
  static bool Moves(GroupEngine* engine);

  unsigned seed_ = 0;
  std::mt19937 random_;
  int started_ = 0;
  std::vector<std::string> sockets_;  // by GPU
  std::vector<std::unique_ptr<Process>> daemons_;
  std::unique_ptr<Process> plain_;
  std::string plain_name_;

 private:
  Process::Environment RandomEngine(const std::string& name);
  std::unique_ptr<GroupEngine> Launch(const std::string& gpus,
                                      std::vector<std::string> arguments,
                                      Process::Environment more);

  const std::vector<uint32_t> pool_slabs_;
};

}  // namespace fineserve::integration

#endif  // TESTS_INTEGRATION_RANKS_GROUP_SITE_H_
