#pragma once

#include <cstdint>
#include <string>

namespace draftscope::storage {

/// Reserves disk space for the last rows of a recording, in an unnamed file. A full disk thus leaves space
/// for them, and a killed program leaves no file.
class SpaceReserve {
  public:
    /// Reserves `bytes` on the disk of `path`, or nothing if that fails.
    SpaceReserve(const std::string& path, std::int64_t bytes);
    ~SpaceReserve() { release(); }
    SpaceReserve(const SpaceReserve&) = delete;
    SpaceReserve& operator=(const SpaceReserve&) = delete;
    void release();

  private:
    int file_ = -1;
};

}  // namespace draftscope::storage
