#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/result.h"
#include "capture/rows.h"

namespace draftscope {

/// A setting of a sweep as a capture stores it, in table `sweep`. NaN = no interval.
struct SweptRow {
    RowId id = 0;
    std::string source;  ///< recording and lengths; settings of another source are not comparable
    std::string drafter, head, tree;
    int batch = 1;
    double tau = 0, tau_low = 0, tau_high = 0;
    double tokens_per_second = 0, tokens_per_second_low = 0, tokens_per_second_high = 0;
    double speedup = 0, speedup_low = 0, speedup_high = 0;
    double round_ms = 0, plain_ms = 0;
    bool exact = true;
    bool extrapolated = false;
    bool on_front = false;
    std::string units;  ///< JSON: [[rounds, committed, positions, accepted], ...] by conversation
};

/// Replaces the settings of one source in a capture at once. A new file is created. Ids are assigned.
/// `about` describes the sweep as JSON, in table meta; "" = unknown.
Status write_swept(const std::string& path, const std::string& source, std::vector<SweptRow> rows,
                   const std::string& about = {});

/// A sweep as a capture stores it.
struct SweptSource {
    std::string source;
    std::string about;  ///< JSON, as written; "" = unknown
    std::vector<SweptRow> rows;
};
/// Returns all sweeps of a capture, in the order of their rows; none if the file has no such table.
Result<std::vector<SweptSource>> read_all_swept(const std::string& path);

}  // namespace draftscope
