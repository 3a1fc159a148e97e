#include "tests/integration/views/view_site.h"

#include <gmock/gmock.h>

#include <fstream>

namespace fineserve::integration {
namespace {

using ::testing::StartsWith;

}  // namespace

ViewTest::Engine ViewTest::StartPool() {
  return StartDaemon({"--pool", "128MiB", "--slab", "8MiB", "--planes", "4"});
}

void ViewTest::SetPool(int mib) {
  std::ofstream(folder() + "/fineserve.toml")
      << "[pool]\nsize = \"" << mib << "MiB\"\nmax = \"128MiB\"\n"
      << "slab = \"8MiB\"\nplanes = 4\n";
}

ViewTest::Engine ViewTest::StartFromFile() {
  auto daemon = LaunchProgram(
      {"fineserved", "--gpu", Gpu(), "--config", folder() + "/fineserve.toml"});
  AwaitDaemon(daemon.get());
  return daemon;
}

ViewTest::Engine ViewTest::Launch(const std::vector<std::string>& arguments,
                                  const Process::Environment& more) {
  return LaunchPreloaded(With({"view_engine"}, arguments), more);
}

ViewTest::Engine ViewTest::Start(const std::vector<std::string>& arguments,
                                 const Process::Environment& more) {
  Engine engine = Launch(arguments, more);
  EXPECT_THAT(engine->ReadLine(), StartsWith("ready")) << engine->Stderr();
  return engine;
}

std::vector<std::string> ViewTest::Packed(
    const std::vector<std::string>& more) {
  return With({"--page", "33792", "--seed", "3"}, more);
}

std::vector<std::string> ViewTest::Layers(
    const std::vector<std::string>& more) {
  return With({"--page", "65536", "--planes", "4", "--seed", "4"}, more);
}

bool ViewTest::Gets(Process& engine, uint64_t slabs) {
  return Eventually([&] {
    engine.Ask("idle 20");
    return Stat(engine, "leased") >= slabs && Stat(engine, "leaving") == 0;
  });
}

void ViewTest::Take(Process& engine, uint32_t blocks) {
  EXPECT_TRUE(Eventually([&] {
    engine.Ask("step");
    return Stat(engine, "free") >= blocks;
  }));
  EXPECT_THAT(engine.Ask("alloc " + std::to_string(blocks)), StartsWith("ok"));
}

void ViewTest::Use(Process& engine, uint32_t blocks, const std::string& scan) {
  Take(engine, blocks);
  for (const std::string& line :
       {scan, std::string("write"), std::string("verify")}) {
    EXPECT_THAT(engine.Ask(line), StartsWith("ok")) << line;
  }
}

void ViewTest::Want(Process& engine, uint32_t blocks) {
  engine.Ask("watermark " + std::to_string(blocks));
  EXPECT_THAT(engine.Ask("step"), StartsWith("ok"));
}

void ViewTest::ExpectEnd(Process& engine) {
  EXPECT_THAT(engine.Ask("exit"), "ok exit");
  EXPECT_EQ(engine.Wait(), 0);
}

}  // namespace fineserve::integration
