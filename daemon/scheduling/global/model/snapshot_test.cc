#include "daemon/scheduling/global/model/snapshot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "daemon/scheduling/global/testdata/apex_profiles.h"

namespace fineserve::plan {
namespace {

Snapshot TwoModelSnapshot() {
  Snapshot s;
  s.profiles = Tp1Profiles();
  s.gpus = {{"gpu-0", "node", 80e9}, {"gpu-1", "node", 80e9}};
  s.models = {{"a", "llama-3.1-8b", "org", 1, 2.0, 200, 300, 1.0},
              {"b", "llama-3.1-8b", "fp8_kv8", 1, 2.0, 200, 300, 1.0}};
  return s;
}

TEST(Snapshot, ProblemThatCannotBePlannedIsRefusedInOneLineThatNamesIt) {
  struct Case {
    const char* culprit;
    const char* fix;
    void (*spoil)(Snapshot*);
  };
  const Case cases[] = {
      {"\"a\"", "leave the model out",
       [](Snapshot* s) { s->models[0].rate = 0; }},
      {"\"a\"", "leave the model out",
       [](Snapshot* s) { s->models[0].rate = std::nan(""); }},
      {"\"a\"", "above 0",
       [](Snapshot* s) { s->models[0].output_tokens = std::nan(""); }},
      {"\"a\"", "give one", [](Snapshot* s) { s->models[0].slo_ttft_s = 0; }},
      {"\"a\"", "at least 1", [](Snapshot* s) { s->models[0].max_batch = 0; }},
      {"\"b\"", "at most",
       [](Snapshot* s) { s->models[1].replicas = 1'000'000; }},
      {"\"b\"", "fsctl profile", [](Snapshot* s) { s->models[1].tp = 3; }},
      {"\"b\"", "fsctl profile",
       [](Snapshot* s) { s->models[1].architecture = "llama-9"; }},
      {"\"b\"", "mend the pin",
       [](Snapshot* s) { s->models[1].pins = {"gpu-7"}; }},
      {"\"a\"", "name each once", [](Snapshot* s) { s->models[1].name = "a"; }},
      {"\"gpu-0\"", "name each once",
       [](Snapshot* s) { s->gpus[1].name = "gpu-0"; }},
      {"\"gpu-0\"", "leave it out",
       [](Snapshot* s) { s->gpus[0].taken_bytes = 80e9; }},
      {"\"gpu-0\"", "above 0",
       [](Snapshot* s) { s->gpus[0].memory_bytes = std::nan(""); }},
      {"\"gpu-1\"", "make it smaller",
       [](Snapshot* s) { s->gpus[1].pool_bytes = 80e9; }},
      {"\"gpu-1\"", "make it smaller",
       [](Snapshot* s) { s->gpus[1].pool_bytes = std::nan(""); }},
      {"\"gpu-1\"", "make it smaller",
       [](Snapshot* s) { s->gpus[1].pool_bytes = -1; }},
      {"\"a\"", "not a size",
       [](Snapshot* s) { s->models[0].context_bytes = -1; }},
      {"\"a\"", "not a size",
       [](Snapshot* s) { s->models[0].process_bytes = std::nan(""); }},
      {"\"a\"", "leave it out",
       [](Snapshot* s) {
         s->models[0].may_rest = true;
         s->models[0].tp = 2;
       }},
      {"\"a\"", "as many GPUs",
       [](Snapshot* s) {
         s->models[0].groups = {{"gpu-0", "gpu-1"}};
       }},
      {"\"a\"", "list each GPU once",
       [](Snapshot* s) {
         s->models[0].groups = {{"gpu-0"}, {"gpu-0"}};
       }},
      {"\"a\"", "not within one node",
       [](Snapshot* s) { s->models[0].groups = {{"gpu-7"}}; }},
      {"\"node\"", "leave the node out",
       [](Snapshot* s) {
         s->nodes = {{"node", 0}};
       }},
      {"\"node\"", "name each once",
       [](Snapshot* s) {
         s->nodes = {{"node", 1}, {"node", 1}};
       }},
      {"no GPU", "at least one", [](Snapshot* s) { s->gpus.clear(); }},
      {"twice", "keep one",
       [](Snapshot* s) { s->profiles.push_back(s->profiles[0]); }},
  };
  EXPECT_TRUE(CheckSnapshot(TwoModelSnapshot()).ok())
      << CheckSnapshot(TwoModelSnapshot());
  for (const Case& c : cases) {
    Snapshot s = TwoModelSnapshot();
    c.spoil(&s);
    const absl::Status status = CheckSnapshot(s);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.fix;
    const std::string text(status.message());
    EXPECT_NE(text.find(c.culprit), std::string::npos) << text;
    EXPECT_NE(text.find(c.fix), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace fineserve::plan
