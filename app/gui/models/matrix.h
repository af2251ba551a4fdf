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

/// What the cells show: the papers' tau (unclipped), or the speed-up over plain decoding.
enum class MatrixFigure { tau, decoding, end_to_end };

struct MatrixCell {
    std::optional<Estimate> tau;         ///< unclipped, as the papers' is
    std::optional<Estimate> speedup;     ///< of decoding
    std::optional<Estimate> end_to_end;  ///< prefill included
    std::string derived;                 ///< what a published speed-up was computed from; "" = not computed

    const std::optional<Estimate>& value(MatrixFigure figure) const;
};
struct MatrixRow {
    std::string name;
    std::string head;               ///< for its colour; "" = none
    std::vector<MatrixCell> cells;  ///< by column
    std::string help;
    MatrixCell printed = {};  ///< of published rows: the paper's mean over its own tasks
};
struct MatrixModel {
    std::string empty_text;            ///< what to do; "" = there are rows
    std::vector<std::string> columns;  ///< the mean of the tasks, then the tasks
    std::vector<MatrixRow> rows;
    std::string note;  ///< where the figures come from, and how the intervals were computed
};

/// Builds the matrix of a capture's runs: the methods of `bench --save`, else each run as a method.
MatrixModel build_matrix(const Snapshot& snapshot);
/// Builds the matrix of a sweep's predictions: the Pareto front of the smallest batch and the default.
/// `categories` are those of the conversations.
MatrixModel build_sweep_matrix(SweepSettings settings, std::span<const std::string> categories,
                               std::optional<std::size_t> usual);

/// Returns published rows in the given columns. A row has the mean of the shown tasks if its paper has them
/// all.
std::vector<MatrixRow> published_matrix_rows(const PublishedGroup& group,
                                             std::span<const std::string> columns);

/// A cell as it is drawn. Without a value, `text` is "-" and `help` is empty.
struct MatrixText {
    std::optional<Estimate> value;
    std::string text, help;
};
struct MatrixLine {
    std::string name, head, help;
    bool published = false;
    std::vector<MatrixText> cells;  ///< by column
};
struct MatrixTable {
    std::vector<std::string> columns;  ///< the model's, and the paper's mean after the first
    std::vector<MatrixLine> lines;
    std::string note;  ///< about the published lines; "" = nothing to say
    double max = 1;    ///< right end of the bars: the largest value or interval
};

/// Returns the lines of a model, then those of a published group (null = none) with such a figure.
MatrixTable build_matrix_table(const MatrixModel& model, const PublishedGroup* group, MatrixFigure figure);

}  // namespace draftscope
