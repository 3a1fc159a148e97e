#include "tools/lab/sim/bound/next_request.h"

#include <gtest/gtest.h>

namespace fineserve::sim {
namespace {

TEST(NextRequestTest, EachGpuKnowsThoseOfItsModels) {
  World world;
  world.gpus.resize(3);
  for (GpuSetup& gpu : world.gpus) gpu.models.resize(2);
  for (const size_t gpu : {0u, 1u}) world.gpus[gpu].eviction.emplace();
  world.models.resize(2);
  world.models[0].replicas = {{0, 1}};          // second on GPU 0
  world.models[1].replicas = {{0, 0}, {1, 1}};  // on both
  const workload::Trace trace = {
      {"b", "a"}, {{1, 0, {1, 1}}, {2, 1, {1, 1}}, {3, 0, {1, 1}}}};
  TellNextRequests(trace, /*model_of=*/{1, 0}, &world);
  const auto& first = world.gpus[0].eviction->next_request;
  EXPECT_EQ(first(0, 0), 1'000'000);
  EXPECT_EQ(first(0, 1'000'000), 3'000'000) << "after now";
  EXPECT_EQ(first(0, 3'000'000), kNever);
  EXPECT_EQ(first(1, 0), 2'000'000);
  EXPECT_EQ(world.gpus[1].eviction->next_request(1, 0), 1'000'000);
  EXPECT_EQ(world.gpus[1].eviction->next_request(0, 0), kNever);
  EXPECT_FALSE(world.gpus[2].eviction) << "all stay there";
}

}  // namespace
}  // namespace fineserve::sim
