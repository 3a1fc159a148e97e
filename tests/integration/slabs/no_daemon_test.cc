// The preload without a daemon: the engine must not notice.
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/integration/site.h"

namespace fineserve::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

using NoDaemonTest = Site;

TEST_F(NoDaemonTest, EngineRunsAsIfNoShimWereThereWithOneWarning) {
  const auto engine = StartEngineWithoutDaemon("8MiB", {"--rounds", "3"});
  EXPECT_THAT(engine->Ask("free"), HasSubstr("ok"));
  EXPECT_THAT(engine->Ask("alloc"), HasSubstr("ok"));
  const std::string said = engine->Stderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_THAT(said, HasSubstr("fineserve: no daemon"));
  EXPECT_THAT(said, HasSubstr("fineserved --gpu"));
}

TEST_F(NoDaemonTest, ExplainTellsWhyNothingWasRedirected) {
  const auto engine = StartEngineWithoutDaemon("8MiB");
  const Finished explain = Fsctl({"explain", std::to_string(engine->pid())});
  EXPECT_EQ(explain.code, 0) << explain.err;
  EXPECT_THAT(explain.out, HasSubstr("no daemon"));
}

TEST_F(NoDaemonTest, DisabledShimSaysNothing) {
  Process::Environment environment = EngineEnvironment();
  environment["FINESERVE_DISABLE"] = "1";
  const Finished run =
      RunToEnd({Program("stock_engine"), "--kv", "8MiB"}, environment);
  EXPECT_EQ(run.code, 0);
  EXPECT_THAT(run.err, IsEmpty());
}

TEST_F(NoDaemonTest, ProgramsWithoutCudaAreLeftAlone) {
  const Finished run = RunToEnd({"/bin/true"}, EngineEnvironment());
  EXPECT_EQ(run.code, 0);
  EXPECT_THAT(run.err, IsEmpty());
}

TEST_F(NoDaemonTest, FsctlSaysHowToStartOneAndExits3) {
  for (const char* words :
       {"slabs", "evict chat", "drop chat", "restore chat"}) {
    const Finished done = Fsctl(Words(words));
    EXPECT_EQ(done.code, 3) << words;
    EXPECT_THAT(done.err, HasSubstr("fineserved --gpu")) << words;
  }
}

TEST_F(NoDaemonTest, SlipsOfTheHandAreCorrected) {
  const Finished command = Fsctl({"slbas"});
  EXPECT_EQ(command.code, 2);
  EXPECT_THAT(command.err, HasSubstr("'slbas'; did you mean slabs?; see"));
  const Finished flag = Fsctl({"top", "--onec"});
  EXPECT_EQ(flag.code, 2);
  EXPECT_THAT(flag.err, HasSubstr("did you mean --once?"));
  EXPECT_THAT(Fsctl({"drop", "chat", "--form", "code"}).err,
              HasSubstr("did you mean --from?"));
}

TEST_F(NoDaemonTest, OutputThatCannotBeWrittenIsAnError) {
  for (const char* command :
       {"fsctl slabs --help", "fsctl --version", "fineserve-proxy --help",
        "fineserve-proxy --version", "fineserve-sim --help",
        "fineserved --help", "fineserved --version", "fineserve-node --help",
        "fineserve-node --version"}) {
    const Finished help = RunToEnd(
        {"/bin/sh", "-c", Program(command) + " > /dev/full"}, environment());
    EXPECT_EQ(help.code, 1) << command;
    EXPECT_THAT(help.err, HasSubstr("cannot write the output: No space left"));
  }
}

TEST_F(NoDaemonTest, CorrectionIsOfferedBeforeAnythingIsDone) {
  const Finished bare = Fsctl({"run", "my-engine", "serve"});
  EXPECT_EQ(bare.code, 2);
  EXPECT_THAT(bare.err, HasSubstr("fsctl run -- my-engine serve"));
  const Finished missing = Fsctl({"run", "--", "no-such-engine"});
  EXPECT_EQ(missing.code, 127);
  EXPECT_EQ(missing.err, "fsctl: no-such-engine: command not found\n")
      << "no daemon is started for it";
  const Finished file = Fsctl({"apply", "/no/such/fleet.toml"});
  EXPECT_EQ(file.code, 2);
  EXPECT_THAT(file.err, HasSubstr("/no/such/fleet.toml: cannot be read"));
  const Finished support = Fsctl({"support", "--output", "/no/such/b.tar.gz"});
  EXPECT_EQ(support.code, 1);
  EXPECT_EQ(support.err,
            "fsctl: cannot write /no/such/b.tar.gz: No such file or "
            "directory\n");
  EXPECT_THAT(Fsctl({"status"}).out,
              HasSubstr("0 daemons, 0 proxies, 0 fsctl up\n"));
}

}  // namespace
}  // namespace fineserve::integration
