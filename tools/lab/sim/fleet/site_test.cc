#include "tools/lab/sim/fleet/site.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace fineserve::sim {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;

absl::StatusOr<Site> Read(const std::string& text) {
  const std::string path = testing::TempDir() + "/site.toml";
  std::ofstream(path) << text;
  return ReadSite(path);
}

TEST(SiteTest, ReadsEveryKey) {
  const auto site = Read(R"(
source = "a test"
[gpu]
memory = "8GiB"
pool = "4GiB"
slab = "8MiB"
planes = 4
fill_us = 20
poll_us = 5000
slowdown = [1.0, 1.9]
[path]
ask_us = 300
send_us = 200
answer_us = 100
beat_us = 1000
[engine]
start_s = 2.5
weights_per_s = 2e9
stop_s = 0.5
[eviction]
headroom = "1GiB"
link_per_s = 2e10
leave_us = 700
[[model]]
name = "m"
kv_token_bytes = 4096
planes = 4
longest = 4096
tp = 2
exchange_us = 30
exchange_token_us = 0.5
prefix_hits = 0.25
bytes_per_token = 4.5
weights = "3GiB"
truth = { base_us = 1, per_token_us = 2.5, per_sequence_us = 3 }
)");
  ASSERT_TRUE(site.ok()) << site.status();
  EXPECT_EQ(site->source, "a test");
  EXPECT_EQ(site->pool_bytes, uint64_t{4} << 30);
  ASSERT_TRUE(site->eviction);
  EXPECT_EQ(site->eviction->headroom_bytes, uint64_t{1} << 30);
  EXPECT_EQ(site->eviction->link_per_s, 20'000'000'000u);
  EXPECT_EQ(site->eviction->leave_us, 700);
  EXPECT_EQ(site->models.at("m").weight_bytes, uint64_t{3} << 30);
  EXPECT_EQ(site->slab_bytes, uint64_t{8} << 20);
  EXPECT_EQ(site->planes, 4u);
  EXPECT_EQ(site->pool.fill_us, 20);
  EXPECT_EQ(site->pool.poll_us, 5000);
  EXPECT_THAT(site->slowdown.factors, ElementsAre(1.0, 1.9));
  EXPECT_EQ(site->path.ask_us, 300);
  EXPECT_EQ(site->path.send_us, 200);
  EXPECT_EQ(site->path.answer_us, 100);
  EXPECT_EQ(site->path.beat_us, 1000);
  EXPECT_EQ(site->memory_bytes, uint64_t{8} << 30);
  EXPECT_EQ(site->hand.start_us, 2'500'000);
  EXPECT_EQ(site->hand.weights_per_s, 2'000'000'000u);
  EXPECT_EQ(site->hand.stop_us, 500'000);
  const SiteModel& m = site->models.at("m");
  EXPECT_EQ(m.kv_token_bytes, 4096u);
  EXPECT_EQ(m.planes, 4u);
  EXPECT_EQ(m.longest_tokens, 4096u);
  EXPECT_EQ(m.tp, 2u);
  EXPECT_EQ(m.exchange_us, 30);
  EXPECT_EQ(m.exchange_token_us, 0.5);
  EXPECT_EQ(m.prefix_hits, 0.25);
  EXPECT_EQ(m.bytes_per_token, 4.5);
  EXPECT_EQ(m.truth->per_token_us, 2.5);
}

TEST(SiteTest, EvictionsNeedTheSizeOfTheGpu) {
  EXPECT_THAT(std::string(Read("[eviction]\n").status().message()),
              HasSubstr("say in [gpu] memory"));
}

TEST(SiteTest, MistakesNameTheirLine) {
  for (const auto& [text, line, what] :
       {std::tuple("[gpu]\npoool = \"4GiB\"\n", ":2:", "poool"),
        std::tuple("[gpu]\nslowdown = [0.5]\n", ":2:", "at least 1"),
        std::tuple("[[model]]\nname = \"m\"\nprefix_hits = 2\n",
                   ":3:", "part of 1"),
        std::tuple("[engine]\nstart_s = -1\n", ":2:", "from 0 to 86400"),
        std::tuple("[engine]\nweights_per_s = 0\n", ":2:", "from 1 to"),
        std::tuple("[[model]]\ntp = 2\n", ":1:", "name")}) {
    const auto site = Read(text);
    ASSERT_FALSE(site.ok()) << text;
    EXPECT_THAT(std::string(site.status().message()), HasSubstr(line));
    EXPECT_THAT(std::string(site.status().message()), HasSubstr(what));
  }
  EXPECT_THAT(std::string(Read("[gpu]\npoll_us = 0\n").status().message()),
              EndsWith("must be at least 1"));
}

TEST(SlowdownTest, GrowsAsTheLastNeighbourDid) {
  const Slowdown slices;
  EXPECT_EQ(slices.of(1), 1);
  EXPECT_EQ(slices.of(3), 3);
  const Slowdown none{{1.0}};
  EXPECT_EQ(none.of(5), 1);
  const Slowdown measured{{1.0, 1.5}};
  EXPECT_EQ(measured.of(2), 1.5);
  EXPECT_EQ(measured.of(4), 2.5);
}

}  // namespace
}  // namespace fineserve::sim
