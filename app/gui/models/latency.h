#pragma once

#include <string>
#include <vector>

#include "stats/run_statistics.h"

/// Model of the Latency panel: how long a reader waits for tokens. It also has speed and acceptance by the
/// length of the context and by the position in the text.
namespace draftscope {

struct LatencyRow {
    std::string name, help;
    Summary ms;
};
struct LatencyModel {
    std::string empty_text;
    std::vector<LatencyRow> rows;  ///< first token, inter-token, output; none without samples
    std::vector<PositionBin> by_context, by_position;
};
/// Builds the model of a whole run.
LatencyModel build_latency(const Snapshot& snapshot, RowId run_id);

/// Returns the description of a bin: its tokens, rounds, speed and tau.
std::string describe_bin(const PositionBin& bin);
/// Returns the first number of tokens of a bin, for an axis: "0", "512", "4k".
std::string axis_label(const PositionBin& bin);

}  // namespace draftscope
