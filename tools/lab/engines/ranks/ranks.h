#ifndef TOOLS_LAB_ENGINES_RANKS_RANKS_H_
#define TOOLS_LAB_ENGINES_RANKS_RANKS_H_

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "tools/lab/engines/ranks/group_options.h"
#include "tools/lab/engines/ranks/rank_orders.h"

namespace stock_engine {

// The ranks of an engine as its parent sees them: child processes that run this
// program. If a rank ends, this process ends too, because the engine cannot
// continue without it. Not thread-safe.
class Ranks {
 public:
  // Starts the ranks and prints "ranks PID PID …"; does not wait for them.
  explicit Ranks(const GroupOptions& options);
  ~Ranks();  // ends their input and waits for their end
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  // Waits until all ranks have activated their views.
  std::vector<fs_kv_rank> ReadHellos();

  // Tells all ranks which one is first, and makes each rank open the next one's
  // buffer.
  void Introduce();

  // Queue orders for every rank. Finish sends them in this order.
  void Fill(uint32_t slab, uint32_t word) { Add({Ask::kFill, slab, word}); }
  void Check(uint32_t slab, uint32_t word) { Add({Ask::kCheck, slab, word}); }
  void Sync() { Add({Ask::kSync, 0, 0}); }
  void Write(uint32_t word) { Add({Ask::kWrite, 0, word}); }
  void Verify(uint32_t word) { Add({Ask::kVerify, 0, word}); }
  // Sent at once. True if all ranks have done it.
  bool Leave() { return AskAll(Ask::kLeave); }
  bool ComeBack() { return AskAll(Ask::kComeBack); }
  // Waits for all answers. Ends this process with kExitMismatch if an answer
  // says that a slab held something else. Does not wait for fills.
  void Finish();

 private:
  struct Child {
    pid_t pid;
    int orders;   // we write
    int answers;  // we read
  };
  void Start(const GroupOptions& options, int rank);
  void Add(const Order& order) { orders_.push_back(order); }
  bool AskAll(Ask ask);
  void Send(size_t rank, const void* from, size_t bytes);
  Answer Read(size_t rank);
  [[noreturn]] static void RankEnded(size_t rank);
  void Judge(size_t rank, const Answer& answer) const;

  std::vector<Child> children_;
  std::vector<RankHello> hellos_;
  std::vector<Order> orders_;
};

}  // namespace stock_engine

#endif  // TOOLS_LAB_ENGINES_RANKS_RANKS_H_
