#pragma once

#include <cstdint>
#include <string>

/// Kills a child process that writes a capture, at a random moment, and checks the remaining file.
namespace draftscope::testing {

struct KillOutcome {
    std::string violation;          ///< "" = nothing acknowledged was lost, and repair left a clean file
    std::int32_t acknowledged = 0;  ///< steps that the child knew to be committed
    std::int32_t recovered = 0;     ///< steps in the file afterwards
    bool ended = false;             ///< the child had reached the end of its run
};
/// Runs one kill with all random choices from `seed`. `path` must not exist; the repaired file stays.
KillOutcome kill_writer(const std::string& path, std::uint64_t seed);

}  // namespace draftscope::testing
