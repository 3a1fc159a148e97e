#ifndef DAEMON_SCHEDULING_EVICT_IDLE_ENGINES_H_
#define DAEMON_SCHEDULING_EVICT_IDLE_ENGINES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/optional.h"
#include "daemon/scheduling/evict/eviction_policy.h"
#include "daemon/scheduling/evict/idle_times.h"
#include "daemon/scheduling/local/predict/ids.h"

namespace fineserve::evict {

// Where an engine's memory is, or where it is moving to.
struct Residence {
  uint64_t bytes = 0;  // on the GPU, that leave with it; 0: away, or moves
  sched::Micros activation = 0;  // that its way back takes, as far as is known
  uint64_t away_bytes = 0;       // on the host
  uint32_t floor_slabs = 0;      // of its view: they leave with it
  bool spans_gpus = false;       // it leaves, and comes back to, others as well
  bool is_ordered = false;       // an operator waits until it is here
  bool is_off = false;           // the plan has no use for it here
  bool has_declined = false;     // a short while ago it could not leave
};

// The memory that an engine lacks, as far as is known.
struct Lack {
  // NOLINTNEXTLINE(google-explicit-constructor): mostly it is memory.
  Lack(uint64_t device_bytes) : bytes(device_bytes) {}
  static Lack OfFloor(uint32_t slabs) {
    Lack lack(0);
    lack.floor_slabs = slabs;
    return lack;
  }

  uint64_t amount() const { return floor_slabs != 0 ? floor_slabs : bytes; }
  // Returns the part of the lack that comes free if the engine at `there`
  // leaves.
  uint64_t Frees(const Residence& there) const {
    return floor_slabs != 0 ? there.floor_slabs : there.bytes;
  }

  uint64_t bytes;            // of the GPU's memory
  uint32_t floor_slabs = 0;  // of others' floors, in a pool that cannot grow
};

// Tracks the engines that may leave a GPU, and since when each has no request,
// and decides which one leaves. Pure: the caller reports what it sees, and
// carries out the decisions.
class IdleEngines {
 public:
  struct Rules {
    std::string name;
    std::string model = {};
    bool may_evict = false;
    sched::Micros evict_after = 0;  // without a request; 0: never by itself
    sched::Micros slo_ttft = 0;     // of its model
  };
  enum class Activity {
    kAway,  // it does not serve
    kIdle,
    kBusy,  // it has requests
  };
  IdleEngines(EvictionPolicy policy, std::vector<Rules> rules);

  // False if no engine may leave; then this object needs no reports.
  bool any() const { return any_; }

  // Records the state of an engine. To be called for each engine when its state
  // may have changed, and before the questions below. `residence` is nullopt if
  // the engine has no memory that can move, or has just shown that it cannot
  // leave.
  void Saw(size_t engine, Activity activity, sched::Micros now,
           const absl::optional<Residence>& residence);

  // Returns the engines that should leave now without being asked for room:
  // after `evict_after` without a request, or after kOffLeaves where they are
  // off. An engine that cannot leave is returned again after the same time.
  std::vector<size_t> Due(sched::Micros now);
  static constexpr sched::Micros kOffLeaves = 1'000'000;

  // Returns the engine other than `asker` that should leave next; nullopt if
  // there is none, or if all of them together are not enough for `lack`. An
  // engine that has declined is asked last, and only for requests or a start.
  absl::optional<size_t> WhoLeaves(RoomFor reason, absl::string_view asker,
                                   Lack lack, sched::Micros now) const;
  // Records that the engine leaves for others, so it may come back ahead of its
  // next request.
  void LeavesForOthers(size_t engine) { engines_[engine].is_out = true; }
  bool any_is_out() const;
  // Chooses an engine to come back ahead of its next request, while no engine
  // needs `free_bytes` of the GPU. Candidates have left for others, may come,
  // and take at most half of the free bytes. The engine whose absence is
  // expected to do the most harm for its size comes back. Engines on several
  // GPUs are left out, since they would need room on all of them. Until its
  // next request, the engine may leave again at any time.
  absl::optional<size_t> BringAhead(
      uint64_t free_bytes, absl::FunctionRef<bool(size_t engine)> may_come,
      sched::Micros now);
  // Makes one engine rest. To be called if requests of `asker` wait and no
  // engine is idle. The engine that has been on the GPU for the longest rests,
  // unless it has just come, so that it can leave once its running requests are
  // answered. It rests for kRest, or until the next call. False if no engine
  // can ever leave this way, or if all of them together are not enough.
  bool LetOneRest(absl::string_view asker, Lack lack, sched::Micros now);
  static constexpr sched::Micros kRest = 3'000'000;
  // Makes this engine rest, because its room is needed on another GPU. False if
  // it has just come, another engine rests, or it is not busy.
  bool LetRest(size_t engine, sched::Micros now);
  bool IsIdle(size_t engine) const {
    return engines_[engine].idle_since != kNotIdle;
  }
  // True if the engine should get no new requests now.
  bool Rests(size_t engine, sched::Micros now) const {
    return resting_ == engine && now < rest_until_;
  }
  absl::optional<size_t> WhoRests(sched::Micros now) const {
    return RestEnds(now) ? absl::optional<size_t>(resting_) : absl::nullopt;
  }
  // Returns when the resting engine takes requests again; nullopt if none
  // rests.
  absl::optional<sched::Micros> RestEnds(sched::Micros now) const {
    if (resting_ == kNone || now >= rest_until_) return absl::nullopt;
    return rest_until_;
  }
  // Takes over from `before` the history of the engines that both have.
  void GoOnFrom(const IdleEngines& before);

 private:
  static constexpr sched::Micros kNotIdle = -1;
  static constexpr size_t kNone = SIZE_MAX;

  struct Engine {
    Rules rules;
    sched::Micros idle_since = kNotIdle;
    sched::Micros asked = 0;       // to leave, by Due
    sched::Micros here_since = 0;  // on the GPU
    bool is_away = false;
    bool is_busy = false;
    bool is_out = false;    // it left for others
    bool is_ahead = false;  // it came, or comes, back without a request
    absl::optional<Residence> residence = {};
    IdleTimes times = {};
  };

  bool HasJustCome(const Engine& engine, sched::Micros now) const;
  // Returns the indices of the engines that are on the GPU, may leave for
  // `asker`, and have some of what it lacks.
  std::vector<size_t> Residents(RoomFor reason, absl::string_view asker,
                                const Lack& lack) const;
  IdleEngine Describe(size_t engine, uint64_t bytes, sched::Micros now) const;
  IdleEngine DescribeAsker(absl::string_view asker, sched::Micros now) const;

  const EvictionPolicy policy_;
  bool any_ = false;
  std::vector<Engine> engines_;
  IdleTimes all_;
  size_t resting_ = kNone;
  sched::Micros rest_until_ = 0;
};

}  // namespace fineserve::evict

#endif  // DAEMON_SCHEDULING_EVICT_IDLE_ENGINES_H_
