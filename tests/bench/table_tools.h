#pragma once

#include <charconv>
#include <string_view>
#include <vector>

#include "engine/decode/session.h"

/// Shared by the programs of this folder that print tables.
namespace draftscope::testing {

/// Parses a positive integer.
inline bool read_number(std::string_view text, std::size_t& out) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    return error == std::errc() && end == text.data() + text.size() && out > 0;
}

/// Sums of the outcomes of a run, and the number of texts that differ from another run's.
struct ComparedRun {
    PromptOutcome sum;
    int differing = 0;
};

inline ComparedRun compare_runs(const std::vector<PromptOutcome>& expected,
                                const std::vector<PromptOutcome>& found) {
    ComparedRun out;
    out.differing = static_cast<int>(expected.size() - found.size());
    for (std::size_t p = 0; p < found.size(); ++p) {
        out.differing += found[p].tokens != expected[p].tokens ? 1 : 0;
        out.sum.rounds += found[p].rounds;
        out.sum.committed += found[p].committed;
        out.sum.decode_ns += found[p].decode_ns;
    }
    return out;
}

}  // namespace draftscope::testing
