#ifndef TOOLS_LAB_ENGINES_TINYSERVE_KV_LEASED_BLOCKS_H_
#define TOOLS_LAB_ENGINES_TINYSERVE_KV_LEASED_BLOCKS_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "tools/lab/engines/tinyserve/kv/block_source.h"

namespace tinyserve {

// Allocates blocks by the shim, from slabs that the daemon leases. Needs an
// active view.
class LeasedBlocks : public BlockSource {
 public:
  bool IsAway() const override;
  void BeginStep() override;
  void EndStep() override;
  bool Allocate(uint32_t count, std::vector<BlockId>* to) override;
  void Free(const std::vector<BlockId>& blocks) override;
  void Expect(uint64_t blocks) override;
  uint64_t used_blocks() const override { return used_; }
  uint64_t held_blocks() const override;

 private:
  uint64_t step_ = 0;  // 0: none is under way
  uint64_t used_ = 0;
  uint64_t expected_ = 0;
};

// A thread that watches the leases while the engine has nothing to do. Calls
// `wake` when they may have changed, once for each Arm().
class LeaseWatch {
 public:
  explicit LeaseWatch(std::function<void()> wake);
  ~LeaseWatch();
  LeaseWatch(const LeaseWatch&) = delete;
  LeaseWatch& operator=(const LeaseWatch&) = delete;

  // Call when the engine has looked at its leases and is about to sleep. Any
  // thread.
  void Arm();

 private:
  void Run();
  // Waits for Arm(); false at the end.
  bool AwaitArmed();
  void Pause();

  const std::function<void()> wake_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool armed_ = false;     // guarded by mutex_
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;     // last: it uses all of the above
};

}  // namespace tinyserve

#endif  // TOOLS_LAB_ENGINES_TINYSERVE_KV_LEASED_BLOCKS_H_
