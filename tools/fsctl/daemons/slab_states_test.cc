#include "tools/fsctl/daemons/slab_states.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace fineserve::fsctl {
namespace {

std::string Plain(const Line& line) {
  std::string text = Render({line}, false);
  text.pop_back();
  return text;
}

TEST(SlabStatesTest, OneQuarantinedSlabShowsInACrowdedBar) {
  abi::TableSnapshot table;
  table.slabs.resize(1000);
  table.slabs[500].word = {abi::SlabState::kQuarantined, 1, 1};
  for (int i = 0; i < 100; ++i)
    table.slabs[i].word.state = abi::SlabState::kFull;
  const std::string bar = Plain(StateBar(table, 64));
  EXPECT_LE(bar.size(), 64u);
  EXPECT_EQ(std::count(bar.begin(), bar.end(), '!'), 1);
  EXPECT_EQ(bar[0], '#');
  EXPECT_EQ(bar.back(), '.');
}

}  // namespace
}  // namespace fineserve::fsctl
