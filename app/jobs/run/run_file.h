#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/jobs/commands/run_config.h"
#include "app/jobs/run/recorder.h"
#include "app/jobs/run/run_job.h"
#include "app/jobs/run/run_plan.h"
#include "base/result.h"
#include "capture/rows.h"
#include "storage/capture_file.h"
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

/// The capture file of one run. It is removed if nothing was written to it. Does nothing if the run is not
/// saved.
class RunFile {
  public:
    RunFile(const RunConfig& config, Recorder& recorder) : config_(config), recorder_(recorder) {}
    ~RunFile();
    RunFile(const RunFile&) = delete;
    RunFile& operator=(const RunFile&) = delete;

    /// Opens a new file, so that an unwritable path is reported before models are loaded. A file to be
    /// replaced is kept until start().
    Status prepare();
    /// Opens the file if prepare() did not, and passes the recorder's records on to it. With --resume, keeps
    /// the earlier file under another name.
    Status start();
    /// Deletes the earlier file. Call when its complete conversations were pushed.
    void release_earlier();
    /// What is unusual about the place of the file.
    Notes notes() const;
    /// Closes the file and reports its path, its first error and the rows missing from it. An earlier file
    /// that was not released gets its name back.
    void close(RunReport& report);

  private:
    Status open();
    Status keep_earlier();

    const RunConfig& config_;
    Recorder& recorder_;
    std::unique_ptr<CaptureWriter> writer_;
    bool started_ = false, attached_ = false;  ///< attached: the recorder refers to writer_
    std::string earlier_;                      ///< name of the earlier file, until it is released
};

}  // namespace draftscope
