#ifndef TESTS_ENGINES_GROUP_RANKS_H_
#define TESTS_ENGINES_GROUP_RANKS_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shim/fineserve_kv.h"
#include "tests/engines/group/group_options.h"

namespace stock_engine {

// Messages between the parent of a group engine and its ranks, as bytes through
// pipes. A rank says RankHello first, and obeys orders until the end of its
// input.

struct RankHello {
  fs_kv_rank rank;
  fs_kv_geometry geometry;
};

enum class Ask : uint32_t {
  kFill = 1,  // queue a fill of the slab with `word`; has no answer
  kCheck,     // after all before it: does the slab hold `word` everywhere?
  kSync       // answer when the device has done all before it
};

struct Order {
  Ask ask;
  uint32_t slab;  // view index
  uint32_t word;
};

struct Answer {
  uint32_t slab;
  uint32_t wrong;  // 1: another word was found
  uint32_t at;     // its place, in words
  uint32_t wanted;
  uint32_t got;
};

// Reads or writes all of it. False at the end of the pipe.
bool ReadAll(int fd, void* to, size_t bytes);
bool WriteAll(int fd, const void* from, size_t bytes);

// The ranks of an engine as its parent sees them: child processes that run this
// program. If one ends, so does this process: an engine cannot go on without.
// Not thread-safe.
class Ranks {
 public:
  // Starts them and prints "ranks PID PID …"; does not wait for them.
  explicit Ranks(const GroupOptions& options);
  ~Ranks();  // ends their input and waits for their end
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  // Waits until all have activated their views.
  std::vector<fs_kv_rank> ReadHellos();

  // Orders for every rank, which Finish sends, in this order.
  void Fill(uint32_t slab, uint32_t word) { Add({Ask::kFill, slab, word}); }
  void Check(uint32_t slab, uint32_t word) { Add({Ask::kCheck, slab, word}); }
  void Sync() { Add({Ask::kSync, 0, 0}); }
  // Waits for all answers, and ends this process with kExitMismatch if one of
  // them is that a slab held something else. Does not wait for fills.
  void Finish();

 private:
  struct Child {
    pid_t pid;
    int orders;   // we write
    int answers;  // we read
  };
  void Start(const GroupOptions& options, int rank);
  void Add(const Order& order) { orders_.push_back(order); }
  [[noreturn]] static void RankEnded(size_t rank);
  void Judge(size_t rank, const Answer& answer) const;

  std::vector<Child> children_;
  std::vector<Order> orders_;
};

}  // namespace stock_engine

#endif  // TESTS_ENGINES_GROUP_RANKS_H_
