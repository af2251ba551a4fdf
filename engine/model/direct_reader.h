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

#include "base/result.h"
#include "engine/model/mapped_file.h"

namespace draftscope {

/// Reads stretches of mapped files past the system's cache, group by group, ahead of whoever uses them: a
/// model that is read once needs no second copy in memory, and fresh memory can cost more than the disk
/// (docs/decisions/0019).
class DirectReader {
  public:
    /// Stretches of the mappings that are used together.
    using Group = std::vector<std::span<const std::uint8_t>>;
    static constexpr std::size_t usual_window = std::size_t{512} << 20;
#if defined(O_DIRECT)
    static constexpr int past_cache = O_DIRECT;
#else
    static constexpr int past_cache = 0;
#endif

    /// Null where it cannot be done: a file system that reads through its cache only, a file that was
    /// replaced since it was mapped, a stretch of none of `files`. `flags` are open()'s; of groups not used
    /// yet it holds `window` bytes, or one group.
    static std::unique_ptr<DirectReader> open(std::span<const MappedFile* const> files,
                                              std::vector<Group> groups, int flags = past_cache,
                                              std::size_t window = usual_window);
    ~DirectReader();
    DirectReader(const DirectReader&) = delete;
    DirectReader& operator=(const DirectReader&) = delete;

    /// The next group's bytes in the order of its stretches, good until the next call; at most once for each
    /// group. An error names the file and the place that could not be read.
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
    /// A group in memory.
    struct Read {
        std::vector<Buffer> buffers;
        std::vector<std::span<const std::uint8_t>> stretches;
        std::size_t bytes = 0;
    };

    DirectReader(std::vector<Group> groups, std::size_t window)
        : groups_(std::move(groups)), window_(window) {}
    const File* file_of(std::span<const std::uint8_t> stretch) const;
    void run();
    Status read(const Group& group, Read& out);
    Status read(const File& file, std::span<const std::uint8_t> stretch, Read& out);
    Buffer take(std::size_t bytes);  ///< null data: out of memory
    void give_back(Read& read);

    const std::vector<Group> groups_;
    const std::size_t window_;
    std::vector<File> files_;
    std::mutex mutex_;
    std::condition_variable moved_;
    std::vector<Read> ready_;  ///< in order; the first is next()'s
    std::vector<Buffer> spare_;
    std::optional<Error> error_;
    std::size_t held_ = 0;  ///< bytes of ready_ and of the group in use
    Read used_;
    bool stop_ = false;
    std::thread thread_;
};

/// The part of `groups` that lies in the system's cache, from a sample of its pages; 1 where the system does
/// not tell.
double cached_share(std::span<const DirectReader::Group> groups);

}  // namespace draftscope
