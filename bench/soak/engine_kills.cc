#include "bench/soak/engine_kills.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "bench/soak/interrupt.h"
#include "tools/lab/process/eventually.h"

namespace fineserve::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kSeats = 8;
constexpr size_t kMostAtOnce = 4;
constexpr uint64_t kLongestPauseUs = 300'000;  // between two batches
// Kills in a round, which begins and ends with an empty pool.
constexpr uint64_t kRoundKills = 50;

// 24 slabs: the engines want several times as many.
const std::vector<std::string>& PoolFlags() {
  static const auto* const flags = new std::vector<std::string>{
      "--pool", "96MiB", "--slab", "4MiB", "--planes", "2"};
  return *flags;
}

// An exit code and the messages of tools/lab/engines.
constexpr int kExitNoKvMemory = 4;

bool FoundForeignBytes(const std::string& printed) {
  for (const char* words :
       {"error mismatch", "error foreign", "error nonzero", "kv zero: no"}) {
    if (printed.find(words) != std::string::npos) return true;
  }
  return false;
}

bool FoundNoSlabs(int code, const std::string& printed) {
  return code == kExitNoKvMemory &&
         printed.find("CUDA_ERROR_OUT_OF_MEMORY layer=") != std::string::npos;
}

}  // namespace

EngineKillFigures EngineKills::Run(uint64_t kills) {
  if (!site_.StartDaemon(PoolFlags()) || !site_.AwaitEmpty()) return figures_;
  const uint64_t round =
      std::min(kRoundKills, std::max<uint64_t>(1, kills / 3));
  for (uint64_t next_end = round; figures_.kills < kills && !Interrupted();) {
    seats_.resize(kSeats);
    for (Seat& seat : seats_) {
      if (seat.engine == nullptr) Fill(&seat);
    }
    if (Random(4) != 0) AwaitStarts();
    usleep(static_cast<useconds_t>(Random(kLongestPauseUs)));
    if (!KillBatch()) return figures_;
    if (figures_.kills < std::min(next_end, kills)) continue;
    if (!EndRound()) return figures_;
    next_end = figures_.kills + round;
  }
  return figures_;
}

void EngineKills::Fill(Seat* seat) {
  const std::string name = absl::StrCat("engine-", ++started_);
  process::Environment device;
  const uint64_t kind = Random(8);
  const bool queued = kind == 0;
  seat->lingers = queued || Random(3) == 0;
  seat->grows_old = Random(2) == 0;
  if (seat->lingers) {
    device["EMUCUDA_LINGER_MS"] = absl::StrCat(20 + Random(200));
  }
  // Lets steps be in flight when blocks are freed, and when their engine dies.
  if (seat->lingers || Random(2) == 0)
    device["EMUCUDA_STREAM_DELAY_US"] = "200";
  if (queued) {
    seat->engine = StartQueued(name, device);
  } else if (kind <= 2) {
    seat->engine = StartWhole(name, device);
  } else {
    seat->engine = StartView(name, device);
  }
  seat->member.reset();
  if (Random(8) == 0) seat->member = StartWhole(name, {});
}

std::unique_ptr<Process> EngineKills::StartView(
    const std::string& name, const process::Environment& device) {
  constexpr const char* kFormats[] = {"--page 33792", "--page 65536 --planes 2",
                                      "--page 18432 --planes 2 --mode guarded"};
  // Lets some end by themselves after a moment, so that kills hit them while
  // they end.
  const double seconds =
      Random(3) == 0 ? 0.05 + 0.001 * static_cast<double>(Random(400)) : 3600;
  std::string command =
      absl::StrCat("view_engine --fill-first --watermark 100 --random ",
                   seconds, " --seed ", started_, " --most ", 200 + Random(600),
                   " ", kFormats[Random(std::size(kFormats))]);
  if (Random(6) == 0) {
    absl::StrAppend(&command, " --child-outlives-ms ", Random(60));
  }
  return site_.StartEngine(name, process::Words(command), device);
}

std::unique_ptr<Process> EngineKills::StartWhole(
    const std::string& name, const process::Environment& device) {
  process::Environment environment = device;
  environment["FINESERVE_KV_SIZES"] = "4MiB";
  return site_.StartEngine(
      name,
      process::Words(absl::StrCat(
          "stock_engine --kv 4MiB --weights 1MiB --workspace 1MiB --layers ",
          1 + Random(2), " --seed ", started_, " --rounds ", 1 + Random(60))),
      environment);
}

std::unique_ptr<Process> EngineKills::StartQueued(
    const std::string& name, const process::Environment& device) {
  process::Environment environment = device;
  environment["FINESERVE_KV_SIZES"] = "4MiB";
  auto engine = site_.StartEngine(
      name,
      {"stock_engine", "--kv", "4MiB", "--layers", "2", "--weights", "1MiB",
       "--workspace", "1MiB", "--seed", absl::StrCat(started_), "--hold"},
      environment);
  engine->Tell("queue");
  return engine;
}

void EngineKills::AwaitStarts() {
  process::Eventually([this] {
    return std::all_of(seats_.begin(), seats_.end(), [](Seat& seat) {
      return !seat.engine->alive() || !seat.engine->Stderr().empty();
    });
  });
}

std::vector<EngineKills::Seat*> EngineKills::ChooseVictims() {
  std::vector<Seat*> victims;
  for (Seat& seat : seats_) {
    if (!seat.grows_old || Random(8) == 0) victims.push_back(&seat);
  }
  std::shuffle(victims.begin(), victims.end(), random_);
  victims.resize(std::min(victims.size(), 1 + Random(kMostAtOnce)));
  return victims;
}

bool EngineKills::KillBatch() {
  const std::vector<Seat*> victims = ChooseVictims();
  const uint64_t before = figures_.kills;
  const auto start = Clock::now();
  Kill(victims);
  const bool rests = site_.AwaitNoQuarantine();
  figures_.longest_rest_s =
      std::max(figures_.longest_rest_s,
               std::chrono::duration<double>(Clock::now() - start).count());
  ReplaceExited();
  progress_.Add(figures_.kills - before);
  return rests;
}

void EngineKills::Kill(const std::vector<Seat*>& seats) {
  CountWhatTheyHold(seats);
  std::vector<Process*> programs;
  for (Seat* seat : seats) {
    programs.push_back(seat->engine.get());
    if (seat->member != nullptr) programs.push_back(seat->member.get());
  }
  std::shuffle(programs.begin(), programs.end(), random_);
  for (Process* program : programs) program->Signal(SIGKILL);
  for (Seat* seat : seats) {
    Judge(seat->engine.get(), *seat);
    if (seat->member != nullptr) Judge(seat->member.get(), *seat);
    *seat = Seat{};
  }
}

void EngineKills::CountWhatTheyHold(const std::vector<Seat*>& seats) {
  const auto table = site_.Table();
  if (!table) return;
  for (const abi::EngineSnapshot& engine : table->engines) {
    const bool dies = std::any_of(seats.begin(), seats.end(), [&](Seat* seat) {
      const auto pid = static_cast<uint32_t>(seat->engine->pid());
      return std::count(engine.member_pids.begin(), engine.member_pids.end(),
                        pid) > 0;
    });
    if (!dies || engine.slabs_held == 0) continue;
    ++figures_.holding;
    figures_.asked_back += engine.view.returning > 0 ? 1 : 0;
  }
}

void EngineKills::Judge(Process* program, const Seat& seat) {
  const int code = program->Wait();
  const std::string printed = program->Stderr();
  if (FoundForeignBytes(printed)) {
    site_.Fail(
        Fault::kForeignBytes,
        "an engine found bytes that are not its own: " + program->About());
  } else if (code == -SIGKILL) {
    ++figures_.kills;
    figures_.starting += printed.empty() ? 1 : 0;
    figures_.lingering += seat.lingers ? 1 : 0;
  } else if (code == 0) {
    ++figures_.exited;
  } else if (FoundNoSlabs(code, printed)) {
    ++figures_.refused;
  } else {
    site_.Fail(Fault::kEnded, absl::StrCat("an engine ended with ", code, ": ",
                                           program->About()));
  }
}

void EngineKills::ReplaceExited() {
  for (Seat& seat : seats_) {
    if (seat.engine == nullptr || seat.engine->alive()) continue;
    Kill({&seat});
  }
}

bool EngineKills::EndRound() {
  std::vector<Seat*> all;
  for (Seat& seat : seats_) {
    if (seat.engine != nullptr) all.push_back(&seat);
  }
  Kill(all);
  if (!site_.AwaitEmpty() || !WholePoolIsZero() || !site_.AwaitEmpty()) {
    return false;
  }
  NoteSize();
  if (const auto table = site_.Table()) {
    figures_.slabs_quarantined = table->counters.slabs_quarantined;
    figures_.slabs_returned = table->counters.slabs_returned;
  }
  return true;
}

uint64_t EngineKills::LeasesGranted() const {
  const auto table = site_.Table();
  return table ? table->counters.leases_granted : 0;
}

bool EngineKills::WholePoolIsZero() {
  const uint64_t leases = LeasesGranted();
  const auto engine = site_.StartEngine(
      absl::StrCat("engine-", ++started_),
      {"stock_engine", "--kv", "96MiB", "--layers", "1", "--weights", "1MiB",
       "--workspace", "1MiB", "--rounds", "1"},
      {{"FINESERVE_KV_SIZES", "96MiB"}});
  const int code = engine->EndsWithin(process::kPatience) ? engine->Wait() : -1;
  const std::string printed = engine->Stderr();
  if (FoundForeignBytes(printed)) {
    site_.Fail(Fault::kForeignBytes,
               "a slab is not zero when it is leased: " + engine->About());
    return false;
  }
  if (code == 0 && LeasesGranted() == leases + 1) return true;
  site_.Fail(Fault::kNotAtRest,
             absl::StrCat("an engine that wants the whole pool ended with ",
                          code, ": ", engine->About()));
  return false;
}

void EngineKills::NoteSize() {
  // Takes the smallest size over a while, since connections of ours may still
  // be closing.
  ProcessSize least = SizeOf(site_.daemon().pid());
  for (int i = 0; i < 20; ++i) {
    process::Breathe();
    const ProcessSize now = SizeOf(site_.daemon().pid());
    least.descriptors = std::min(least.descriptors, now.descriptors);
    least.private_kib = std::min(least.private_kib, now.private_kib);
  }
  if (figures_.first.descriptors == 0) figures_.first = least;
  figures_.last = least;
}

}  // namespace fineserve::bench
