#include "shim/link/scoreboard_writer.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/contract/abi/transport.h"
#include "shim/host/environment.h"

namespace fineserve::shim {
using abi::ViewScoreboardHeader;

namespace {

using abi::DecisionRecord;
using abi::ScoreboardHeader;

// Relaxed: no reader concludes from a counter that another write is visible.
void Add(std::atomic<uint64_t>* counter, uint64_t n) {
  counter->fetch_add(n, std::memory_order_relaxed);
}

void FillHeader(ScoreboardHeader* h, uint64_t epoch, uint32_t engine_id) {
  memcpy(h->magic, abi::kScoreboardMagic, sizeof(h->magic));
  h->abi_version = abi::kAbiVersion;
  h->pid = static_cast<uint32_t>(getpid());
  h->scoreboard_bytes = abi::kScoreboardBytes;
  h->epoch = epoch;
  h->engine_id = engine_id;
  ProgramName(h->program);
}

// Counts in `here` and shows the sum in `there`, if there is a scoreboard. If
// two threads race, the scoreboard may be one behind until the next count.
template <typename T>
void AddAndShow(std::atomic<T>* here, std::atomic<T>* there) {
  const T sum = here->fetch_add(1, std::memory_order_relaxed) + 1;
  if (there != nullptr) there->store(sum, std::memory_order_relaxed);
}

template <typename T>
void Show(const std::atomic<T>& here, std::atomic<T>* there) {
  there->store(here.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

bool IsLargeEnough(int fd) {
  struct stat st;
  return fstat(fd, &st) == 0 &&
         st.st_size >= static_cast<off_t>(abi::kScoreboardBytes);
}

}  // namespace

bool ScoreboardWriter::CreateOwn() {
  if (has_scoreboard()) return true;
  const int fd =
      memfd_create(abi::kScoreboardMemfdName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return false;
  if (ftruncate(fd, abi::kScoreboardBytes) == 0 && Install(fd, 0, 0))
    return true;
  close(fd);
  return false;
}

bool ScoreboardWriter::Adopt(int fd, uint64_t epoch, uint32_t engine_id) {
  if (IsLargeEnough(fd) && Install(fd, epoch, engine_id)) return true;
  close(fd);
  return false;
}

bool ScoreboardWriter::Install(int fd, uint64_t epoch, uint32_t engine_id) {
  void* mapped = mmap(nullptr, abi::kScoreboardBytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) return false;
  auto* fresh = static_cast<Scoreboard*>(mapped);
  FillHeader(&fresh->header, epoch, engine_id);
  if (const Scoreboard* old = scoreboard()) CarryCounters(*old, fresh);
  CopyUses(fresh);
  descriptor_.Close();
  descriptor_.Adopt(fd);
  // Release: publishes the mapping and its header. Pairs with scoreboard().
  scoreboard_.store(fresh, std::memory_order_release);
  AddSmall(pending_small_.exchange(0, std::memory_order_relaxed),
           pending_small_bytes_.exchange(0, std::memory_order_relaxed));
  return true;
}

// Copies the counters. Counts that other threads add to the old scoreboard
// during the copy are lost.
void ScoreboardWriter::CarryCounters(const Scoreboard& from, Scoreboard* to) {
  for (const auto counter :
       {&Header::small_allocations, &Header::large_allocations,
        &Header::redirected_allocations, &Header::redirected_bytes,
        &Header::denied_allocations, &Header::stacks_captured,
        &Header::small_bytes, &Header::passed_bytes, &Header::room_waits,
        &Header::room_wait_ms, &Header::created_bytes,
        &Header::created_most_bytes, &Header::frozen_bytes,
        &Header::dropped_bytes, &Header::share_socket}) {
    Add(&(to->header.*counter),
        (from.header.*counter).load(std::memory_order_relaxed));
  }
  to->header.lender_pid.store(
      from.header.lender_pid.load(std::memory_order_relaxed),
      std::memory_order_relaxed);
}

void ScoreboardWriter::CopyUses(Scoreboard* to) const {
  for (uint32_t hook = 0; hook < abi::kHookCount; ++hook) {
    for (uint32_t path = 0; path < abi::kPathCount; ++path) {
      Show(uses_[hook][path], abi::UsesOf(to->header, hook) + path);
    }
  }
  Show(deepbind_, &to->header.deepbind_stripped);
  Show(plugin_stage_, &to->header.plugin_stage);
  Show(foreign_namespaces_, &to->header.foreign_namespaces);
}

void ScoreboardWriter::CountUse(abi::Hook hook, abi::Path path) {
  const auto h = static_cast<uint32_t>(hook);
  const auto n = static_cast<uint32_t>(path);
  Scoreboard* p = scoreboard();
  AddAndShow(&uses_[h][n], p ? abi::UsesOf(p->header, h) + n : nullptr);
}

void ScoreboardWriter::CountDeepbind() {
  Scoreboard* p = scoreboard();
  AddAndShow(&deepbind_, p ? &p->header.deepbind_stripped : nullptr);
}

void ScoreboardWriter::CountForeignNamespace() {
  Scoreboard* p = scoreboard();
  AddAndShow(&foreign_namespaces_, p ? &p->header.foreign_namespaces : nullptr);
}

void ScoreboardWriter::RaisePluginStage(uint32_t stage) {
  uint32_t before = plugin_stage();
  while (before < stage && !plugin_stage_.compare_exchange_weak(
                               before, stage, std::memory_order_relaxed)) {
  }
  if (Scoreboard* p = scoreboard())
    Show(plugin_stage_, &p->header.plugin_stage);
}

void ScoreboardWriter::SetLink(abi::LinkState state, const char* message) {
  Scoreboard* p = scoreboard();
  if (p == nullptr) return;
  ScoreboardHeader& h = p->header;
  if (message != nullptr && h.link_message[0] == '\0') {
    abi::CopyText(h.link_message, message);
  }
  // Release: publishes the message. Pairs with a reader's acquire of the state.
  h.link_state.store(static_cast<uint32_t>(state), std::memory_order_release);
}

void ScoreboardWriter::Record(const DecisionRecord& record) {
  Scoreboard* p = scoreboard();
  if (p == nullptr) return;
  // The ticket decides the place. Relaxed: it publishes nothing.
  const uint64_t n =
      p->header.decisions.fetch_add(1, std::memory_order_relaxed);
  abi::Decision& d = p->decisions[n % abi::kDecisionCapacity];
  uint64_t before = d.sequence.load(std::memory_order_relaxed);
  const bool busy_or_newer = (before & 1) != 0 || before > 2 * n;
  // Acquire: pairs with the release of 2n + 2 by the last writer in this place.
  if (busy_or_newer || !d.sequence.compare_exchange_strong(
                           before, 2 * n + 1, std::memory_order_acquire,
                           std::memory_order_relaxed)) {
    return;
  }
  uint64_t words[sizeof(DecisionRecord) / 8];
  memcpy(words, &record, sizeof(words));
  for (size_t i = 0; i < sizeof(words) / 8; ++i) {
    // Release: a reader that sees this word (acquire) also sees 2n + 1. One
    // fence would do for all words, but TSan does not model fences.
    d.record[i].store(words[i], std::memory_order_release);
  }
  // Release: publishes the words. Pairs with the reader's acquire of sequence.
  d.sequence.store(2 * n + 2, std::memory_order_release);
}

void ScoreboardWriter::AddSmall(uint64_t count, uint64_t bytes) {
  Scoreboard* p = scoreboard();
  Add(p != nullptr ? &p->header.small_allocations : &pending_small_, count);
  Add(p != nullptr ? &p->header.small_bytes : &pending_small_bytes_, bytes);
}

void ScoreboardWriter::CountCreated(uint64_t bytes) {
  Scoreboard* p = scoreboard();
  if (p == nullptr) return;
  // Relaxed: no reader concludes from a gauge that another write is visible.
  const uint64_t now =
      p->header.created_bytes.fetch_add(bytes, std::memory_order_relaxed) +
      bytes;
  std::atomic<uint64_t>& most = p->header.created_most_bytes;
  uint64_t before = most.load(std::memory_order_relaxed);
  while (before < now &&
         !most.compare_exchange_weak(before, now, std::memory_order_relaxed)) {
  }
}

// Relaxed: no reader concludes from a gauge that another write is visible.
void ScoreboardWriter::ShowResident(const ResidentSum& sum) {
  Scoreboard* p = scoreboard();
  if (p == nullptr) return;
  p->header.resident_bytes.store(sum.here_bytes, std::memory_order_relaxed);
  p->header.pinned_bytes.store(sum.pinned_bytes, std::memory_order_relaxed);
  p->header.lent_bytes.store(sum.lent_bytes, std::memory_order_relaxed);
  p->header.evicted_bytes.store(sum.out_bytes, std::memory_order_relaxed);
  p->header.frozen_bytes.store(sum.frozen_bytes, std::memory_order_relaxed);
  p->header.dropped_bytes.store(sum.dropped_bytes, std::memory_order_relaxed);
  p->header.readers.store(sum.readers, std::memory_order_relaxed);
}

void ScoreboardWriter::ShowSocket(const char (&name)[8]) {
  uint64_t word;
  memcpy(&word, name, sizeof(word));
  if (Scoreboard* p = scoreboard()) {
    p->header.share_socket.store(word, std::memory_order_relaxed);
  }
}

void ScoreboardWriter::ShowLender(uint32_t pid) {
  if (Scoreboard* p = scoreboard()) {
    p->header.lender_pid.store(pid, std::memory_order_relaxed);
  }
}

void ScoreboardWriter::ShowGateWaits(uint64_t waits) {
  if (Scoreboard* p = scoreboard()) {
    p->header.gate_waits.store(waits, std::memory_order_relaxed);
  }
}

void ScoreboardWriter::AbandonInChild() {
  scoreboard_.store(nullptr, std::memory_order_relaxed);
  pending_small_.store(0, std::memory_order_relaxed);
  pending_small_bytes_.store(0, std::memory_order_relaxed);
  descriptor_.Close();
}

bool ViewScoreboardWriter::Adopt(int fd, uint64_t epoch, uint32_t engine_id,
                                 uint32_t slab_count) {
  static_assert(offsetof(Scoreboard, used) == sizeof(ViewScoreboardHeader));
  const size_t bytes = abi::ViewScoreboardBytes(slab_count);
  struct stat st;
  void* mapped = MAP_FAILED;
  if (fstat(fd, &st) == 0 && st.st_size >= static_cast<off_t>(bytes)) {
    mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (mapped == MAP_FAILED) {
    close(fd);
    return false;
  }
  auto* fresh = static_cast<Scoreboard*>(mapped);
  ViewScoreboardHeader& h = fresh->header;
  memcpy(h.magic, abi::kViewScoreboardMagic, sizeof(h.magic));
  h.abi_version = abi::kAbiVersion;
  h.pid = static_cast<uint32_t>(getpid());
  h.scoreboard_bytes = bytes;
  h.epoch = epoch;
  h.engine_id = engine_id;
  h.slab_count = slab_count;
  // The new count must not be used with the old scoreboard.
  scoreboard_.store(nullptr, std::memory_order_relaxed);
  slab_count_.store(slab_count, std::memory_order_relaxed);
  descriptor_.Close();
  descriptor_.Adopt(fd);
  // Release: publishes the count. Pairs with scoreboard().
  scoreboard_.store(fresh, std::memory_order_release);
  return true;
}

void ViewScoreboardWriter::Show(const ViewGauges& gauges) {
  Scoreboard* p = scoreboard();
  if (p == nullptr) return;
  ViewScoreboardHeader& h = p->header;
  // Relaxed: each value is a hint or is read by people, and no reader relates
  // two of them.
  const auto show = [](std::atomic<uint64_t>* to, uint64_t value) {
    to->store(value, std::memory_order_relaxed);
  };
  show(&h.free_blocks, gauges.free_blocks);
  show(&h.used_blocks, gauges.used_blocks);
  show(&h.watermark_blocks, gauges.watermark_blocks);
  show(&h.linked_slabs, gauges.linked_slabs);
  show(&h.leaving_slabs, gauges.leaving_slabs);
  show(&h.steps_begun, gauges.steps_begun);
  show(&h.steps_ended, gauges.steps_ended);
  show(&h.allocated_blocks, gauges.allocated_blocks);
  show(&h.freed_blocks, gauges.freed_blocks);
  show(&h.failed_allocations, gauges.failed_allocations);
  show(&h.watermark_misses, gauges.watermark_misses);
  show(&h.returned_slabs, gauges.returned_slabs);
  show(&h.driver_calls_to_activate, gauges.driver_calls_to_activate);
  show(&h.driver_calls_serving, gauges.driver_calls_serving);
  show(&h.swaps, gauges.swaps);
  show(&h.swaps_ns, gauges.swaps_ns);
  show(&h.longest_swap_ns, gauges.longest_swap_ns);
  show(&h.sure_blocks, gauges.sure_blocks);
  show(&h.first_blocks, gauges.first_blocks);
  show(&h.most_blocks, gauges.most_blocks);
}

std::atomic<uint32_t>* ViewScoreboardWriter::Word(Words words,
                                                  uint32_t view_index) const {
  Scoreboard* p = scoreboard();
  const size_t count = slab_count_.load(std::memory_order_relaxed);
  if (p == nullptr || view_index > count) return nullptr;
  return p->used + static_cast<size_t>(words) * (count + 1) + view_index;
}

void ViewScoreboardWriter::ShowUsed(uint32_t view_index, uint32_t blocks) {
  std::atomic<uint32_t>* word = Word(Words::kUsed, view_index);
  if (word != nullptr) word->store(blocks, std::memory_order_relaxed);
}

void ViewScoreboardWriter::ShowWished(uint32_t view_index, bool wished) {
  std::atomic<uint32_t>* word = Word(Words::kWished, view_index);
  if (word != nullptr) word->store(wished, std::memory_order_relaxed);
}

void ViewScoreboardWriter::ShowMapped(uint32_t view_index, uint64_t memory) {
  std::atomic<uint32_t>* word = Word(Words::kMapped, view_index);
  if (word == nullptr) return;
  // Release: the memory was mapped before. Pairs with the acquire in IsMapped.
  word->store(static_cast<uint32_t>(memory), std::memory_order_release);
}

bool ViewScoreboardWriter::IsMapped(uint32_t view_index,
                                    uint64_t memory) const {
  const std::atomic<uint32_t>* word = Word(Words::kMapped, view_index);
  return word != nullptr && memory != 0 &&
         word->load(std::memory_order_acquire) == static_cast<uint32_t>(memory);
}

uint32_t ViewScoreboardWriter::Used(uint32_t view_index) const {
  const std::atomic<uint32_t>* word = Word(Words::kUsed, view_index);
  return word == nullptr ? 0 : word->load(std::memory_order_relaxed);
}

uint64_t ViewScoreboardWriter::SumUsed() const {
  const Scoreboard* p = scoreboard();
  if (p == nullptr) return 0;
  uint64_t sum = 0;
  const uint32_t count = slab_count_.load(std::memory_order_relaxed);
  for (uint32_t v = 1; v <= count; ++v) {
    sum += p->used[v].load(std::memory_order_relaxed);
  }
  return sum;
}

}  // namespace fineserve::shim
