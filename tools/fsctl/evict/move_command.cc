#include "tools/fsctl/evict/move_command.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "daemon/contract/abi/byte_size.h"
#include "daemon/contract/abi/move_link.h"
#include "daemon/contract/abi/socket_path.h"
#include "daemon/contract/abi/view_messages.h"
#include "daemon/contract/finding/daemon_sockets.h"
#include "daemon/contract/finding/engine_sights.h"
#include "tools/fsctl/daemons/daemon_choice.h"
#include "tools/fsctl/daemons/find_engine.h"
#include "tools/fsctl/processes/inspected_process.h"
#include "tools/fsctl/terminal/commands.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/fsctl/terminal/json_text.h"
#include "tools/fsctl/terminal/quantities.h"

namespace fineserve::fsctl {
namespace {

// `what` names the feature that the older daemon lacks.
int FailAtAnOlderDaemon(const char* what) {
  return Fail(kExitNoDaemon,
              absl::StrCat("this fineserved is of a release ", what,
                           "; fsctl upgrade puts the installed one in its "
                           "place"));
}

int FailToMove(const std::string& engine, const absl::Status& s) {
  if (absl::IsUnimplemented(s)) {
    return FailAtAnOlderDaemon("that moves nothing");
  }
  if (absl::IsUnavailable(s)) return Fail(kExitNoDaemon, s);
  return Fail(kExitBadAnswer, absl::StrCat(engine, ": ", s.message()));
}

}  // namespace

std::string MoveText(const std::string& engine, const abi::MoveDone& done) {
  const bool out = done.place == abi::Place::kHost;
  std::string text =
      absl::StrCat(engine, done.moved == 0 ? " was there already: " : ": ",
                   Size(done.bytes), out ? " left the GPU" : " is on the GPU");
  if (done.processes > 1) {
    absl::StrAppend(&text, " (", done.processes, " processes)");
  }
  if (out && done.pinned_bytes > 0) {
    absl::StrAppend(&text, "; ", Size(done.pinned_bytes),
                    " stays, since another process or device has it");
  }
  if (out) absl::StrAppend(&text, "; the next request brings it back");
  return text + "\n";
}

std::string DropText(const std::string& engine, const abi::MoveDone& done,
                     uint32_t lender_pid) {
  return absl::StrCat(
      engine, done.moved == 0 ? " has dropped already: " : ": dropped ",
      Size(done.bytes), " of parameters, which it reads from pid ", lender_pid,
      " now; fsctl restore brings them back\n");
}

namespace {

const char* NameOf(abi::Place place) {
  if (place == abi::Place::kDropped) return "dropped";
  return place == abi::Place::kHost ? "host" : "gpu";
}

}  // namespace

std::string MoveJson(const std::string& engine, const abi::MoveDone& done) {
  const nlohmann::ordered_json json = {{"id", done.engine_id},
                                       {"name", engine},
                                       {"place", NameOf(done.place)},
                                       {"processes", done.processes},
                                       {"moved", done.moved},
                                       {"bytes", done.bytes},
                                       {"pinned_bytes", done.pinned_bytes}};
  return JsonText(json);
}

namespace {

std::string Copies(const abi::StoreAnswer& store) {
  return absl::StrCat(Size(store.held_bytes), " in ", store.copies,
                      store.copies == 1 ? " copy" : " copies");
}

uint64_t NeededBytes(const abi::StoreAnswer& store) {
  return store.held_bytes - store.spare_bytes;
}

// Returns the sum over all stores. Each copy is in only one of them, whichever
// engine needs it, and each store has its own limit.
StoreSight Total(const std::vector<StoreSight>& stores) {
  if (stores.size() == 1) return stores[0];
  StoreSight total;
  for (const StoreSight& one : stores) {
    total.store.held_bytes += one.store.held_bytes;
    total.store.copies += one.store.copies;
    total.store.spare_bytes += one.store.spare_bytes;
    total.store.unshared_bytes += one.store.unshared_bytes;
    total.store.copied_bytes += one.store.copied_bytes;
    total.store.found_bytes += one.store.found_bytes;
  }
  return total;
}

nlohmann::ordered_json FiguresOf(const StoreSight& of) {
  return {{"held_bytes", of.store.held_bytes},
          {"copies", of.store.copies},
          {"limit_bytes", of.store.limit_bytes},
          {"needed_bytes", NeededBytes(of.store)},
          {"others_bytes", of.others_bytes},
          {"unshared_bytes", of.store.unshared_bytes},
          {"spare_bytes", of.store.spare_bytes},
          {"copied_bytes", of.store.copied_bytes},
          {"found_bytes", of.store.found_bytes}};
}

std::string SharersText(const std::vector<StoreSight>& stores) {
  std::string text;
  for (const StoreSight& one : stores) {
    absl::StrAppend(&text, "\n  ", one.gpu, " (fineserved, pid ",
                    one.daemon_pid, "): ", Copies(one.store), ", may hold ",
                    Size(one.store.limit_bytes));
    if (one.others_bytes == 0) continue;
    absl::StrAppend(&text, "; needs ", Size(one.others_bytes),
                    " that others hold");
  }
  return text;
}

}  // namespace

std::string StoreText(const std::vector<StoreSight>& stores) {
  const bool is_one = stores.size() == 1;
  const auto [gpu, pid, store, others_bytes] = Total(stores);
  std::string text =
      is_one ? absl::StrCat("the store holds ", Copies(store),
                            ", and may hold ", Size(store.limit_bytes))
             : absl::StrCat("the stores of ", stores.size(),
                            " daemons, which use each other's copies, hold ",
                            Copies(store), SharersText(stores));
  absl::StrAppend(&text, "\n  ", Size(NeededBytes(store)),
                  " is needed by engines that are evicted");
  if (store.unshared_bytes > NeededBytes(store) + others_bytes) {
    absl::StrAppend(&text, " (", Size(store.unshared_bytes),
                    " if equal contents were not held once)");
  }
  if (others_bytes > 0) {
    absl::StrAppend(&text, "\n  ", Size(others_bytes),
                    " more is needed by them, and held in the stores of other "
                    "daemons");
  }
  absl::StrAppend(&text, "\n  ", Size(store.spare_bytes),
                  " is spare: its engines are on the GPU, and need not be "
                  "copied again\nsince the ",
                  is_one ? "daemon's start " : "daemons' starts ",
                  Size(store.copied_bytes), " was copied, and ",
                  Size(store.found_bytes), " was here already\n");
  return text;
}

std::string StoreJson(const std::vector<StoreSight>& stores) {
  nlohmann::ordered_json json = FiguresOf(Total(stores));
  if (stores.size() > 1) json.erase("limit_bytes");
  json["daemons"] = nlohmann::ordered_json::array();
  for (const StoreSight& one : stores) {
    nlohmann::ordered_json daemon = {{"gpu", one.gpu}, {"pid", one.daemon_pid}};
    daemon.update(FiguresOf(one));
    json["daemons"].push_back(std::move(daemon));
  }
  return JsonText(json);
}

namespace {

struct MoveOptions {
  std::string engine;  // its name or number
  int timeout_s = 600;
  abi::Place to = abi::Place::kHost;
};

std::vector<Pool> AllLivePools() {
  std::vector<absl::Status> dead;
  return LivePools(finding::ListSockets(finding::RuntimeFolder()), &dead);
}

// Moves the engine. NotFound if another daemon moves it.
absl::StatusOr<abi::MoveDone> TryMove(const EngineInPool& place,
                                      const MoveOptions& options) {
  const absl::StatusOr<abi::ObserverLink> link =
      abi::ConnectObserver(place.pool.socket);
  if (!link.ok()) return absl::UnavailableError(link.status().message());
  if (link->welcome.epoch != place.pool.table.epoch) {
    return absl::UnavailableError("fineserved has just started: try again");
  }
  return abi::MoveEngine(*link, place.engine.id, options.to,
                         absl::Seconds(options.timeout_s));
}

// As TryMove. When other engines may be leaving to make room for this one, it
// keeps trying.
absl::StatusOr<abi::MoveDone> MoveAt(const EngineInPool& place,
                                     const MoveOptions& options) {
  constexpr std::chrono::seconds kOthersLeaveIn(10);
  constexpr std::chrono::milliseconds kBetweenTries(250);
  const auto end =
      std::chrono::steady_clock::now() +
      std::min(kOthersLeaveIn, std::chrono::seconds(options.timeout_s));
  for (;;) {
    absl::StatusOr<abi::MoveDone> done = TryMove(place, options);
    if (!absl::IsResourceExhausted(done.status()) ||
        std::chrono::steady_clock::now() > end) {
      return done;
    }
    std::this_thread::sleep_for(kBetweenTries);
  }
}

// Moves the engine. If the engine is on several GPUs, one of their daemons
// moves it.
int RunMove(const Globals& globals, const MoveOptions& options) {
  const auto asked = ChooseAnsweringPools(globals.gpu);
  if (!asked.ok()) return FailWithoutPool(asked.status());
  const auto places = FindEngineInPools(*asked, AllLivePools(), options.engine);
  if (!places.ok()) return Fail(kExitUsage, places.status());
  absl::Status elsewhere;
  for (const EngineInPool& place : *places) {
    const std::string& name = place.engine.name;
    const absl::StatusOr<abi::MoveDone> done = MoveAt(place, options);
    if (absl::IsNotFound(done.status())) {
      elsewhere = done.status();
      continue;
    }
    if (!done.ok()) return FailToMove(name, done.status());
    return Print(globals.json ? MoveJson(name, *done) : MoveText(name, *done));
  }
  return Fail(kExitNoDaemon,
              absl::StrCat(options.engine, ": ", elsewhere.message(),
                           ", which does not answer"));
}

struct DropOptions {
  std::string engine;  // its name
  std::string lender;  // likewise; empty: the same
  std::string most;    // a size; empty: all that can be had
  int timeout_s = 600;
};

int64_t FreeSlabs(const EngineInPool& replica) {
  const auto& slabs = replica.pool.table.slabs;
  return std::count_if(slabs.begin(), slabs.end(), [](const auto& slab) {
    return slab.word.state == abi::SlabState::kFree;
  });
}

// Returns the living engines with this name, at least one; otherwise an error
// of FindEngine.
absl::StatusOr<std::vector<EngineInPool>> ReplicasOf(
    const std::string& name, const std::vector<Pool>& pools) {
  std::vector<EngineInPool> replicas;
  absl::Status none = absl::NotFoundError("no pool");
  for (const Pool& pool : pools) {
    const auto engine = FindEngine(pool.table, name);
    if (engine.ok()) {
      replicas.push_back({pool, *engine});
    } else if (absl::IsNotFound(engine.status())) {
      none = engine.status();
    } else {
      return engine.status();
    }
  }
  if (replicas.empty()) return none;
  return replicas;
}

// Checks that the engine is one process: only such an engine reads and lends
// parameters.
absl::Status CheckOneProcess(const abi::EngineSnapshot& engine) {
  if ((engine.view.flags & abi::kViewOfGroup) == 0 &&
      engine.member_pids.size() == 1) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat(engine.name,
                   " has several processes; parameters are read and lent by "
                   "engines of one process"));
}

// Returns the address at which the engine's one process answers other engines.
absl::StatusOr<abi::ShareAddress> AddressOf(const abi::EngineSnapshot& engine) {
  const absl::Status one = CheckOneProcess(engine);
  if (!one.ok()) return one;
  const uint32_t pid = engine.member_pids[0];
  const auto scoreboard = FindScoreboard(static_cast<pid_t>(pid));
  if (!scoreboard.ok()) return scoreboard.status();
  const abi::ShareAddress address = finding::AddressOf(*scoreboard);
  if (address.pid == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        engine.name, " (pid ", pid, ") has not said which memory holds ",
        "parameters alone (fs_weights_freeze)"));
  }
  return address;
}

// Calls `use(link, engine)` at the replica's daemon.
template <typename Use>
int AtReplica(const EngineInPool& replica, Use use) {
  const absl::StatusOr<abi::ObserverLink> link =
      abi::ConnectObserver(replica.pool.socket);
  if (!link.ok()) return Fail(kExitNoDaemon, link.status());
  return use(*link, replica.engine);
}

int RunDrop(const Globals& globals, const DropOptions& options) {
  uint64_t bytes = UINT64_MAX;
  if (!options.most.empty() &&
      (!abi::ParseByteSize(options.most.c_str(), &bytes) || bytes == 0)) {
    return Fail(kExitUsage, absl::StrCat("--most ", options.most,
                                         ": not a size, such as 8GiB"));
  }
  const auto asked = ChooseAnsweringPools(globals.gpu);
  if (!asked.ok()) return FailWithoutPool(asked.status());
  const auto named = ReplicasOf(options.engine, *asked);
  if (!named.ok()) return Fail(kExitUsage, named.status());
  const EngineInPool& reader = *std::min_element(
      named->begin(), named->end(),
      [](const auto& a, const auto& b) { return FreeSlabs(a) < FreeSlabs(b); });
  const absl::Status one = CheckOneProcess(reader.engine);
  if (!one.ok()) return Fail(kExitBadAnswer, one);
  const std::string& lenders =
      options.lender.empty() ? options.engine : options.lender;
  const auto others = ReplicasOf(lenders, AllLivePools());
  if (!others.ok()) return Fail(kExitUsage, others.status());
  const auto lender =
      std::find_if(others->begin(), others->end(), [&](const auto& other) {
        return other.pool.socket != reader.pool.socket;
      });
  if (lender == others->end()) {
    return Fail(kExitBadAnswer,
                absl::StrCat(options.engine, ": no engine '", lenders,
                             "' is on another GPU of this machine (--from "
                             "names a replica with another name)"));
  }
  const absl::StatusOr<abi::ShareAddress> address = AddressOf(lender->engine);
  if (!address.ok()) return Fail(kExitBadAnswer, address.status());
  return AtReplica(reader, [&](const abi::ObserverLink& link,
                               const abi::EngineSnapshot& engine) {
    const absl::StatusOr<abi::MoveDone> done = abi::DropParameters(
        link, engine.id, *address, bytes, absl::Seconds(options.timeout_s));
    if (!done.ok()) return FailToMove(engine.name, done.status());
    return Print(globals.json ? MoveJson(engine.name, *done)
                              : DropText(engine.name, *done, address->pid));
  });
}

bool HasDropped(const abi::EngineSnapshot& engine) {
  return std::any_of(
      engine.member_pids.begin(), engine.member_pids.end(), [](uint32_t pid) {
        const auto scoreboard = FindScoreboard(static_cast<pid_t>(pid));
        return scoreboard.ok() && scoreboard->dropped_bytes != 0;
      });
}

int RunRestore(const Globals& globals, const DropOptions& options) {
  const auto asked = ChooseAnsweringPools(globals.gpu);
  if (!asked.ok()) return FailWithoutPool(asked.status());
  const auto named = ReplicasOf(options.engine, *asked);
  if (!named.ok()) return Fail(kExitUsage, named.status());
  const auto dropped = std::find_if(
      named->begin(), named->end(),
      [](const auto& replica) { return HasDropped(replica.engine); });
  if (dropped == named->end()) {
    return Fail(kExitBadAnswer,
                absl::StrCat(options.engine, " has dropped no parameters"));
  }
  return AtReplica(*dropped, [&](const abi::ObserverLink& link,
                                 const abi::EngineSnapshot& engine) {
    const absl::StatusOr<abi::MoveDone> done = abi::MoveEngine(
        link, engine.id, abi::Place::kGpu, absl::Seconds(options.timeout_s));
    if (!done.ok()) return FailToMove(engine.name, done.status());
    return Print(globals.json ? MoveJson(engine.name, *done)
                              : MoveText(engine.name, *done));
  });
}

absl::StatusOr<StoreSight> SeeStore(const Pool& pool) {
  const absl::StatusOr<abi::ObserverLink> link =
      abi::ConnectObserver(pool.socket);
  if (!link.ok()) return link.status();
  const absl::StatusOr<abi::StoreAnswer> store = abi::AskStore(*link);
  if (!store.ok()) return store.status();
  char gpu[41];
  abi::FormatGpuUuid(pool.table.gpu_uuid, gpu);
  // An older daemon shares none.
  const absl::StatusOr<abi::StoreOffer> offer = abi::AskOffer(*link);
  return StoreSight{gpu, link->welcome.daemon_pid, *store,
                    offer.ok() ? offer->answer.others_bytes : 0};
}

// Shows the stores of all daemons of this user on this machine, unless --gpu
// names one.
int RunStore(const Globals& globals) {
  const auto pools = ChooseAnsweringPools(globals.gpu);
  if (!pools.ok()) return FailWithoutPool(pools.status());
  std::vector<StoreSight> stores;
  absl::Status trouble;
  for (const Pool& pool : *pools) {
    absl::StatusOr<StoreSight> seen = SeeStore(pool);
    trouble.Update(seen.status());
    if (seen.ok()) stores.push_back(*std::move(seen));
  }
  if (absl::IsUnimplemented(trouble)) {
    return FailAtAnOlderDaemon("without a store");
  }
  if (!trouble.ok()) return Fail(kExitNoDaemon, trouble);
  return Print(globals.json ? StoreJson(stores) : StoreText(stores));
}

void AddMove(Commands& c, abi::Place to, const char* name, const char* what,
             const char* examples) {
  const auto [command, o] = c.Add(name, what, examples, RunMove);
  o->to = to;
  command->add_option("ENGINE", o->engine, "Its name or number (fsctl engines)")
      ->required();
  command
      ->add_option("--timeout", o->timeout_s,
                   "Seconds to wait for it (600); it goes on after that")
      ->check(CLI::PositiveNumber);
}

}  // namespace

void AddEvict(Commands& c) {
  AddMove(c, abi::Place::kHost, "evict",
          "Move what an engine keeps on the GPU to the host",
          "  fsctl evict llama-a\n"
          "The engine must have been started for it (evict = \"auto\" in the\n"
          "fleet file, fsctl run --evict) and have no request. Its process "
          "and\n"
          "addresses stay; the next request brings it back.\n");
}

void AddActivate(Commands& c) {
  AddMove(c, abi::Place::kGpu, "activate",
          "Bring an engine's memory back to the GPU",
          "  fsctl activate llama-a\n"
          "A request does so by itself. If the GPU has no room for it within\n"
          "10 s, for which idle engines leave, all stays on the host.\n");
}

namespace {

Commands::Added<DropOptions> AddDropping(Commands& c, const char* name,
                                         const char* what, const char* examples,
                                         int (*run)(const Globals&,
                                                    const DropOptions&)) {
  const auto added = c.Add(name, what, examples, run);
  added.command
      ->add_option("ENGINE", added.options->engine,
                   "Its name (fsctl engines); --gpu chooses one of several")
      ->required();
  added.command
      ->add_option("--timeout", added.options->timeout_s,
                   "Seconds to wait for it (600); it goes on after that")
      ->check(CLI::PositiveNumber);
  return added;
}

}  // namespace

void AddDrop(Commands& c) {
  const auto added = AddDropping(
      c, "drop", "Let an engine read another replica's parameters",
      "  fsctl drop llama-a\n"
      "  fsctl drop llama-a --from llama-b\n"
      "  fsctl drop llama-a --most 8GiB\n"
      "Its own memory for them is free for KV. The replica is on another GPU\n"
      "of this machine that this one's has peer access to. It may read what "
      "this\n"
      "one keeps at the same time.\n",
      RunDrop);
  added.command->add_option("--from", added.options->lender,
                            "Engine that lends them, if its name is another");
  added.command->add_option("--most", added.options->most,
                            "Bytes to drop in all (all that can be had), in\n"
                            "whole allocations");
}

void AddRestore(Commands& c) {
  AddDropping(c, "restore", "Give an engine its own parameters back",
              "  fsctl restore llama-a\n"
              "If the GPU has no room for them, it reads on.\n",
              RunRestore);
}

void AddStore(Commands& c) {
  c.Add("store", "Show what daemons keep in host memory of evicted engines",
        "  fsctl store\n"
        "  fsctl store --json | jq .needed_bytes\n"
        "All daemons of this machine share it; --gpu shows one's part.\n",
        RunStore);
}

}  // namespace fineserve::fsctl
