#include "tools/lab/device/linger/linger.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace fineserve::emucuda {
namespace {

constexpr char kProgram[] = "emucuda-linger";
// Source descriptors are first moved to this number or higher, above all
// targets.
constexpr int kOutOfTheWay = 64;

// The helper is in the same folder as this library.
std::string ProgramPath() {
  Dl_info self;
  if (dladdr(reinterpret_cast<void*>(&ProgramPath), &self) == 0) return "";
  const std::string library = self.dli_fname;
  const size_t slash = library.rfind('/');
  return (slash == std::string::npos ? "" : library.substr(0, slash + 1)) +
         kProgram;
}

LingerJournal* NewJournal(Descriptor* file) {
  *file = Descriptor(memfd_create("emucuda-linger", MFD_CLOEXEC));
  if (!file->valid() || ftruncate(file->get(), sizeof(LingerJournal)) != 0) {
    return nullptr;
  }
  void* place = mmap(nullptr, sizeof(LingerJournal), PROT_READ | PROT_WRITE,
                     MAP_SHARED, file->get(), 0);
  return place == MAP_FAILED ? nullptr : static_cast<LingerJournal*>(place);
}

// Runs the helper with `sources` as its descriptors from kLingerPipe on. The
// helper inherits nothing else from the host program, neither environment nor
// descriptors. It detaches from this process before it starts to work, so that
// the host never waits for a child that it did not start. Returns 0 or an
// errno.
int Spawn(const std::string& program, const std::vector<int>& sources) {
  std::vector<Descriptor> high;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (int fd = 0; fd < kLingerPipe; ++fd) {
    posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
  }
  int target = kLingerPipe;
  for (const int source : sources) {
    high.emplace_back(fcntl(source, F_DUPFD_CLOEXEC, kOutOfTheWay));
    posix_spawn_file_actions_adddup2(&actions, high.back().get(), target++);
  }
  posix_spawn_file_actions_addclosefrom_np(&actions, target);
  char* const arguments[] = {const_cast<char*>(kProgram), nullptr};
  char* const environment[] = {nullptr};
  pid_t pid = 0;
  const int error = posix_spawn(&pid, program.c_str(), &actions, nullptr,
                                arguments, environment);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return error;
  // 0 if the client lets the kernel reap its children (SIGCHLD ignored).
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : ECHILD;
}

}  // namespace

Linger::Record::~Record() {
  for (LingerEntry* entry : entries_) {
    // Release: the work is done before the entry becomes free.
    entry->sequence.store(0, std::memory_order_release);
  }
}

bool Linger::Set(const Times& times, const DeviceList& devices,
                 const DriverLock& driver_lock, std::string* complaint) {
  const MutexLock lock(mutex_);
  if ((times.linger_ms > 0 || times.teardown_us_per_gib > 0) &&
      journal_.load() == nullptr && !Start(devices, driver_lock, complaint)) {
    return false;
  }
  LingerJournal* journal = journal_.load();
  if (journal != nullptr) {
    journal->linger_ms.store(times.linger_ms, std::memory_order_relaxed);
    journal->teardown_us_per_gib.store(times.teardown_us_per_gib,
                                       std::memory_order_relaxed);
  }
  return true;
}

bool Linger::Start(const DeviceList& devices, const DriverLock& lock,
                   std::string* complaint) {
  const std::string program = ProgramPath();
  Descriptor file;
  LingerJournal* journal = NewJournal(&file);
  int ends[2];
  int error = journal == nullptr || pipe2(ends, O_CLOEXEC) != 0 ? errno : 0;
  if (error == 0) {
    const Descriptor read_end(ends[0]);
    pipe_ = Descriptor(ends[1]);
    journal->client = static_cast<uint32_t>(getpid());
    std::vector<int> sources = {
        read_end.get(), file.get(),
        lock.is_shared() ? lock.descriptor() : read_end.get()};
    for (const Device& device : devices) {
      sources.push_back(device.memory->fd());
      sources.push_back(device.memory->control_fd());
    }
    error = Spawn(program, sources);
  }
  if (error != 0) {
    *complaint = "emucuda: cannot start " + program + ": " + strerror(error);
    return false;
  }
  journal_.store(journal, std::memory_order_release);
  return true;
}

bool Linger::on() const {
  const LingerJournal* journal = journal_.load(std::memory_order_acquire);
  return journal != nullptr &&
         journal->linger_ms.load(std::memory_order_relaxed) > 0;
}

LingerEntry* Linger::TakeEntry() {
  LingerJournal* journal = journal_.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < kLingerEntries; ++i) {
    LingerEntry& entry = journal->entries[next_];
    next_ = (next_ + 1) % kLingerEntries;
    if (entry.sequence.load(std::memory_order_relaxed) == 0) return &entry;
  }
  return nullptr;
}

bool Linger::Add(const LingerEntry& piece, Record* record) {
  LingerEntry* entry = TakeEntry();
  if (entry == nullptr) return false;
  entry->device = piece.device;
  entry->width = piece.width;
  entry->to = piece.to;
  entry->from = piece.from;
  entry->bytes = piece.bytes;
  entry->value = piece.value;
  entry->sequence.store(++sequence_, std::memory_order_release);
  record->entries_.push_back(entry);
  return true;
}

std::shared_ptr<Linger::Record> Linger::QueueFill(const AddressSpace& space,
                                                  int device, CUdeviceptr to,
                                                  Pattern pattern,
                                                  uint64_t bytes) {
  if (!on()) return nullptr;
  std::vector<Segment> segments;
  if (space.Resolve(device, to, bytes,
                    driver::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                    &segments) != CUDA_SUCCESS) {
    return nullptr;  // the work will fail and write nothing
  }
  auto record = std::make_shared<Record>();
  const MutexLock lock(mutex_);
  for (const Segment& segment : segments) {
    LingerEntry piece = {};
    piece.device = static_cast<uint32_t>(segment.object->device);
    piece.width = pattern.width;
    piece.value = pattern.value;
    piece.to = segment.file_offset;
    piece.bytes = segment.bytes;
    if (!Add(piece, record.get())) return nullptr;
  }
  return record;
}

std::shared_ptr<Linger::Record> Linger::QueueCopy(const AddressSpace& space,
                                                  int device, CUdeviceptr to,
                                                  CUdeviceptr from,
                                                  uint64_t bytes) {
  if (!on()) return nullptr;
  std::vector<Segment> targets, sources;
  if (space.Resolve(device, to, bytes,
                    driver::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                    &targets) != CUDA_SUCCESS ||
      space.Resolve(device, from, bytes, driver::CU_MEM_ACCESS_FLAGS_PROT_READ,
                    &sources) != CUDA_SUCCESS) {
    return nullptr;
  }
  auto record = std::make_shared<Record>();
  const MutexLock lock(mutex_);
  auto target = targets.begin();
  auto source = sources.begin();
  while (target != targets.end() && source != sources.end()) {
    LingerEntry piece = {};
    piece.device = static_cast<uint32_t>(target->object->device);
    piece.to = target->file_offset;
    piece.from = source->file_offset;
    piece.bytes = std::min(target->bytes, source->bytes);
    // A copy between devices does not linger.
    if (source->object->device != target->object->device ||
        !Add(piece, record.get())) {
      return nullptr;
    }
    for (Segment* side : {&*target, &*source}) {
      side->file_offset += piece.bytes;
      side->bytes -= piece.bytes;
    }
    if (target->bytes == 0) ++target;
    if (source->bytes == 0) ++source;
  }
  return record;
}

}  // namespace fineserve::emucuda
