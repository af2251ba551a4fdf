#pragma once

#include <fcntl.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"

namespace draftscope {

/// Reads byte ranges of mapped files ahead of their use, bypassing the page cache. A model that is read once
/// needs no second copy in memory, and allocating fresh memory can cost more than the disk read
/// (docs/decisions/0019).
class DirectIoReader {
  public:
    /// Byte ranges of the mappings that are used together.
    using Group = std::vector<std::span<const std::uint8_t>>;
    static constexpr std::size_t default_window = std::size_t{512} << 20;
#if defined(O_DIRECT)
    static constexpr int open_flags = O_DIRECT;
#else
    static constexpr int open_flags = 0;
#endif

    /// Opens a reader; returns null if direct reads are impossible. Reasons are a file system that reads
    /// through its cache only, a file replaced after it was mapped, and a range outside `files`. `flags` are
    /// passed to open(). The reader holds at most `window` bytes of unused groups, or one group.
    static std::unique_ptr<DirectIoReader> open(std::span<const MappedFile* const> files,
                                                std::vector<Group> groups, int flags = open_flags,
                                                std::size_t window = default_window);
    ~DirectIoReader();
    DirectIoReader(const DirectIoReader&) = delete;
    DirectIoReader& operator=(const DirectIoReader&) = delete;

    /// Returns the bytes of the next group, one span per range, valid until the next call. Call it at most
    /// once per group. An error names the file and the offset that could not be read.
    Result<std::vector<std::span<const std::uint8_t>>> next();

  private:
    struct File {
        const MappedFile* mapped;
        int descriptor;
    };
    struct Buffer {
        std::byte* data = nullptr;
        std::size_t size = 0;
    };
    /// The buffers and ranges of a group in memory.
    struct Read {
        std::vector<Buffer> buffers;
        std::vector<std::span<const std::uint8_t>> ranges;
        std::size_t bytes = 0;
    };

    DirectIoReader(std::vector<Group> groups, std::size_t window)
        : groups_(std::move(groups)), window_(window) {}
    const File* find_file(std::span<const std::uint8_t> range) const;
    void run();
    Status read(const Group& group, Read& out);
    Status read(const File& file, std::span<const std::uint8_t> range, Read& out);
    Buffer acquire_buffer(std::size_t bytes);  ///< null data: out of memory
    void release_buffers(Read& read);

    const std::vector<Group> groups_;
    const std::size_t window_;
    std::vector<File> files_;
    std::mutex mutex_;
    std::condition_variable moved_;
    std::vector<Read> ready_;  ///< in order; next() returns the first
    std::vector<Buffer> spare_;
    std::optional<Error> error_;
    std::size_t held_bytes_ = 0;  ///< bytes in ready_ and in_use_
    Read in_use_;
    bool stop_ = false;
    std::thread thread_;
};

/// Returns the fraction of `groups` in the page cache, from a sample of its pages; 1 if the system does not
/// report it.
double cached_fraction(std::span<const DirectIoReader::Group> groups);

}  // namespace draftscope
