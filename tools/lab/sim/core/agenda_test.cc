#include "tools/lab/sim/core/agenda.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

namespace fineserve::sim {
namespace {

TEST(AgendaTest, NothingIsDueAtFirst) {
  for (const uint32_t actors : {0u, 1u, 2u, 5u}) {
    EXPECT_EQ(Agenda(actors).next(), kNever);
  }
}

TEST(AgendaTest, FirstInTimeAndThenInNumberGoesFirst) {
  for (const uint32_t actors : {1u, 2u, 3u, 8u, 100u}) {
    Agenda agenda(actors);
    std::vector<std::pair<Micros, uint32_t>> all;
    for (uint32_t a = 0; a < actors; ++a) all.emplace_back(kNever, a);
    std::mt19937 random(actors);
    for (int i = 0; i < 2000; ++i) {
      const uint32_t actor = random() % actors;
      // There are few different times, so that many are equal.
      const Micros at =
          random() % 4 == 0 ? kNever : static_cast<Micros>(random() % 8);
      agenda.Set(actor, at);
      all[actor].first = at;
      ASSERT_EQ(agenda.at(actor), at);
      const auto first = *std::min_element(all.begin(), all.end());
      ASSERT_EQ(agenda.next(), first.first) << "seed " << actors << ", " << i;
      if (first.first == kNever) continue;
      ASSERT_EQ(agenda.first(), first.second);
    }
  }
}

}  // namespace
}  // namespace fineserve::sim
