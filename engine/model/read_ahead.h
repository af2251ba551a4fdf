#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

namespace draftscope {

/// Brings stretches of mapped files into memory ahead of whoever reads them one after the other, so that the
/// disk works while the reader computes, and lets go of them behind it, so that a model does not lie in
/// memory twice. The mappings must outlive it.
class ReadAhead {
  public:
    enum class Behind {
        unmap,  ///< out of this process; the system's cache of the file may keep them
        evict,  ///< out of memory as well, where memory is short
    };
    ReadAhead(std::vector<std::span<const std::uint8_t>> stretches, Behind behind);
    ~ReadAhead();
    ReadAhead(const ReadAhead&) = delete;
    ReadAhead& operator=(const ReadAhead&) = delete;

    /// The first `count` stretches are not needed any more.
    void done(std::size_t count);

  private:
    void run();

    const std::vector<std::span<const std::uint8_t>> stretches_;
    const Behind behind_;
    std::mutex mutex_;
    std::condition_variable moved_;
    std::uint64_t done_bytes_ = 0;
    std::size_t done_ = 0;
    bool stop_ = false;
    std::thread thread_;
};

}  // namespace draftscope
