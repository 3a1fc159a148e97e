#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "tools/lab/device/stream/context.h"
#include "tools/lab/device/stream/event.h"
#include "tools/lab/device/stream/stream.h"

namespace fineserve::emucuda {
namespace {

Operation Do(std::function<void()> run) {
  return {.after = {}, .run = std::move(run), .is_work = true};
}

TEST(StreamTest, OperationsRunInOrder) {
  Context context(0);
  const auto stream = context.CreateStream(/*blocking=*/false);
  std::vector<int> order;  // only the worker uses it until WaitIdle
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(context.Submit(*stream, Do([&order, i] { order.push_back(i); })),
              CUDA_SUCCESS);
  }
  stream->WaitIdle();
  ASSERT_EQ(order.size(), 100u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  context.Destroy();
}

TEST(StreamTest, ClosedStreamFinishesAndRefuses) {
  Context context(0);
  const auto stream = context.CreateStream(/*blocking=*/false);
  Completion gate;
  std::atomic<int> ran{0};
  context.Submit(*stream, Do([&gate] { gate.Wait(); }));
  context.Submit(*stream, Do([&ran] { ++ran; }));
  stream->Close();
  EXPECT_EQ(context.Submit(*stream, Do([&ran] { ++ran; })),
            CUDA_ERROR_CONTEXT_IS_DESTROYED);
  gate.Finish();
  stream->WaitIdle();
  EXPECT_EQ(ran, 1);
  context.Destroy();
}

TEST(StreamTest, FirstErrorStaysAndLaterWorkIsSkipped) {
  Context context(0);
  const auto stream = context.default_stream();
  bool ran = false;
  EXPECT_EQ(context.RunWork(*stream, [] { return CUDA_ERROR_ILLEGAL_ADDRESS; }),
            CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(context.RunWork(*stream,
                            [&ran] {
                              ran = true;
                              return CUDA_ERROR_LAUNCH_FAILED;
                            }),
            CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_FALSE(ran);
  context.Destroy();
}

TEST(StreamTest, RevivedContextForgetsItsDeath) {
  Context context(0);
  context.Fail(CUDA_ERROR_ILLEGAL_ADDRESS);
  context.Destroy();
  EXPECT_FALSE(context.alive());
  context.Revive();
  EXPECT_TRUE(context.alive());
  EXPECT_EQ(
      context.RunWork(*context.default_stream(), [] { return CUDA_SUCCESS; }),
      CUDA_SUCCESS);
  context.Destroy();
}

// By the legacy rule, work on the default stream never overlaps work on a
// blocking stream. Each operation counts itself in and out.
TEST(StreamTest, DefaultStreamNeverOverlapsBlockingStreams) {
  Context context(0);
  const auto legacy = context.default_stream();
  const std::shared_ptr<Stream> blocking[2] = {context.CreateStream(true),
                                               context.CreateStream(true)};
  std::atomic<int> in_blocking{0}, in_legacy{0}, overlaps{0};
  const auto submit = [&](unsigned seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < 300; ++i) {
      if (random() % 3 == 0) {
        context.Submit(*legacy, Do([&] {
          ++in_legacy;
          if (in_blocking != 0) ++overlaps;
          --in_legacy;
        }));
      } else {
        context.Submit(*blocking[random() % 2], Do([&] {
          ++in_blocking;
          if (in_legacy != 0) ++overlaps;
          --in_blocking;
        }));
      }
    }
  };
  std::thread first(submit, 1), second(submit, 2);
  first.join();
  second.join();
  EXPECT_EQ(context.Synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(overlaps, 0);
  context.Destroy();
}

TEST(StreamTest, EventNamesItsLatestRecording) {
  const Context context(/*device=*/0);
  Event event(context, /*flags=*/0);
  EXPECT_EQ(event.Latest(), nullptr);
  const auto first = std::make_shared<Completion>();
  const auto second = std::make_shared<Completion>();
  event.Record(first);
  event.Record(second);
  first->Finish();
  EXPECT_FALSE(event.Latest()->finished());
  second->Finish();
  EXPECT_TRUE(event.Latest()->finished());
}

}  // namespace
}  // namespace fineserve::emucuda
