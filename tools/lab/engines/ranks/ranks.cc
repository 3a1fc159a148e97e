#include "tools/lab/engines/ranks/ranks.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tools/lab/engines/device_memory.h"
#include "tools/lab/engines/ranks/failures.h"

namespace stock_engine {
namespace {

std::string Join(const std::vector<int>& numbers) {
  std::string joined;
  for (const int number : numbers) {
    joined += (joined.empty() ? "" : ",") + std::to_string(number);
  }
  return joined;
}

void MakePipe(int ends[2]) {
  if (pipe2(ends, O_CLOEXEC) == 0) return;
  perror("group_engine: pipe2");
  exit(2);
}

}  // namespace

Ranks::Ranks(const GroupOptions& options) {
  for (size_t r = 0; r < options.gpus.size(); ++r) {
    Start(options, static_cast<int>(r));
  }
  std::string pids;
  for (const Child& child : children_) pids += " " + std::to_string(child.pid);
  printf("ranks%s\n", pids.c_str());
}

Ranks::~Ranks() {
  for (const Child& child : children_) close(child.orders);
  for (const Child& child : children_) {
    waitpid(child.pid, nullptr, 0);
    close(child.answers);
  }
}

void Ranks::Start(const GroupOptions& options, int rank) {
  const std::vector<std::string> words = {"group_engine",
                                          "--gpus",
                                          Join(options.gpus),
                                          "--rank",
                                          std::to_string(rank),
                                          "--floor",
                                          std::to_string(options.floor_blocks),
                                          "--weights",
                                          std::to_string(options.weights_mib)};
  std::vector<char*> argv;
  for (const std::string& word : words) {
    argv.push_back(const_cast<char*>(word.c_str()));
  }
  argv.push_back(nullptr);
  int orders[2], answers[2];
  MakePipe(orders);
  MakePipe(answers);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(orders[0], STDIN_FILENO);
    dup2(answers[1], STDOUT_FILENO);
    execv("/proc/self/exe", argv.data());
    _exit(127);
  }
  close(orders[0]);
  close(answers[1]);
  children_.push_back({pid, orders[1], answers[0]});
}

std::vector<fs_kv_rank> Ranks::ReadHellos() {
  std::vector<fs_kv_rank> ranks;
  for (size_t r = 0; r < children_.size(); ++r) {
    RankHello hello;
    if (!ReadAll(children_[r].answers, &hello, sizeof(hello))) RankEnded(r);
    ranks.push_back(hello.rank);
    hellos_.push_back(hello);
  }
  return ranks;
}

void Ranks::Introduce() {
  for (size_t r = 0; r < children_.size(); ++r) {
    const RankPeers peers = {hellos_[0].rank,
                             hellos_[(r + 1) % children_.size()].shared};
    const Order order = {Ask::kPeers, 0, 0};
    Send(r, &order, sizeof(order));
    Send(r, &peers, sizeof(peers));
  }
}

void Ranks::Send(size_t rank, const void* from, size_t bytes) {
  if (!WriteAll(children_[rank].orders, from, bytes)) RankEnded(rank);
}

Answer Ranks::Read(size_t rank) {
  Answer answer;
  if (!ReadAll(children_[rank].answers, &answer, sizeof(answer))) {
    RankEnded(rank);
  }
  return answer;
}

bool Ranks::AskAll(Ask ask) {
  const Order order = {ask, 0, 0};
  for (size_t r = 0; r < children_.size(); ++r) Send(r, &order, sizeof(order));
  bool all = true;
  for (size_t r = 0; r < children_.size(); ++r) all = Read(r).wrong == 0 && all;
  return all;
}

void Ranks::RankEnded(size_t rank) {
  printf("error rank %zu ended\n", rank);
  fflush(stdout);
  _exit(kExitRankEnded);  // the others see the end of their input
}

void Ranks::Judge(size_t rank, const Answer& answer) const {
  if (answer.wrong == 0) return;
  char text[160];
  snprintf(text, sizeof(text),
           "rank=%zu slab=%u word=%u wanted=0x%08x got=0x%08x", rank,
           answer.slab, answer.at, answer.wanted, answer.got);
  printf("error mismatch %s\n", text);
  fprintf(stderr, "group_engine: mismatch %s\n", text);
  fflush(stdout);
  _exit(kExitMismatch);
}

void Ranks::Finish() {
  if (orders_.empty()) return;
  for (size_t r = 0; r < children_.size(); ++r) {
    Send(r, orders_.data(), orders_.size() * sizeof(Order));
  }
  const auto count =
      std::count_if(orders_.begin(), orders_.end(), [](const Order& order) {
        return order.ask != Ask::kFill && order.ask != Ask::kWrite;
      });
  for (size_t r = 0; r < children_.size(); ++r) {
    for (long i = 0; i < count; ++i) Judge(r, Read(r));
  }
  orders_.clear();
}

}  // namespace stock_engine
