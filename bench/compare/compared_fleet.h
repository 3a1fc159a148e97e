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

// Pure functions and constants for the fleet that real processes run and the
// simulator simulates. It has four models, two on each of two GPUs, whose
// engines share the GPU's pool; or replicas; or ten models, of which two fit on
// each GPU. Engines take equally long steps, but their KV differs.

struct ComparedModel {
  const char* name;
  uint32_t token_kib;  // KV of a token
  size_t gpu;
};
inline constexpr ComparedModel kComparedModels[] = {
    {"a", 8, 0}, {"b", 2, 0}, {"c", 6, 1}, {"d", 4, 1}, {"e", 8, 0},
    {"f", 2, 1}, {"g", 6, 0}, {"h", 4, 1}, {"i", 8, 0}, {"j", 2, 1}};

// Distribution of the engines over GPUs. The single queue is only simulated:
// one GPU that has the memory of all, and whose engines do not slow each other
// down either, has one daemon, which knows when any of them can start a
// request. There, too, an engine has at most the memory of one GPU.
enum class EnginePlacement {
  kOneEach,   // one engine a model, on the GPU above
  kReplicas,  // an engine of each model on each GPU
  kOneQueue,  // the same, but all on one GPU
};

struct FleetShape {
  EnginePlacement placement = EnginePlacement::kOneEach;
  size_t gpus = 2;    // any number with replicas
  size_t models = 4;  // the first ones
  // Weights of each engine, which leaves the GPU to make room for others; 0:
  // all engines stay.
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

// Times to move an otherwise idle engine off the GPU and back.
struct MoveTimes {
  uint64_t bytes = 0;  // that moved
  double leave_s = 0, back_s = 0;
};

struct ComparedFleet {
  static constexpr uint32_t kPoolMib = 80, kSlabMib = 2;  // on each GPU
  // If engines leave: the number of engines whose memory is on a GPU besides
  // the pool, and the memory that stays free.
  static constexpr uint32_t kPresent = 2, kHeadroomMib = 8;
  static constexpr uint32_t kBlockTokens = 16;
  static constexpr uint32_t kMostSequences = 64;
  static constexpr uint32_t kChunkTokens = 1024;
  // Prompts and answers are cut to these lengths, to keep runs short.
  static constexpr uint32_t kMostInput = 640, kMostOutput = 160;
  static constexpr uint32_t kLongestTokens = kMostInput + kMostOutput;
  // Durations of an engine's step, in µs: long, so that a few cores suffice for
  // four engines.
  static constexpr double kBaseUs = 25'000, kTokenUs = 50, kSequenceUs = 60;
  static constexpr workload::Slo kSlo = {1.0, 0};

  static Gpus GpusOf(const FleetShape& shape);
  static std::vector<std::string> Models(const FleetShape& shape = {});
  static std::vector<ComparedEngine> Engines(const FleetShape& shape);
  // Time in s on an engine that does nothing else.
  static double PrefillSeconds(uint32_t prompt_tokens);
  static double AnswerSeconds(workload::Lengths lengths);

  // Returns the fleet file. `gpus` are the GPUs' UUIDs, `engine_ports` the
  // ports by engine; `engine_program` is tinyserve.
  static stage::FleetText Text(const std::vector<std::string>& gpus,
                               uint16_t proxy_port,
                               const std::vector<uint16_t>& engine_ports,
                               const std::string& engine_program,
                               const FleetShape& shape);
  // Returns the simulator's site file. `moves` matters if the shape evicts.
  static std::string SiteText(const sim::PathTimes& path,
                              const FleetShape& shape,
                              const MoveTimes& moves = {});
};

}  // namespace fineserve::bench

#endif  // BENCH_COMPARE_COMPARED_FLEET_H_
