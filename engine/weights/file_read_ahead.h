#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

namespace draftscope {

/// Reads byte ranges of mapped files into memory ahead of a sequential reader, so that disk and computation
/// overlap. Releases the ranges that the reader has finished, so that a model is not in memory twice. The
/// mappings must outlive this object.
class FileReadAhead {
  public:
    enum class Release {
        unmap,  ///< remove from this process; the page cache may keep the data
        evict,  ///< also evict from the page cache if memory is short
    };
    FileReadAhead(std::vector<std::span<const std::uint8_t>> ranges, Release release);
    ~FileReadAhead();
    FileReadAhead(const FileReadAhead&) = delete;
    FileReadAhead& operator=(const FileReadAhead&) = delete;

    /// Marks the first `count` ranges as no longer needed.
    void done(std::size_t count);

  private:
    void run();

    const std::vector<std::span<const std::uint8_t>> ranges_;
    const Release release_;
    std::mutex mutex_;
    std::condition_variable moved_;
    std::uint64_t done_bytes_ = 0;
    std::size_t done_ = 0;
    bool stop_ = false;
    std::thread thread_;
};

}  // namespace draftscope
