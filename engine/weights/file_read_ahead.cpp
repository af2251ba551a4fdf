#include "engine/weights/file_read_ahead.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace draftscope {
namespace {

constexpr std::uint64_t window = std::uint64_t{256} << 20;
constexpr std::size_t announced_bytes = std::size_t{8} << 20;

#if !defined(MADV_POPULATE_READ)
constexpr int MADV_POPULATE_READ = 22;  // of Linux 5.14, for older headers
#endif

/// Calls madvise() for the pages that `bytes` touches (outward) or fills (inward). Returns whether it
/// succeeded; advice affects speed only.
bool advise(std::span<const std::uint8_t> bytes, int advice, bool outward) {
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    auto first = reinterpret_cast<std::uintptr_t>(bytes.data());
    std::uintptr_t last = first + bytes.size();
    first = (outward ? first : first + page - 1) / page * page;
    last = (outward ? last + page - 1 : last) / page * page;
    return first >= last || ::madvise(reinterpret_cast<void*>(first), last - first, advice) == 0;
}

}  // namespace

FileReadAhead::FileReadAhead(std::vector<std::span<const std::uint8_t>> ranges, Release release)
    : ranges_(std::move(ranges)), release_(release), thread_([this] { run(); }) {}

FileReadAhead::~FileReadAhead() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    moved_.notify_one();
    thread_.join();
}

void FileReadAhead::done(std::size_t count) {
    for (; done_ < count && done_ < ranges_.size(); ++done_) {
        const auto range = ranges_[done_];
#if defined(MADV_PAGEOUT)
        if (release_ == Release::evict) advise(range, MADV_PAGEOUT, false);
#endif
        advise(range, MADV_DONTNEED, false);
        const std::lock_guard lock(mutex_);
        done_bytes_ += range.size();
    }
    moved_.notify_one();
}

void FileReadAhead::run() {
    std::uint64_t requested = 0;
    for (const auto range : ranges_) {
        for (std::size_t at = 0; at < range.size(); at += announced_bytes) {
            const std::size_t size = std::min(announced_bytes, range.size() - at);
            std::unique_lock lock(mutex_);
            moved_.wait(lock, [&] { return stop_ || requested < done_bytes_ + window; });
            if (stop_) return;
            // Skip a range that the reader has finished: reading it would bring it back into memory.
            const bool released = requested + size <= done_bytes_;
            lock.unlock();
            requested += size;
            const auto part = range.subspan(at, size);
            if (!released && !advise(part, MADV_POPULATE_READ, true)) advise(part, MADV_WILLNEED, true);
        }
    }
}

}  // namespace draftscope
