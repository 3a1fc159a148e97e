#include "tools/lab/stage/fleet_text.h"

#include <gtest/gtest.h>

namespace fineserve::stage {
namespace {

TEST(FleetTextTest, EveryKindOfValueIsToml) {
  EXPECT_EQ(FleetText()
                .Proxy({{"drain", 1}}, 8000)
                .Model("m", {{"profile", TomlValue::Profile(380, 0.8, 3.2)}})
                .Engine("e", "m", 9001,
                        {{"view", false},
                         {"gpus", std::vector<std::string>{"a", "b"}}})
                .text(),
            "[proxy]\nlisten = \"127.0.0.1:8000\"\nadmin = \"127.0.0.1:0\"\n"
            "drain = 1\n[[model]]\nname = \"m\"\nprofile = { base_us = 380, "
            "per_token_us = 0.8, per_sequence_us = 3.2 }\n[[engine]]\n"
            "name = \"e\"\nmodel = \"m\"\nurl = \"http://127.0.0.1:9001\"\n"
            "view = false\ngpus = [\"a\", \"b\"]\n");
}

}  // namespace
}  // namespace fineserve::stage
