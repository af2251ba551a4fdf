#pragma once

#include <cstdint>
#include <string>

namespace draftscope::storage {

/// Disk space kept for the last rows of a recording, in a file without a name: a full disk leaves room for
/// them, and a killed program leaves nothing behind.
class SpaceReserve {
  public:
    /// Holds `bytes` of the disk that `path` lies on, or nothing where they can't be had.
    SpaceReserve(const std::string& path, std::int64_t bytes);
    ~SpaceReserve() { release(); }
    SpaceReserve(const SpaceReserve&) = delete;
    SpaceReserve& operator=(const SpaceReserve&) = delete;
    void release();

  private:
    int file_ = -1;
};

}  // namespace draftscope::storage
