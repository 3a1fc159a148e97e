#include "daemon/proxy/page/frame.h"

#include <algorithm>
#include <cstddef>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/base/http/api_error.h"
#include "daemon/contract/abi/slab_state_name.h"
#include "daemon/contract/wire/message.h"
#include "daemon/contract/wire/newest_plan.h"

namespace fineserve::proxy {
namespace {

using abi::SlabState;

const char* Bool(bool value) { return value ? "true" : "false"; }

// Returns "[a,b]", made of what `text` returns for each item.
template <typename Items, typename Text>
std::string Array(const Items& items, Text text) {
  std::string out = "[";
  for (const auto& item : items) {
    if (out.size() > 1) out += ',';
    absl::StrAppend(&out, text(item));
  }
  return out + "]";
}

bool SameRun(abi::SlabWord a, abi::SlabWord b) {
  return a.state == b.state && a.engine == b.engine;
}

std::string Runs(const std::vector<abi::SlabSnapshot>& slabs) {
  std::string out = "[";
  for (size_t first = 0; first < slabs.size();) {
    const abi::SlabWord word = slabs[first].word;
    size_t end = first + 1;
    while (end < slabs.size() && SameRun(slabs[end].word, word)) ++end;
    absl::StrAppend(&out, first == 0 ? "" : ",", static_cast<int>(word.state),
                    ",", word.engine, ",", end - first);
    first = end;
  }
  return out + "]";
}

// Returns the share policy's inputs, in bytes. Null for an engine without a
// view, whose slabs belong to it until it frees them.
std::string ViewText(const abi::ViewRecord& view, uint64_t slab_bytes) {
  if (view.mode == abi::ViewMode::kNone) return "null";
  return absl::StrCat(
      "{\"active\":", Bool(view.state == abi::ViewState::kActive),
      ",\"suspended\":", Bool(view.state == abi::ViewState::kSuspended),
      ",\"floor\":", view.floor * slab_bytes,
      ",\"cap\":", view.cap * slab_bytes,
      ",\"target\":", view.target * slab_bytes,
      ",\"wanted\":", view.wanted * slab_bytes,
      ",\"returning\":", view.returning * slab_bytes, "}");
}

std::string EngineText(const abi::EngineSnapshot& engine, uint64_t slab_bytes) {
  return absl::StrCat("{\"id\":", engine.id,
                      ",\"name\":", JsonQuote(engine.name), ",\"pids\":[",
                      absl::StrJoin(engine.member_pids, ","),
                      "],\"quarantined\":",
                      Bool(engine.state == abi::EngineState::kQuarantined),
                      ",\"held\":", engine.slabs_held * slab_bytes,
                      ",\"view\":", ViewText(engine.view, slab_bytes), "}");
}

// Counts the bytes that are promised to a single engine, and those that engines
// compete for. A sleeping engine's floor is not promised, and none competes for
// slabs that are leased whole.
struct Shares {
  uint64_t present = 0;
  uint64_t whole = 0;
  uint64_t floors = 0;

  uint64_t contested() const {
    return present - std::min(present, whole + floors);
  }
};

Shares SharesOf(const abi::TableSnapshot& table) {
  Shares shares;
  const uint64_t slab_bytes = table.slab_bytes();
  shares.present = PresentBytes(table);
  for (const abi::SlabSnapshot& slab : table.slabs) {
    if (slab.word.state == SlabState::kFull) shares.whole += slab_bytes;
  }
  for (const abi::EngineSnapshot& engine : table.engines) {
    if (engine.view.state != abi::ViewState::kActive) continue;
    shares.floors += engine.view.floor * slab_bytes;
  }
  return shares;
}

std::string TableText(const abi::TableSnapshot& table) {
  const uint64_t slab_bytes = table.slab_bytes();
  const Shares shares = SharesOf(table);
  const abi::CounterSnapshot& c = table.counters;
  return absl::StrCat(
      "{\"device\":", JsonQuote(table.gpu_name),
      ",\"emulated\":", Bool((table.flags & abi::kTableEmulatedDevice) != 0),
      ",\"kept\":", Bool(table.is_kept()), ",\"epoch\":\"", table.epoch,
      "\",\"pid\":", table.daemon_pid, ",\"number\":", table.daemons,
      ",\"slab_bytes\":", slab_bytes, ",\"slabs\":", table.slabs.size(),
      ",\"present\":", shares.present, ",\"whole\":", shares.whole,
      ",\"floors\":", shares.floors, ",\"contested\":", shares.contested(),
      ",\"asked_back\":", c.slabs_asked_back,
      ",\"returned\":", c.slabs_returned, ",\"leases\":", c.leases_granted,
      ",\"denied\":", c.leases_denied, ",\"engines\":",
      Array(table.engines,
            [=](const auto& engine) { return EngineText(engine, slab_bytes); }),
      ",\"runs\":", Runs(table.slabs), "}");
}

std::string GpuText(const GpuSight& sight) {
  return absl::StrCat(
      "{\"name\":", JsonQuote(sight.name), ",\"answers\":", Bool(sight.answers),
      ",\"why\":", JsonQuote(sight.why), ",\"since\":", sight.since_ms,
      ",\"pool\":", sight.table ? TableText(*sight.table) : "null", "}");
}

std::string ReadingText(const absl::optional<PeerReading>& reading,
                        int64_t zero_ms) {
  if (!reading) return "null";
  return absl::StrCat(
      "{\"bytes\":", reading->bytes, ",\"lender\":", reading->lender_pid,
      ",\"since\":",
      zero_ms + static_cast<int64_t>(reading->since_ns / 1'000'000),
      ",\"step_us\":", reading->step_us, "}");
}

std::string FleetEngineText(const config::FleetEngine& engine,
                            const ProxySight& sight) {
  return absl::StrCat(
      "{\"name\":", JsonQuote(engine.name), ",\"gpu\":", JsonQuote(engine.gpu),
      ",\"serves\":", Bool(sight.admission->Serves(engine.name)),
      ",\"let_in\":", Bool(sight.admission->LetsIn(engine.name)),
      ",\"on_request\":", Bool(engine.on_request),
      ",\"scaled\":", Bool(engine.is_scaled),
      ",\"stopped\":", Bool(sight.admission->IsStoppedByHand(engine.name)),
      ",\"evicted\":",
      Bool(sight.admission->IsEvicted(engine.model, engine.gpu)),
      ",\"reading\":",
      ReadingText(sight.admission->ReadingOf(engine.name), sight.zero_ms), "}");
}

std::string ModelText(const config::FleetModel& model,
                      const ProxySight& sight) {
  const Traffic::Figures f = sight.traffic->Of(model.name, sight.now_ns);
  std::vector<std::string> engines;
  for (const config::FleetEngine& engine : sight.fleet->engines) {
    if (engine.model != model.name) continue;
    engines.push_back(FleetEngineText(engine, sight));
  }
  return absl::StrCat("{\"name\":", JsonQuote(model.name),
                      ",\"slo_ttft_ms\":", model.slo_ttft_ms,
                      ",\"waiting\":", f.waiting, ",\"running\":", f.running,
                      ",\"first_tokens\":", f.first_tokens,
                      ",\"ttft_p50_us\":", f.ttft_p50_ns / 1000,
                      ",\"ttft_p99_us\":", f.ttft_p99_ns / 1000,
                      ",\"on_time\":", f.on_time, ",\"late\":", f.late,
                      ",\"engines\":[", absl::StrJoin(engines, ","), "]}");
}

std::string PlaceText(const wire::PlannedPlaceT& place) {
  return absl::StrCat("{\"engine\":", JsonQuote(place.engine), ",\"state\":\"",
                      wire::PlaceStateName(place.state),
                      "\",\"rate\":", place.target_rate, "}");
}

std::string ChangeText(const wire::PlaceChange& change) {
  return absl::StrCat("{\"number\":", change.number,
                      ",\"engine\":", JsonQuote(change.engine), ",\"from\":\"",
                      wire::PlaceStateName(change.from), "\",\"to\":\"",
                      wire::PlaceStateName(change.to), "\"}");
}

std::string PlanText(const wire::NewestPlan* newest) {
  if (newest == nullptr || newest->plan() == nullptr) return "null";
  const wire::PlanT& plan = *newest->plan();
  return absl::StrCat(
      "{\"number\":", plan.number, ",\"leader\":", JsonQuote(plan.leader),
      ",\"places\":",
      Array(plan.places, [](const auto& place) { return PlaceText(*place); }),
      ",\"changes\":", Array(newest->changes(), ChangeText), "}");
}

// Returns the duration of each phase of the request, in µs. Phases that it
// never reached have no duration: the phase before lasted until the end.
std::string RequestText(const Life& life, const ProxySight& sight) {
  const LifeAttempt& last = life.last_attempt();
  const uint64_t begun = life.read_ns;
  const uint64_t asked =
      life.attempts[0].asked_ns != 0 ? life.attempts[0].asked_ns : begun;
  const uint64_t decided = last.decided_ns != 0 ? last.decided_ns
                           : last.asked_ns != 0 ? life.ended_ns
                                                : asked;
  const uint64_t first = life.first_ns != 0  ? life.first_ns
                         : last.sent_ns != 0 ? life.ended_ns
                                             : decided;
  return absl::StrCat(
      "{\"id\":", JsonQuote(life.id), ",\"model\":", JsonQuote(life.model),
      ",\"engine\":", JsonQuote(last.engine), ",\"status\":", life.status,
      ",\"attempts\":", life.attempt_count, ",\"stream\":", Bool(life.stream),
      ",\"counting_us\":", (asked - begun) / 1000,
      ",\"waiting_us\":", (decided - asked) / 1000,
      ",\"engine_us\":", (first - decided) / 1000,
      ",\"relaying_us\":", (life.ended_ns - first) / 1000, ",\"ended\":",
      sight.zero_ms + static_cast<int64_t>(life.ended_ns / 1'000'000), "}");
}

std::string Requests(const ProxySight& sight) {
  const Recorder& recorder = *sight.recorder;
  if (!recorder.keeps()) return "null";
  std::vector<std::string> newest_first;
  for (uint64_t n = recorder.ended();
       n > recorder.oldest() && newest_first.size() < kMostShown; --n) {
    const Life& life = *recorder.Ended(n - 1);
    if (!life.model.empty()) newest_first.push_back(RequestText(life, sight));
  }
  return absl::StrCat("[", absl::StrJoin(newest_first, ","), "]");
}

std::vector<std::string> DaemonsAway(const Admission& admission) {
  std::vector<std::string> away;
  for (const auto& [gpu, decides] : admission.Daemons()) {
    if (!decides) away.push_back(gpu);
  }
  return away;
}

}  // namespace

std::string GpuPart(const std::vector<GpuSight>& sights) {
  std::string out =
      absl::StrCat("\"gpus\":", Array(sights, GpuText), ",\"states\":[");
  for (int i = 0; i < abi::kSlabStateCount; ++i) {
    absl::StrAppend(&out, i == 0 ? "\"" : ",\"",
                    abi::SlabStateName(static_cast<SlabState>(i)), "\"");
  }
  return out + "]";
}

std::string ProxyPart(const ProxySight& sight) {
  return absl::StrCat(
      "\"models\":",
      Array(sight.fleet->models,
            [&](const auto& model) { return ModelText(model, sight); }),
      ",\"plan\":", PlanText(sight.admission->Plan()),
      ",\"requests\":", Requests(sight),
      ",\"away\":", Array(DaemonsAway(*sight.admission), JsonQuote),
      ",\"unscheduled\":", sight.traffic->unscheduled(),
      ",\"draining\":", Bool(sight.draining), ",\"logs\":", Bool(sight.logs),
      ",\"version\":\"" FINESERVE_VERSION "\"");
}

std::string Frame(const std::string& gpu_part, const std::string& proxy_part) {
  return absl::StrCat("{", gpu_part, ",", proxy_part, "}");
}

}  // namespace fineserve::proxy
