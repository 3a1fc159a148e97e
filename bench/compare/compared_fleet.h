#ifndef BENCH_COMPARE_COMPARED_FLEET_H_
#define BENCH_COMPARE_COMPARED_FLEET_H_

#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "bench/serving/fleet_service.h"
#include "tools/lab/sim/gpu/setup.h"
#include "tools/lab/workload/metrics.h"

namespace fineserve::bench {

// Pure functions and constants: the fleet that is run by real processes and
// simulated. Four models, two on each of two GPUs, whose engines share its
// pool; or replicas; or ten, of which two fit on each GPU. Engines take equally
// long steps, but their KV differs.

struct ComparedModel {
  const char* name;
  uint32_t token_kib;  // KV of a token
  size_t gpu;
};
inline constexpr ComparedModel kComparedModels[] = {
    {"a", 8, 0}, {"b", 2, 0}, {"c", 6, 1}, {"d", 4, 1}, {"e", 8, 0},
    {"f", 2, 1}, {"g", 6, 0}, {"h", 4, 1}, {"i", 8, 0}, {"j", 2, 1}};

// Distribution of the engines over GPUs. One queue is simulated alone: a GPU
// that has the memory of all, whose engines do not slow each other down either,
// has one daemon, which knows when any of them can start a request. An engine
// has at most the memory of one GPU there, too.
enum class EnginePlacement {
  kOneEach,   // one engine a model, on the GPU above
  kReplicas,  // an engine of each model on each GPU
  kOneQueue,  // the same, but all on one GPU
};

struct FleetShape {
  EnginePlacement placement = EnginePlacement::kOneEach;
  size_t gpus = 2;    // any number with replicas
  size_t models = 4;  // the first ones
  // Weights of each engine, which leaves the GPU for others; 0: all stay.
  uint32_t weights_mib = 0;

  FleetShape With(EnginePlacement other) const {
    return {other, gpus, models, weights_mib};
  }
  bool evicts() const { return weights_mib != 0; }
};

struct ComparedEngine {
  std::string name;
  size_t model;  // place in kComparedModels
  size_t gpu;
};

// Moves of an engine off the GPU and back, as one that had nothing else to do
// made them.
struct MoveTimes {
  uint64_t bytes = 0;  // that moved
  double leave_s = 0, back_s = 0;
};

struct ComparedFleet {
  static constexpr uint32_t kPoolMib = 80, kSlabMib = 2;  // on each GPU
  // Where engines leave: memory of so many engines is on a GPU beside that
  // pool, and so much of it stays free.
  static constexpr uint32_t kPresent = 2, kHeadroomMib = 8;
  static constexpr uint32_t kBlockTokens = 16;
  static constexpr uint32_t kMostSequences = 64;
  static constexpr uint32_t kChunkTokens = 1024;
  // Prompts and answers are cut to these, which keeps runs short.
  static constexpr uint32_t kMostInput = 640, kMostOutput = 160;
  static constexpr uint32_t kLongestTokens = kMostInput + kMostOutput;
  // Durations of an engine's step, µs: long, so that a few cores carry four
  // engines.
  static constexpr double kBaseUs = 25'000, kTokenUs = 50, kSequenceUs = 60;
  static constexpr workload::Slo kSlo = {1.0, 0};

  static Gpus GpusOf(const FleetShape& shape);
  static std::vector<std::string> Models(const FleetShape& shape = {});
  static std::vector<ComparedEngine> Engines(const FleetShape& shape);
  // Time in s for an engine that does nothing else.
  static double PrefillSeconds(uint32_t prompt_tokens);
  static double AnswerSeconds(workload::Lengths lengths);

  // The fleet file. `gpus`: their UUIDs; `engine_ports`: by engine;
  // `engine_program`: tinyserve.
  static stage::FleetText Text(const std::vector<std::string>& gpus,
                               uint16_t proxy_port,
                               const std::vector<uint16_t>& engine_ports,
                               const std::string& engine_program,
                               const FleetShape& shape);
  // The simulator's site file. `moves`: if the shape evicts.
  static std::string SiteText(const sim::PathTimes& path,
                              const FleetShape& shape,
                              const MoveTimes& moves = {});
};

}  // namespace fineserve::bench

#endif  // BENCH_COMPARE_COMPARED_FLEET_H_
