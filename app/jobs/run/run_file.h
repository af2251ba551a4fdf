#pragma once

#include <memory>

#include "app/jobs/commands/commands.h"
#include "app/jobs/run/recorder.h"
#include "app/jobs/run/run_job.h"
#include "base/result.h"
#include "storage/capture_file.h"

namespace draftscope {

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
