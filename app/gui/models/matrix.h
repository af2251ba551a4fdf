#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/gui/models/plane.h"
#include "app/gui/models/sweep.h"
#include "capture/capture.h"

/// Model of the Matrix panel: methods by tasks. A method is a drafter with head and tree.
namespace draftscope {

struct MatrixCell {
    std::optional<Estimate> tau, speedup;  ///< speed-up over plain decoding
};
struct MatrixRow {
    std::string name;
    std::string head;               ///< for its colour; "" = none
    std::vector<MatrixCell> cells;  ///< by column
    std::string help;
};
struct MatrixModel {
    std::string empty_text;            ///< what to do; "" = there are rows
    std::vector<std::string> columns;  ///< "all", then the tasks
    std::vector<MatrixRow> rows;
    std::string note;  ///< where the figures come from, and how the intervals were computed
};

/// Builds the matrix of a capture's runs: the methods of `bench --save`, else each run as a method.
MatrixModel build_matrix(const Snapshot& snapshot);
/// Builds the matrix of a sweep's predictions: the Pareto front of the smallest batch and the default.
/// `categories` are those of the conversations.
MatrixModel build_sweep_matrix(const SweepData& data, std::span<const std::string> categories,
                               std::optional<std::size_t> usual);

/// Returns published rows in the given columns. "all" has the paper's average.
std::vector<MatrixRow> published_matrix_rows(const PublishedGroup& group,
                                             std::span<const std::string> columns);

}  // namespace draftscope
