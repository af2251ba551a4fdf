#pragma once

#include <memory>
#include <optional>
#include <string>

#include "profiler/compare.h"

/// What the Compare panel asks for and gets: a comparison as `draftscope compare` makes it.
namespace draftscope {

struct CompareSide {
    std::string source;  ///< Snapshot::source: "" = what this window records
    RowId run_id = 0;
    bool operator==(const CompareSide&) const = default;
};
struct CompareChoice {
    CompareSide a, b;
    bool force = false;
    bool operator==(const CompareChoice&) const = default;
};
struct CompareReport {
    CompareChoice choice;
    std::optional<Comparison> comparison;
    std::string refusal;       ///< why there is none
    bool may_force = false;    ///< `force` would lift the refusal
    std::size_t rounds_a = 0;  ///< rounds of the captures when it was made, to tell whether a run went on
    std::size_t rounds_b = 0;
};

CompareReport compare_report(const CompareChoice& choice, const Snapshot& a, const Snapshot& b);

}  // namespace draftscope
