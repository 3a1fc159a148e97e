#ifndef DAEMON_SCHEDULING_LOCAL_POLICY_HUGE_PAGES_H_
#define DAEMON_SCHEDULING_LOCAL_POLICY_HUGE_PAGES_H_

#include <sys/mman.h>

#include <cstddef>
#include <new>

namespace fineserve::sched {

// An allocator for containers that may get very large and are read at random.
// From a size of a few huge pages on, it asks the kernel for huge pages, if the
// kernel has any. With 10⁶ requests waiting, a fifth of a cache miss is the
// walk of the page table (`scripts/bench admission`).
template <typename T>
struct HugePages {
  using value_type = T;

  HugePages() = default;
  template <typename U>
  HugePages(const HugePages<U>&) {}  // NOLINT(google-explicit-constructor)

  T* allocate(size_t count) {
    const size_t bytes = count * sizeof(T);
    void* memory = ::operator new(bytes, Alignment(bytes));
    // The kernel may decline.
    if (bytes >= kFew) (void)madvise(memory, bytes, MADV_HUGEPAGE);
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t count) {
    ::operator delete(memory, Alignment(count * sizeof(T)));
  }

  bool operator==(const HugePages&) const { return true; }

 private:
  static constexpr size_t kHugePage = size_t{2} << 20;
  static constexpr size_t kFew = 2 * kHugePage;
  static std::align_val_t Alignment(size_t bytes) {
    return std::align_val_t{bytes >= kFew ? kHugePage : alignof(T)};
  }
};

}  // namespace fineserve::sched

#endif  // DAEMON_SCHEDULING_LOCAL_POLICY_HUGE_PAGES_H_
