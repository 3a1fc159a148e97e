#ifndef DAEMON_SCHEDULING_LOCAL_POLICY_CALENDAR_H_
#define DAEMON_SCHEDULING_LOCAL_POLICY_CALENDAR_H_

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "daemon/scheduling/local/policy/huge_pages.h"
#include "daemon/scheduling/local/policy/waiting_tree.h"
#include "daemon/scheduling/local/predict/ids.h"

namespace fineserve::sched {

// Requests of which only the one with the soonest deadline is ever asked for.
//
// Near requests are kept in order, far ones in days: unordered lists, one for
// each day of two milliseconds. A request that comes or goes far from the
// front, as most do, then costs no search. With 10⁶ waiting a search is three
// or four cache misses one after the other, while the neighbours in a list are
// written without waiting for them. (This is a calendar queue: Brown, CACM
// 31(10), 1988; its days are unordered as well.) A day is put in order when all
// days before it are empty, which for most requests happens once, at O(log n)
// each.
//
// Invariants: every near request belongs to a day before the first far one; the
// near set is empty only if the calendar is; no day is empty. Confined to one
// thread.
class Calendar {
 public:
  using Handle = uint32_t;  // of a request that is there

  Handle Add(const Waiting& request);
  void Remove(Handle handle);

  bool empty() const { return near_.empty(); }
  size_t near() const { return near_.size(); }  // kept in order, not in days
  size_t slots() const { return slots_.size(); }

  // Prefetches what is known about a request from memory.
  void Prefetch(Handle handle) const { __builtin_prefetch(&slots_[handle]); }

  // Returns the soonest request, as Sooner orders them; there must be one.
  const Waiting& First() const {
    return slots_[std::get<Handle>(*near_.begin())].request;
  }

 private:
  using Day = int64_t;
  // Heuristic: with 10⁶ requests waiting over two seconds, a day is 1,000
  // requests, which are put in order in 0.1 ms; shorter days are too many for
  // the caches.
  static constexpr int kDayBits = 11;  // a day: 2¹¹ µs
  // Heuristic: a few hundred bytes of each flow stay in the caches. All of a
  // small queue is near.
  static constexpr size_t kMostNear = 64;
  static constexpr Handle kNone = UINT32_MAX;

  struct Slot {
    Waiting request;
    Handle previous, next;  // in the same day, if the request is far
  };
  using Near = std::tuple<Micros, RequestId, Handle>;

  static Day DayOf(Micros deadline) { return deadline >> kDayBits; }
  Near NearOf(Handle handle) const;
  bool IsNear(const Waiting& request) const;

  Handle New(const Waiting& request);
  // Link puts a far request into its day, and Unlink takes it out.
  void Link(Handle handle);
  void Unlink(Handle handle);
  // Demotes the last day of a near set that is too large, unless that day is
  // more than half of the set.
  void Spill();
  // Promotes the first day, when the near set is empty.
  void Refill();

  std::vector<Slot, HugePages<Slot>> slots_;
  std::vector<Handle> free_;
  absl::btree_set<Near> near_;
  absl::btree_map<Day, Handle> far_;  // the head of each day's list
};

}  // namespace fineserve::sched

#endif  // DAEMON_SCHEDULING_LOCAL_POLICY_CALENDAR_H_
