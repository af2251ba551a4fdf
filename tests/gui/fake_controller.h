#pragma once

#include <string>
#include <vector>

#include "app/jobs/controller/controller.h"
#include "tests/gui/synthetic.h"

namespace draftscope::test {

/// A controller without an engine. Runs are synthetic and continue by calls of advance().
class FakeController final : public Controller {
  public:
    FakeController();

    void submit(const Commands& commands) override;
    std::shared_ptr<const Snapshot> snapshot() const override { return snapshot_; }
    JobStatus status() const override { return status_; }

    /// Runs up to `rounds` rounds.
    void advance(int rounds);
    void show(std::shared_ptr<const Snapshot> snapshot) { snapshot_ = std::move(snapshot); }
    void add_loss(const std::string& kind, std::int64_t count);
    JobStatus& edit_status() { return status_; }
    /// Shows this data as an opened file.
    void show(Snapshot snapshot) {
        status_.opened_file = snapshot.source;
        snapshot_ = std::make_shared<const Snapshot>(std::move(snapshot));
    }

    Commands received;                      ///< all submitted commands, in order
    std::function<void(FormCheck&)> check;  ///< adds the mistakes of the forms
    std::vector<RunConfig> runs;            ///< configurations of the started runs

    template <typename C>
    int count() const {
        int n = 0;
        for (const Command& command : received) n += std::holds_alternative<C>(command);
        return n;
    }

  private:
    void start(const RunConfig& config);
    void open(const std::string& path);
    /// Fails for paths that do not end in ".dscope".
    void save_copy(const std::string& path);
    void open_other(const std::string& path);
    void add_note(const NoteRow& note);
    void compare(const CompareChoice& choice);
    /// Drafts one more level; after the last one, the round ends.
    void step_level();
    void step(int level);
    void publish();

    Capture capture_;
    std::unique_ptr<SyntheticRun> run_;
    std::shared_ptr<const Snapshot> snapshot_ = std::make_shared<Snapshot>();
    JobStatus status_;
    std::uint64_t version_ = 0;
    RowId next_run_ = 1;
    int next_level_ = 0;
};

}  // namespace draftscope::test
