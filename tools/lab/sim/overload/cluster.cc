#include "tools/lab/sim/overload/cluster.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <queue>
#include <utility>

#include "tools/lab/sim/overload/batches.h"
#include "tools/lab/sim/overload/unit.h"

namespace fineserve::sim {
namespace {

constexpr double kTick = 100e3;  // of the monitor, µs
constexpr uint64_t kTicksOfSecond = 10;
constexpr double kMemory = 10e6;  // of rates, µs

enum class Kind : uint8_t { kArrival, kTry, kDone, kTick, kMoved, kRestored };
struct Event {
  double at;
  uint64_t order;
  Kind kind;
  Unit* unit;
  std::shared_ptr<Micro> micro;
  Sequence* sequence;
  Unit* to;
  double tokens;
};
struct Later {
  bool operator()(const Event& a, const Event& b) const {
    return a.at != b.at ? a.at > b.at : a.order > b.order;
  }
};

class Cluster {
 public:
  Cluster(const ClusterSetup& setup, const workload::Trace& trace)
      : s_(setup),
        copy_tokens_(static_cast<double>(setup.weight_bytes) /
                     static_cast<double>(setup.token_bytes)),
        own_tokens_(static_cast<double>(setup.kv_bytes) /
                    static_cast<double>(setup.token_bytes)) {
    for (const workload::Arrival& a : trace.arrivals) {
      Sequence q;
      q.index = sequences_.size();
      q.arrival = a.at_s * 1e6;
      q.prompt = q.target =
          std::min<double>(a.lengths.input, std::floor(own_tokens_ / 4));
      q.output = std::max<uint32_t>(1, a.lengths.output);
      sequences_.push_back(q);
    }
    const uint32_t width = s_.overload == Overload::kPipeline ? 2 : 1;
    for (uint32_t r = 0; r + width <= s_.replicas; r += width) {
      std::vector<uint32_t> replicas;
      for (uint32_t i = 0; i < width; ++i) replicas.push_back(r + i);
      AddUnit(replicas);
    }
  }

  ClusterResult Run() {
    for (Sequence& q : sequences_) Push(q.arrival, Kind::kArrival, nullptr, &q);
    Push(0, Kind::kTick, nullptr);
    while (!events_.empty() && done_ < sequences_.size() && !Ends()) {
      const Event e = events_.top();
      events_.pop();
      now_ = e.at;
      Handle(e);
    }
    return Result();
  }

 private:
  // See ClusterSetup::ends_above.
  bool Ends() const {
    const double last = sequences_.back().arrival;
    return s_.ends_above > 0 &&
           (now_ > last || used_sum_ > s_.ends_above * (last / kTick + 1));
  }

  // --- Events ---

  void Push(double at, Kind kind, Unit* unit, Sequence* q = nullptr,
            std::shared_ptr<Micro> micro = nullptr, Unit* to = nullptr,
            double tokens = 0) {
    events_.push({at, order_++, kind, unit, std::move(micro), q, to, tokens});
  }

  void Handle(const Event& e) {
    switch (e.kind) {
      case Kind::kArrival: {
        Unit* unit = LeastLoaded();
        unit->waiting.PushBack(e.sequence);
        return Form(unit);
      }
      case Kind::kTry:
        if (e.unit->alive) Form(e.unit);
        return;
      case Kind::kDone:
        return Done(e.unit, *e.micro);
      case Kind::kTick:
        return Tick();
      case Kind::kMoved:
        return Moved(e);
      case Kind::kRestored:
        return Restored(e.unit);
    }
  }

  Unit* AddUnit(const std::vector<uint32_t>& replicas) {
    units_.push_back(std::make_unique<Unit>());
    Unit* unit = units_.back().get();
    unit->replicas = replicas;
    const auto n = static_cast<double>(replicas.size());
    unit->capacity = n * own_tokens_ + (n - 1) * copy_tokens_;
    unit->stage_free.assign(replicas.size(), now_);
    unit->slot_busy.assign(replicas.size(), false);
    unit->busy_since = unit->decayed_at = now_;
    return unit;
  }

  std::vector<Unit*> Alive() const {
    std::vector<Unit*> alive;
    for (const auto& u : units_) {
      if (u->alive) alive.push_back(u.get());
    }
    return alive;
  }

  static double Queued(const Unit& u) {
    return u.waiting.tokens() + u.swapped.tokens();
  }

  Unit* LeastLoaded() const {
    Unit* best = nullptr;
    double least = 0;
    for (const auto& u : units_) {
      if (!u->alive) continue;
      const double load = (u->used + Queued(*u)) / u->capacity;
      if (best != nullptr && load >= least) continue;
      best = u.get();
      least = load;
    }
    return best;
  }

  // --- Batches ---

  void Form(Unit* u) {
    while (!u->closing && u->in_flight < u->stages() &&
           u->stage_free[0] <= now_) {
      auto m = std::make_shared<Micro>(batches_.Next(u, now_));
      if (m->chunks.empty()) return;
      Launch(u, m);
    }
  }

  // Returns when activations that are ready at `at` have arrived at the next
  // stage.
  double Passed(const Unit& u, double at, double tokens,
                double stage_us) const {
    const double us =
        tokens * static_cast<double>(s_.activation_bytes) / s_.network;
    if (u.link_free <= at) return at + us;
    // The activations wait for the whole exchange or, if coordinated, for the
    // rest of a chunk, which takes as long as a stage: on average half of one.
    return us + (s_.coordinated ? std::min(u.link_free, at + stage_us / 2)
                                : u.link_free);
  }

  void Launch(Unit* u, const std::shared_ptr<Micro>& m) {
    const double reads =
        u->reads.AddedUs(s_.step.WorkUs(m->load.tokens), m->load.tokens);
    const double stage_us =
        (s_.step.Us(m->load) + reads) / static_cast<double>(u->stages());
    if (u->in_flight == 0 && u->stage_free.back() < now_) u->busy_since = now_;
    double at = now_;
    for (size_t i = 0; i < u->stages(); ++i) {
      if (i > 0) at = Passed(*u, at, m->load.tokens, stage_us);
      at = std::max(at, u->stage_free[i]);
      if (u->stages() > 1) {
        gaps_ += at - std::max(u->stage_free[i], u->busy_since);
        works_ += stage_us;
      }
      at = u->stage_free[i] = at + stage_us;
    }
    ++u->in_flight;
    u->slot_busy[m->slot] = true;
    ++u->steps;
    if (m->load.tokens > s_.chunk_tokens / 2.) ++u->full_steps;
    if (u->stages() > 1) Push(u->stage_free[0], Kind::kTry, u);
    Push(at, Kind::kDone, u, nullptr, m);
  }

  void Done(Unit* u, const Micro& m) {
    --u->in_flight;
    u->slot_busy[m.slot] = false;
    for (const Chunk& c : m.chunks) {
      Sequence* q = c.sequence;
      --q->in_flight;
      if (!c.decodes) {
        q->filled += c.tokens;
        if (q->filled < q->target) continue;
      }
      if (++q->generated == 1) q->first = now_;
      if (q->generated >= q->output) Finish(u, q);
    }
    if (u->closing && u->in_flight == 0) return Change();
    Form(u);
  }

  void Finish(Unit* u, Sequence* q) {
    q->end = now_;
    ++done_;
    u->used -= q->held;
    u->freed += q->held;
    q->held = 0;
    q->runs = false;
    u->running.erase(std::find(u->running.begin(), u->running.end(), q));
  }

  // --- The monitor ---

  void Tick() {
    Sample();
    // Room may have become free without an event of the unit.
    for (Unit* u : Alive()) Form(u);
    if (done_ < sequences_.size()) Push(now_ + kTick, Kind::kTick, nullptr);
    switch (s_.overload) {
      case Overload::kMigrate:
        return Migrate();
      case Overload::kMerge:
        return MergeOrRestore();
      case Overload::kLend:
        return LendOrRestore();
      default:
        return;
    }
  }

  void Sample() {
    double used = 0, dropped = 0, asked = 0, capacity = 0;
    for (Unit* u : Alive()) {
      used += u->used;
      asked += u->used + Queued(*u);
      capacity += u->capacity;
      dropped += static_cast<double>(u->loans.bytes) +
                 static_cast<double>((u->stages() - 1) * s_.weight_bytes);
      const double keep = std::exp(-(now_ - u->decayed_at) / kMemory);
      u->freed *= keep;
      u->steps *= keep;
      u->full_steps *= keep;
      u->decayed_at = now_;
    }
    used /= own_tokens_ * s_.replicas;
    ++ticks_;
    if (dropped > 0) ++dropped_ticks_;
    if (now_ <= sequences_.back().arrival) {
      used_sum_ += used;
      ++used_ticks_;
    }
    result_.most_dropped_bytes =
        std::max(result_.most_dropped_bytes, static_cast<uint64_t>(dropped));
    if (ticks_ % kTicksOfSecond != 1) return;
    result_.used.push_back(used);
    result_.asked.push_back(asked / capacity);
    result_.dropped.push_back(dropped);
  }

  overload::KvLoad LoadOf(const Unit& u) const {
    const auto bytes = [&](double tokens) {
      return static_cast<uint64_t>(std::max(0.0, tokens)) * s_.token_bytes;
    };
    overload::KvLoad load;
    load.used = bytes(u.used);
    if (!u.waiting.empty()) {
      load.head = bytes(Rounded(u.waiting.front()->length() + 1));
    }
    load.queued = bytes(Queued(u));
    load.undropped = s_.kv_bytes * u.stages();
    load.dropped = u.loans.bytes + s_.weight_bytes * (u.stages() - 1);
    return load;
  }

  // Returns the most tokens that the decoding sequences add until the next
  // decision; it does not know where their answers end.
  double GrowthOf(const Unit& u) const {
    StepLoad step;
    for (const Sequence* q : u.running) {
      if (q->decodes()) step.AddDecode(q->length());
    }
    if (step.chunks == 0) return 0;
    return step.tokens * static_cast<double>(s_.thresholds.rest) /
           s_.step.Us(step);
  }

  // --- Llumnix ---

  void Migrate() {
    for (Unit* from : Alive()) {
      if (from->waiting.empty() || from->running.empty()) continue;
      if (from->link_free > now_) continue;
      if (Fits(*from, Rounded(from->waiting.front()->length() + 1))) continue;
      Unit* to = nullptr;
      for (Unit* u : Alive()) {
        if (u == from || !u->waiting.empty()) continue;
        if (to == nullptr || u->used < to->used) to = u;
      }
      Sequence* q = from->running.back();
      // Includes room for the tokens that the sequence adds on its way.
      const double tokens = q->held + 4 * kBlockTokens;
      if (to == nullptr || !Fits(*to, tokens) || q->ready > now_) continue;
      to->used += tokens;
      from->link_free =
          now_ + tokens * static_cast<double>(s_.token_bytes) / s_.network;
      Push(from->link_free, Kind::kMoved, from, q, nullptr, to, tokens);
    }
  }

  void Moved(const Event& e) {
    Sequence* q = e.sequence;
    q->moves = q->in_flight > 0;
    if (q->moves) {
      return Push(now_ + 1000, Kind::kMoved, e.unit, q, nullptr, e.to,
                  e.tokens);
    }
    e.to->used -= e.tokens;
    auto& running = e.unit->running;
    const auto found = std::find(running.begin(), running.end(), q);
    if (found == running.end() || !Fits(*e.to, q->held)) return;
    running.erase(found);
    e.unit->used -= q->held;
    Enter(e.to, q, q->held, 0);
    Form(e.unit);
    Form(e.to);
  }

  // --- KunServe ---

  void MergeOrRestore() {
    if (!changing_.empty()) return;
    const std::vector<Unit*> units = Alive();
    double lacks = 0;
    bool overloaded = false;
    for (const Unit* u : units) {
      const overload::KvLoad load = LoadOf(*u);
      lacks += static_cast<double>(load.queued);
      overloaded = overloaded || overload::ActFor(load, s_.thresholds,
                                                  now_us() - Us(changed_)) ==
                                     overload::Act::kDrop;
    }
    for (Unit* u : units) {
      if (u->restoring) return;
    }
    if (overloaded) return Merge(units, lacks);
    if (s_.restores) StartRestore(units);
  }
  sched::Micros now_us() const { return Us(now_); }
  static sched::Micros Us(double us) { return static_cast<sched::Micros>(us); }

  void Merge(const std::vector<Unit*>& units, double lacks) {
    std::vector<overload::Group> groups;
    for (const Unit* u : units) {
      groups.push_back({u->replicas, LoadOf(*u).Full()});
    }
    const overload::MergePlan plan = overload::MergeGroups(
        groups, s_.weight_bytes, static_cast<uint64_t>(std::max(1.0, lacks)));
    if (plan.merges == 0) {
      ++result_.refused["one group has all replicas"];
      return;
    }
    for (const overload::Group& g : plan.groups) {
      std::vector<Unit*> from;
      for (Unit* u : units) {
        if (std::find(g.replicas.begin(), g.replicas.end(), u->replicas[0]) !=
            g.replicas.end())
          from.push_back(u);
      }
      if (from.size() > 1) changing_.push_back({from, true});
    }
    changed_ = now_;
    ++result_.drops;
    Close();
  }

  // Returns the time to move KV out of the memory to which weights come back:
  // it is first read and written within each replica's memory. KV is spread
  // evenly. Our design needs no such move, because weights come back to
  // whichever slabs are free (note 0048).
  double VacateUs(const Unit& u) const {
    if (s_.memory == 0) return 0;
    const auto n = static_cast<double>(u.stages());
    const double dropped = (n - 1) * copy_tokens_;
    const double moved = u.used * dropped / (dropped + n * own_tokens_);
    return 2 * moved * static_cast<double>(s_.token_bytes) / n / s_.memory;
  }

  void StartRestore(const std::vector<Unit*>& units) {
    for (Unit* u : units) {
      const auto act =
          overload::ActFor(LoadOf(*u), s_.thresholds, now_us() - Us(changed_));
      if (u->stages() < 2 || act != overload::Act::kRestore) continue;
      // From now on, the unit has as much KV as without a drop.
      u->capacity = own_tokens_ * static_cast<double>(u->stages());
      const auto n = static_cast<double>(u->stages());
      const double bytes = static_cast<double>(s_.weight_bytes) * (n - 1) / n;
      u->link_free =
          std::max(u->link_free, now_ + VacateUs(*u)) + bytes / s_.network;
      u->restoring = true;
      Push(u->link_free, Kind::kRestored, u);
      return;
    }
  }

  void Close() {
    for (const auto& change : changing_) {
      for (Unit* u : change.from) u->closing = true;
    }
    Change();
  }

  // Makes those changes whose units have no batch in flight.
  void Change() {
    for (size_t i = 0; i < changing_.size();) {
      const auto change = changing_[i];
      const bool rest =
          std::all_of(change.from.begin(), change.from.end(),
                      [](const Unit* u) { return u->in_flight == 0; });
      if (!rest) {
        ++i;
        continue;
      }
      changing_.erase(changing_.begin() + static_cast<ptrdiff_t>(i));
      change.merge ? MakeOne(change.from) : MakeSeveral(change.from[0]);
    }
  }

  // Moves the `share` of the sequence's KV that other replicas hold from now
  // on. Sequences move one after the other, and each waits only for its own KV
  // to move.
  void Exchange(Unit* u, Sequence* q, double share, double network) {
    const double us =
        q->held * share * static_cast<double>(s_.token_bytes) / network;
    u->link_free = std::max(u->link_free, now_) + us;
    q->ready = u->link_free;
    Push(q->ready, Kind::kTry, u);
  }

  void MakeOne(const std::vector<Unit*>& from) {
    std::vector<uint32_t> replicas;
    for (const Unit* u : from) {
      replicas.insert(replicas.end(), u->replicas.begin(), u->replicas.end());
    }
    Unit* one = AddUnit(replicas);
    const auto stages = static_cast<double>(one->stages());
    std::vector<Sequence*> waiting;
    uint32_t next = 0;
    for (Unit* u : from) {
      u->alive = false;
      const auto had = static_cast<double>(u->stages());
      for (Sequence* q : u->running) {
        Enter(one, q, q->held, next++ % static_cast<uint32_t>(stages));
        Exchange(one, q, (stages - had) / stages, s_.network * stages);
      }
      waiting.insert(waiting.end(), u->waiting.begin(), u->waiting.end());
    }
    std::stable_sort(waiting.begin(), waiting.end(),
                     [](const Sequence* a, const Sequence* b) {
                       return a->arrival < b->arrival;
                     });
    for (Sequence* q : waiting) one->waiting.PushBack(q);
    Form(one);
  }

  void MakeSeveral(Unit* u) {
    u->alive = false;
    std::vector<Unit*> parts;
    for (const uint32_t r : u->replicas) parts.push_back(AddUnit({r}));
    const auto least = [&] {
      return *std::min_element(
          parts.begin(), parts.end(),
          [](const Unit* a, const Unit* b) { return a->used < b->used; });
    };
    const auto stages = static_cast<double>(u->stages());
    for (Sequence* q : u->running) {
      Unit* part = least();
      Enter(part, q, q->held, 0);
      Exchange(part, q, (stages - 1) / stages, s_.network);
    }
    for (Sequence* q : u->waiting) least()->waiting.PushBack(q);
    changed_ = now_;
    ++result_.restores;
    for (Unit* part : parts) Form(part);
  }

  void Restored(Unit* u) {
    if (s_.overload == Overload::kMerge) {
      if (!u->alive) return;
      u->restoring = false;
      changing_.push_back({{u}, false});
      return Close();
    }
    u->restoring = false;
    ++result_.restores;
    overload::Lending lending = Lending();
    lending[u->replicas[0]] = {};
    SetLending(lending);
  }

  // --- Ours ---

  void Pause(Unit* u) {
    u->stage_free[0] = std::max(u->stage_free[0], now_) + s_.pause_us;
    Push(u->stage_free[0], Kind::kTry, u);
  }

  overload::Replica ReplicaOf(const Unit& u) const {
    overload::Replica r;
    r.kv = LoadOf(u);
    r.kv.growth = static_cast<uint64_t>(GrowthOf(u)) * s_.token_bytes;
    r.loans = u.loans.all;
    // A restoring unit still lends what it has, but drops nothing further.
    if (u.restoring) r.kv.used = r.kv.queued = 0;
    r.fingerprint = 1;
    r.domain = s_.domain > 1 ? 1 + u.replicas[0] / s_.domain : 0;
    r.waiting = static_cast<uint32_t>(u.waiting.size());
    r.running = static_cast<uint32_t>(u.running.size());
    r.freed_per_us = u.freed * static_cast<double>(s_.token_bytes) / kMemory;
    r.full_share = u.steps > 0 ? u.full_steps / u.steps : 0;
    const double n = std::max(1.0, static_cast<double>(u.running.size()));
    const StepCost* step = &s_.step;
    r.decode_us = [step, n](const sched::PeerReads& reads) {
      return step->WorkUs(n) + reads.AddedUs(step->WorkUs(n), n);
    };
    const double chunk = s_.chunk_tokens;
    r.full_us = [step, chunk](const sched::PeerReads& reads) {
      return step->WorkUs(chunk) + reads.AddedUs(step->WorkUs(chunk), chunk);
    };
    return r;
  }

  void LendOrRestore() {
    for (uint32_t i = 0; i < units_.size(); ++i) {
      Unit* u = units_[i].get();
      if (u->restoring) continue;
      const auto act = overload::ActFor(LoadOf(*u), s_.thresholds,
                                        now_us() - Us(u->changed));
      if (act == overload::Act::kRestore && s_.restores) {
        const double us =
            static_cast<double>(u->loans.bytes) / s_.terms.link_bytes_per_us;
        u->capacity = own_tokens_;
        u->restoring = true;
        Push(now_ + us, Kind::kRestored, u);
      }
      if (act == overload::Act::kDrop) Drop(i);
    }
  }

  void Drop(uint32_t asker) {
    std::vector<overload::Replica> replicas;
    for (const auto& u : units_) replicas.push_back(ReplicaOf(*u));
    const overload::DropDecision d =
        overload::DropFor(asker, replicas, s_.terms);
    if (d.why != overload::Why::kDrops) {
      ++result_.refused[overload::Text(d.why)];
      return;
    }
    ++result_.drops;
    SetLending(d.lending);
  }

  overload::Lending Lending() const {
    overload::Lending lending;
    for (const auto& u : units_) lending.push_back(u->loans);
    return lending;
  }

  void SetLending(const overload::Lending& lending) {
    const auto reads = overload::ReadsOf(
        lending, s_.terms.parts, s_.terms.link_bytes_per_us, s_.terms.reread);
    for (size_t i = 0; i < units_.size(); ++i) {
      Unit* u = units_[i].get();
      u->reads = reads[i];
      if (lending[i].bytes == u->loans.bytes) continue;
      u->loans = lending[i];
      u->capacity = own_tokens_ + static_cast<double>(u->loans.bytes) /
                                      static_cast<double>(s_.token_bytes);
      u->changed = now_;
      Pause(u);
    }
  }

  // --- The end ---

  ClusterResult Result() {
    result_.seconds = now_ / 1e6;
    result_.preemptions = batches_.preemptions();
    result_.mean_used =
        used_sum_ / static_cast<double>(std::max<uint64_t>(1, used_ticks_));
    result_.bubbles = works_ > 0 ? gaps_ / (gaps_ + works_) : 0;
    result_.dropped_share = static_cast<double>(dropped_ticks_) /
                            static_cast<double>(std::max<uint64_t>(1, ticks_));
    for (const Sequence& q : sequences_) {
      workload::Outcome o;
      o.end = q.end >= 0 ? workload::End::kDone : workload::End::kFailed;
      o.begin_s = q.arrival / 1e6;
      o.first_token_s = q.first / 1e6;
      o.end_s = q.end / 1e6;
      o.lengths = {static_cast<uint32_t>(q.prompt),
                   static_cast<uint32_t>(q.output)};
      result_.outcomes.push_back(o);
    }
    return std::move(result_);
  }

  struct Changing {
    std::vector<Unit*> from;
    bool merge;
  };

  const ClusterSetup& s_;
  const double copy_tokens_, own_tokens_;
  Batches batches_{s_, [this](Unit* u, double at) { Push(at, Kind::kTry, u); }};
  double now_ = 0;
  uint64_t order_ = 0;
  size_t done_ = 0;
  std::vector<Sequence> sequences_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::priority_queue<Event, std::vector<Event>, Later> events_;
  std::vector<Changing> changing_;
  double changed_ = -1e12;
  double gaps_ = 0, works_ = 0;
  uint64_t ticks_ = 0, dropped_ticks_ = 0, used_ticks_ = 0;
  double used_sum_ = 0;
  ClusterResult result_;
};

}  // namespace

ClusterResult RunCluster(const ClusterSetup& setup,
                         const workload::Trace& trace) {
  if (trace.arrivals.empty()) return {};
  return Cluster(setup, trace).Run();
}

}  // namespace fineserve::sim
