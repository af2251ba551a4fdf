#pragma once

#include <memory>
#include <optional>
#include <string>

#include "stats/compare.h"

/// Request and result of the Compare panel; the same comparison as `draftscope compare`.
namespace draftscope {

/// One of the two runs.
struct CompareSide {
    std::string source;  ///< Snapshot::source; "" = the capture that this window records
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
    std::string refusal;       ///< why `comparison` is absent
    bool may_force = false;    ///< true if `force` allows the comparison
    std::size_t rounds_a = 0;  ///< rounds of each capture at the comparison, to detect that a run continued
    std::size_t rounds_b = 0;
};

/// Compares two runs. Incomparable runs give a report with `refusal`.
CompareReport make_compare_report(const CompareChoice& choice, const Snapshot& a, const Snapshot& b);

}  // namespace draftscope
