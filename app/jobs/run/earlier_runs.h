#pragma once

#include <string>
#include <vector>

#include "app/jobs/run/run_plan.h"
#include "base/result.h"
#include "capture/rows.h"
#include "storage/run_records.h"

namespace draftscope {

/// The capture that --resume continues.
class EarlierRuns {
  public:
    /// Returns the name of a capture while its complete conversations move to a new file.
    static std::string kept_name(const std::string& save) { return save + ".resuming"; }
    /// Returns the file to continue: the kept one, if the program was killed before all was moved, or `save`.
    /// "" if neither exists.
    static std::string find(const std::string& save);

    /// Completes what a killed run left and reads it. bad_input if another program has the file open.
    static Result<EarlierRuns> read(const std::string& path);

    /// Moves conversations that runs of the role of `row` completed to `plan.kept`. Returns bad_input with
    /// the name of the setting in which such a run differs from `row`.
    Status take(const RunRow& row, RunPlan& plan) const;

    /// Replaces --tree auto or quick by what the earlier run chose, as a second choice could differ.
    void keep_choice(RunConfig& config) const;

    const std::vector<RunRecords>& runs() const { return runs_; }

  private:
    std::vector<RunRecords> runs_;
};

}  // namespace draftscope
