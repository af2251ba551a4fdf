#pragma once

#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "app/gui/models/cached_model.h"
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
    int version = 0;   ///< set by its owner: changes with the contents
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
    std::vector<MatrixLine> lines;
    double max = 1;  ///< right end of the bars: the largest value or interval
};

/// Keeps the texts of a table between frames.
class MatrixTableCache {
  public:
    /// Returns the lines of a model, then those of a published group (null = none). `speed` selects the
    /// speed-ups, else tau. The result is valid until the next call.
    const MatrixTable& table(const MatrixModel& model, const PublishedGroup* group, bool speed);
    int builds() const { return builds_; }

  private:
    /// By model, its version, published group, and what is shown.
    CachedModel<MatrixTable, std::tuple<const MatrixModel*, int, const PublishedGroup*, bool>> table_;
    int builds_ = 0;
};

}  // namespace draftscope
