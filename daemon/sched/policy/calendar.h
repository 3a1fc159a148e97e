#ifndef DAEMON_SCHED_POLICY_CALENDAR_H_
#define DAEMON_SCHED_POLICY_CALENDAR_H_

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "daemon/sched/policy/huge_pages.h"
#include "daemon/sched/policy/waiting_tree.h"
#include "daemon/sched/predict/ids.h"

namespace fineserve::sched {

// Requests of which only the one with the soonest deadline is asked for.
//
// Those that are near lie in order, all others in days: unordered lists, one
// for each day of two milliseconds. So whoever comes and goes far from the
// front, as most do, costs no search: with 10⁶ waiting a search is three or
// four cache misses one after the other, a list's neighbours are written and
// not waited for (a calendar queue: Brown, CACM 31(10), 1988; its days are
// unordered as well). Order is made of a day when all before it have gone, once
// for most of its requests, O(log n) each.
//
// Invariants: every near request is of a day before the first far one; some
// are near unless it is empty; no day is empty. Confined to one thread.
class Calendar {
 public:
  using Handle = uint32_t;  // of a request that is there

  Handle Add(const Waiting& request);
  void Remove(Handle handle);

  bool empty() const { return near_.empty(); }
  size_t near() const { return near_.size(); }  // in order, not in days
  size_t pages() const { return pages_.size(); }

  // What is known of a request is on its way from memory then.
  void Prefetch(Handle handle) const { __builtin_prefetch(&pages_[handle]); }

  // The soonest, as Sooner orders them; there must be one.
  const Waiting& First() const {
    return pages_[std::get<Handle>(*near_.begin())].request;
  }

 private:
  using Day = int64_t;
  // Heuristic: with 10⁶ waiting over two seconds a day is 1,000 requests, put
  // in order in 0.1 ms; shorter days are too many for the caches.
  static constexpr int kDayBits = 11;  // a day: 2¹¹ µs
  // Heuristic: a few hundred bytes of each flow in the caches. All of a small
  // queue is near.
  static constexpr size_t kMostNear = 64;
  static constexpr Handle kNone = UINT32_MAX;

  struct Page {
    Waiting request;
    Handle previous, next;  // of the same day, if it is far
  };
  using Near = std::tuple<Micros, RequestId, Handle>;

  static Day DayOf(Micros deadline) { return deadline >> kDayBits; }
  Near NearOf(Handle handle) const;
  bool IsNear(const Waiting& request) const;

  Handle New(const Waiting& request);
  // Into and out of its day.
  void Link(Handle handle);
  void Unlink(Handle handle);
  // Too many are near: those of the last day leave, if they are not the most.
  void Spill();
  // Nobody is near: those of the first day are.
  void Refill();

  std::vector<Page, HugePages<Page>> pages_;
  std::vector<Handle> free_;
  absl::btree_set<Near> near_;
  absl::btree_map<Day, Handle> far_;  // the first of each day's list
};

}  // namespace fineserve::sched

#endif  // DAEMON_SCHED_POLICY_CALENDAR_H_
