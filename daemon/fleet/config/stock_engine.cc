#include "daemon/fleet/config/stock_engine.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "daemon/fleet/config/fleet_places.h"

namespace fineserve::config {
namespace {

// Below the ports that Linux gives to clients (from 32768 on).
constexpr uint32_t kFirstPort = 20000;
constexpr uint32_t kPorts = 10000;

// A flag that FineServe fills in, and the fleet file's key to use instead of
// the flag.
struct OwnFlag {
  std::string name;
  std::string value;
  const char* key;
};

struct Launch {
  std::string program;
  std::vector<std::string> words;  // between program and flags
  std::vector<OwnFlag> flags;
};

Launch LaunchOf(const StockEngine& stock, const FleetModel& model,
                const FleetEngine& engine) {
  const bool is_vllm = stock.kind == "vllm";
  const std::string step = absl::StrCat(model.chunk_tokens);
  const std::string batch = absl::StrCat(model.max_batch);
  Launch launch;
  launch.flags = {
      {"--host", engine.host, "url"},
      {"--port", "{port}", "url"},
      {"--served-model-name", model.name, "model"},
      {is_vllm ? "--max-num-batched-tokens" : "--chunked-prefill-size", step,
       "chunk_tokens of its [[model]]"},
      {is_vllm ? "--max-num-seqs" : "--max-running-requests", batch,
       "max_batch of its [[model]]"}};
  if (is_vllm) {
    launch.program = "vllm";
    launch.words = {"serve", stock.checkpoint};
  } else {
    launch.program = "python3";
    launch.words = {"-m", "sglang.launch_server", "--model-path",
                    stock.checkpoint};
  }
  if (!stock.program.empty()) launch.program = stock.program;
  return launch;
}

// Engines also accept --max_num_seqs and --max-num-seqs=8.
std::string FlagOf(const std::string& argument) {
  const std::string flag = argument.substr(0, argument.find('='));
  return absl::StrReplaceAll(flag, {{"_", "-"}});
}

// True if the arguments say how the engine uses several GPUs.
bool SaysHowParallel(const StockEngine& stock) {
  static const std::set<std::string> kFlags = {"--tensor-parallel-size",
                                               "-tp",
                                               "--pipeline-parallel-size",
                                               "-pp",
                                               "--data-parallel-size",
                                               "-dp",
                                               "--tp-size",
                                               "--pp-size",
                                               "--dp-size",
                                               "--tp"};
  return std::any_of(stock.arguments.begin(), stock.arguments.end(),
                     [](const std::string& argument) {
                       return kFlags.count(FlagOf(argument)) > 0;
                     });
}

// Refuses keys that mean nothing without `engine`.
absl::Status CheckCommand(const StockEngine& stock, const FleetEngine& engine) {
  const bool none = stock.checkpoint.empty() && stock.program.empty() &&
                    stock.arguments.empty();
  if (none) return absl::OkStatus();
  return WrongEngine(
      engine,
      "checkpoint, program and arguments are those of a stock engine; "
      "add engine = \"vllm\", or write them into command");
}

}  // namespace

absl::Status FillInCommand(const StockEngine& stock, const FleetModel& model,
                           FleetEngine* engine) {
  if (stock.kind.empty()) return CheckCommand(stock, *engine);
  if (!engine->command.empty()) {
    return WrongEngine(*engine,
                       absl::StrCat("has both engine = \"", stock.kind,
                                    "\" and command; leave out one of "
                                    "them, or give its flags in arguments"));
  }
  if (stock.checkpoint.empty()) {
    return WrongEngine(*engine,
                       "needs checkpoint, a folder or a name like "
                       "\"meta-llama/Llama-3.1-8B\"");
  }
  Launch launch = LaunchOf(stock, model, *engine);
  for (const std::string& argument : stock.arguments) {
    const std::string flag = FlagOf(argument);
    const auto own =
        std::find_if(launch.flags.begin(), launch.flags.end(),
                     [&](const OwnFlag& own) { return own.name == flag; });
    if (own == launch.flags.end()) continue;
    return WrongEngine(*engine, absl::StrCat("arguments has ", flag,
                                             ", which is filled in; give ",
                                             own->key, " instead"));
  }
  if (stock.ranks > 1 && !SaysHowParallel(stock)) {
    launch.flags.push_back(
        {"--tensor-parallel-size", absl::StrCat(stock.ranks), "gpu"});
  }
  std::vector<std::string>& command = engine->command;
  command = {std::move(launch.program)};
  command.insert(command.end(), launch.words.begin(), launch.words.end());
  for (const OwnFlag& flag : launch.flags) {
    command.push_back(flag.name);
    command.push_back(flag.value);
  }
  command.insert(command.end(), stock.arguments.begin(), stock.arguments.end());
  return absl::OkStatus();
}

uint16_t DerivedPort(absl::string_view name, size_t count,
                     const std::set<uint16_t>& taken) {
  uint32_t hash = 2166136261;  // FNV-1a, which is the same in every process
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 16777619;
  }
  if (count == 0 || count > kPorts) return 0;
  const uint32_t starts = kPorts - static_cast<uint32_t>(count) + 1;
  for (uint32_t i = 0; i < starts; ++i) {
    const uint32_t first = kFirstPort + (hash % starts + i) % starts;
    const auto next = taken.lower_bound(static_cast<uint16_t>(first));
    if (next == taken.end() || *next >= first + count) {
      return static_cast<uint16_t>(first);
    }
  }
  return 0;
}

}  // namespace fineserve::config
