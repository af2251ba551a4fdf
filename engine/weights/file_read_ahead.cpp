#include "engine/weights/file_read_ahead.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace draftscope {
namespace {

constexpr std::uint64_t window = std::uint64_t{256} << 20;
constexpr std::size_t piece = std::size_t{8} << 20;

/// Calls madvise() for the pages that `bytes` touches (outward) or fills (inward). Errors are ignored: advice
/// affects speed only.
void advise(std::span<const std::uint8_t> bytes, int advice, bool outward) {
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    auto first = reinterpret_cast<std::uintptr_t>(bytes.data());
    std::uintptr_t last = first + bytes.size();
    first = (outward ? first : first + page - 1) / page * page;
    last = (outward ? last + page - 1 : last) / page * page;
    if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, advice);
}

}  // namespace

ReadAhead::ReadAhead(std::vector<std::span<const std::uint8_t>> stretches, Behind behind)
    : stretches_(std::move(stretches)), behind_(behind), thread_([this] { run(); }) {}

ReadAhead::~ReadAhead() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    moved_.notify_one();
    thread_.join();
}

void ReadAhead::done(std::size_t count) {
    for (; done_ < count && done_ < stretches_.size(); ++done_) {
        const auto stretch = stretches_[done_];
#if defined(MADV_PAGEOUT)
        if (behind_ == Behind::evict) advise(stretch, MADV_PAGEOUT, false);
#endif
        advise(stretch, MADV_DONTNEED, false);
        const std::lock_guard lock(mutex_);
        done_bytes_ += stretch.size();
    }
    moved_.notify_one();
}

void ReadAhead::run() {
    std::uint64_t asked = 0;
    for (const auto stretch : stretches_) {
        for (std::size_t at = 0; at < stretch.size(); at += piece) {
            const std::size_t size = std::min(piece, stretch.size() - at);
            std::unique_lock lock(mutex_);
            moved_.wait(lock, [&] { return stop_ || asked < done_bytes_ + window; });
            if (stop_) return;
            // Skip a range that the reader has finished: reading it would bring it back into memory.
            const bool late = asked + size <= done_bytes_;
            lock.unlock();
            asked += size;
            if (!late) advise(stretch.subspan(at, size), MADV_WILLNEED, true);
        }
    }
}

}  // namespace draftscope
