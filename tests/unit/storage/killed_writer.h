#pragma once

#include <cstdint>
#include <string>

/// Kills a child process that only writes a capture, at a random moment, and looks at what it left.
namespace draftscope::testing {

struct KillOutcome {
    std::string violation;          ///< "" = nothing acknowledged was lost and repair left a clean file
    std::int32_t acknowledged = 0;  ///< steps that the child knew to be committed
    std::int32_t recovered = 0;     ///< steps in the file afterwards
    bool ended = false;             ///< the child had come to the end of its run
};
/// One kill with everything random drawn from `seed`; `path` is free and stays behind, repaired.
KillOutcome kill_writer(const std::string& path, std::uint64_t seed);

}  // namespace draftscope::testing
