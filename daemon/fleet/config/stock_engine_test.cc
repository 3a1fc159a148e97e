#include "daemon/fleet/config/stock_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fineserve::config {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

FleetEngine StockChat() {
  FleetEngine engine;
  engine.name = "chat";
  engine.host = "127.0.0.1";
  engine.port = 9001;
  return engine;
}

std::string ErrorOf(std::string argument) {
  FleetEngine engine = StockChat();
  StockEngine stock = {"vllm", "checkpoint", "", {std::move(argument)}};
  return std::string(
      FillInCommand(stock, FleetModel{.name = "chat"}, &engine).message());
}

TEST(FillInCommand, FlagThatIsFilledInIsNamedByItsKey) {
  EXPECT_THAT(ErrorOf("--port"), HasSubstr("give url instead"));
  EXPECT_THAT(ErrorOf("--max-num-seqs=8"), HasSubstr("give max_batch of its"));
  EXPECT_THAT(ErrorOf("--max_num_batched_tokens"),
              HasSubstr("give chunk_tokens of its"));
  EXPECT_EQ(ErrorOf("--max-model-len"), "");
}

TEST(FillInCommand, EngineOnSeveralGpusIsTensorParallelUnlessItSaysOtherwise) {
  const auto command = [](size_t ranks, std::vector<std::string> arguments) {
    FleetEngine engine = StockChat();
    StockEngine stock = {"vllm", "checkpoint", "", std::move(arguments), ranks};
    EXPECT_TRUE(FillInCommand(stock, FleetModel{.name = "chat"}, &engine).ok());
    return engine.command;
  };
  EXPECT_THAT(command(2, {}), IsSupersetOf({"--tensor-parallel-size", "2"}));
  EXPECT_THAT(command(1, {}), Not(Contains("--tensor-parallel-size")));
  for (const char* flag : {"--tensor_parallel_size=2", "-pp", "--tp-size"}) {
    const auto own = command(4, {flag});
    EXPECT_THAT(own, Not(Contains("4"))) << flag;
  }
}

TEST(FillInCommand, EngineWithACommandStaysAsItIs) {
  FleetEngine engine = StockChat();
  engine.command = {"serve"};
  EXPECT_TRUE(FillInCommand({}, {}, &engine).ok());
  EXPECT_EQ(engine.command, std::vector<std::string>{"serve"});
}

TEST(DerivedPort, IsTheNamesOwnUntilOneIsTaken) {
  const uint16_t port = DerivedPort("chat", 1, {});
  EXPECT_GE(port, 20000);
  EXPECT_LT(port, 30000);
  EXPECT_EQ(DerivedPort("chat", 1, {}), port);
  EXPECT_NE(DerivedPort("code", 1, {}), port);
  EXPECT_EQ(DerivedPort("chat", 1, {port}), port + 1);
}

TEST(DerivedPort, NoneOfSeveralIsTaken) {
  const uint16_t port = DerivedPort("chat", 3, {});
  const uint16_t taken = port + 2;
  EXPECT_EQ(DerivedPort("chat", 3, {taken}), port + 3);
}

TEST(DerivedPort, EndsWhenAllAreTaken) {
  std::set<uint16_t> all;
  for (int port = 20000; port < 30000; ++port) all.insert(port);
  EXPECT_EQ(DerivedPort("chat", 1, all), 0);
  all.erase(29999);
  EXPECT_EQ(DerivedPort("chat", 1, all), 29999);
  EXPECT_EQ(DerivedPort("chat", 2, all), 0);
}

}  // namespace
}  // namespace fineserve::config
