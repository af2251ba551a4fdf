#include "app/jobs/controller/controller.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "app/jobs/controller/choices.h"
#include "app/jobs/kernels/kernels_job.h"
#include "app/jobs/replay/replay_job.h"
#include "app/jobs/replay/what_if.h"
#include "app/jobs/resolve/assets.h"
#include "app/jobs/resolve/resolve.h"
#include "app/jobs/run/recorder.h"
#include "app/jobs/run/run_job.h"
#include "app/jobs/sweep/find_fastest.h"
#include "app/jobs/sweep/saved_sweep.h"
#include "app/jobs/sweep/sweep_job.h"
#include "base/log.h"
#include "engine/draft/registry.h"
#include "storage/capture_file.h"
#include "storage/import/import_rounds.h"
#include "storage/import/import_timeline.h"
#include "storage/record_ids.h"

namespace draftscope {
namespace {

constexpr std::chrono::milliseconds follow_interval{200};

/// Vocabularies of watched servers are numbered apart from those of runs.
constexpr RowId first_watched_vocabulary = RowId{1} << 32;

using Job = std::variant<CmdStart, CmdOpenFile, CmdWatchServer, CmdMeasureKernels, CmdSweep, CmdFindFastest,
                         CmdReplaySetting, CmdWhatIf>;

/// What the window's thread, the job thread and the background share.
struct Shared {
    explicit Shared(std::function<void()> on_change)
        : wake(std::move(on_change)), recorder([this] { wake(); }) {}

    /// Changes the status under the lock.
    template <typename Change>
    void update(Change change) {
        const std::lock_guard lock(mutex);
        change(status);
    }
    void set_error(const std::string& message, const std::string& field = "") {
        log_error("{}", message);
        update([&](JobStatus& now) {
            now.error = to_window_words(message);
            now.error_field = field;
        });
    }
    /// A job that the user stopped has no error.
    void set_error(const Error& error) {
        if (error.kind != ErrorKind::cancelled) set_error(error.message);
    }
    /// Returns true if another job waits or the user stopped this one. Call with the mutex held.
    bool must_yield() const { return stop || !queue.empty() || status.state == JobState::stopping; }

    std::function<void()> wake;  ///< tells the window that there is something new
    Recorder recorder;
    DebugGate gate;

    mutable std::mutex mutex;  ///< of what follows
    std::condition_variable changed;
    std::deque<Job> queue;
    JobStatus status;
    bool stop = false;
};

/// A capture file that is being read: records are applied as they arrive and published periodically.
class FileLoader final : public RecordSink {
  public:
    FileLoader(const std::string& path, std::shared_ptr<const OnDiskRows> stored) {
        capture_.set_source(path);
        capture_.set_stored(std::move(stored));
    }
    void push(Record record) override {
        capture_.apply(record);
        has_new_records_ = true;
    }
    bool has_new_records() const { return has_new_records_; }
    /// Returns true if a publication is due: first after 0.1 s, then every 0.5 s.
    bool publication_due() const { return std::chrono::steady_clock::now() >= next_publication_; }
    std::shared_ptr<const Snapshot> snapshot() {
        has_new_records_ = false;
        next_publication_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
        return std::make_shared<const Snapshot>(capture_.snapshot(1));
    }

  private:
    Capture capture_;
    bool has_new_records_ = false;
    std::chrono::steady_clock::time_point next_publication_ =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
};

void open_other(Shared& shared, const std::string& path) {
    auto loaded = load_capture(path);
    if (!loaded.ok()) return shared.set_error(loaded.error());
    shared.update([&](JobStatus& status) {
        std::erase_if(status.others, [&](const auto& other) { return other->source == path; });
        status.others.push_back(std::move(*loaded));
    });
}

/// Returns the capture of a Snapshot::source among those that are open.
std::shared_ptr<const Snapshot> find_capture(Shared& shared, const std::string& source) {
    auto found = shared.recorder.snapshot();
    if (found->source == source) return found;
    shared.update([&](JobStatus& status) {
        for (const auto& other : status.others)
            if (other->source == source) found = other;
    });
    return found;
}

void compare(Shared& shared, const CompareChoice& choice) {
    const auto a = find_capture(shared, choice.a.source), b = find_capture(shared, choice.b.source);
    auto report = std::make_shared<const CompareReport>(make_compare_report(choice, *a, *b));
    shared.update([&](JobStatus& status) {
        status.comparison = std::move(report);
        status.comparing = false;
    });
}

void open_overlay(Shared& shared, const std::string& path) {
    std::shared_ptr<const Snapshot> overlay;
    if (!path.empty()) {
        auto imported = import_timeline(path);
        if (imported.ok())
            overlay = std::move(*imported);
        else
            shared.set_error(imported.error());
    }
    shared.update([&](JobStatus& status) { status.overlay = std::move(overlay); });
}

void save_copy(Shared& shared, const Snapshot& snapshot, const std::string& path) {
    if (const Status saved = save_snapshot(snapshot, path); !saved.ok())
        return shared.set_error(saved.error());
    log_info("saved {}", path);
    shared.update([&](JobStatus& status) {
        status.saved_file = path;
        ++status.saved_files;
    });
}

/// Shows a note on a round, and adds it to the file that is shown or that the last run was recorded in.
void keep_round_note(Shared& shared, const NoteRow& note) {
    std::string file = shared.recorder.snapshot()->source;
    const bool opened = !file.empty();
    shared.update([&](JobStatus& status) {
        status.error.clear();
        // Until a run has ended, the recorder writes its file.
        if (!opened && status.state == JobState::idle) file = status.config.save;
    });
    const auto added = file.empty() ? Result<bool>(true) : add_round_note(file, note);
    if (!added.ok()) shared.set_error(added.error());
    if (!opened || (added.ok() && *added)) shared.recorder.push(note);
}

/// What the job thread alone uses.
struct JobThread {
    Shared& shared;
    EngineHost host = {};
    bool showing_file = false;
};

/// Returns hooks that report progress as the status, and stop with the gate.
JobHooks job_hooks(Shared& shared, const std::string& what) {
    JobHooks hooks;
    hooks.on_progress = [&shared, what](double fraction, const std::string& doing) {
        shared.update([&](JobStatus& status) {
            status.activity = to_window_words(what + doing);
            status.progress = fraction;
        });
        shared.wake();
    };
    hooks.cancelled = [&shared] { return shared.gate.cancelled(); };
    return hooks;
}

/// Empties the capture if it is a file's, for what is recorded next.
void leave_file(JobThread& jobs) {
    if (!std::exchange(jobs.showing_file, false)) return;
    jobs.shared.recorder.clear();
    jobs.shared.update([](JobStatus& status) { status.opened_file.clear(); });
}

/// Forecasts the fastest setting of a run's drafter and prompt. The next job may begin at any time.
void forecast(JobThread& jobs, RunConfig config) {
    Shared& shared = jobs.shared;
    {
        const std::lock_guard lock(shared.mutex);
        if (shared.gate.cancelled() || !shared.queue.empty()) return;
        shared.status.state = JobState::idle;
        shared.status.activity = "forecasting the fastest setting";
    }
    shared.wake();
    config.tree = quick_tree;
    config.head = "auto";
    RunHooks hooks;
    hooks.frontend = "gui";
    hooks.only_choose = true;
    hooks.use_kept_forecast = true;
    const auto done = jobs.host.run(config, shared.recorder, shared.gate, hooks);
    if (!done.ok() || done->forecasts.empty()) return;
    const SweepSetting& best = done->forecasts.front();
    shared.update([&](JobStatus& status) {
        status.forecast =
            best.speedup() < 1
                ? "forecast: no setting is faster than plain decoding here"
                : fmt::format("forecast: the fastest setting here ({}, {} head) gives about {:.1f}x",
                              best.tree, best.head, best.speedup());
    });
}

void perform(JobThread& jobs, const CmdStart& command) {
    Shared& shared = jobs.shared;
    leave_file(jobs);
    shared.update([&](JobStatus& status) {
        status.config = command.config;
        status.forecast.clear();
    });
    RunHooks hooks;
    hooks.frontend = "gui";
    const JobHooks fetching = job_hooks(shared, "");
    hooks.on_progress = fetching.on_progress;
    // An installed program comes without the demo model.
    if (command.config.model.empty() && find_demo_model().empty())
        if (const Status fetched = fetch_demo_model(fetching); !fetched.ok())
            return shared.set_error(fetched.error());
    hooks.on_started = [&] {
        shared.update([](JobStatus& status) {
            if (status.state == JobState::loading) status.state = JobState::running;
            status.activity.clear();
            status.progress = -1;
        });
    };
    const auto done = jobs.host.run(command.config, shared.recorder, shared.gate, hooks);
    if (!done.ok()) {
        std::vector<Mistake> mistakes;
        if (done.error().kind == ErrorKind::bad_input) mistakes = find_mistakes(command.config);
        if (mistakes.empty())
            shared.set_error(done.error().message);
        else
            shared.set_error(to_text(mistakes), mistakes.front().field);
    } else if (!done->storage_error.empty()) {
        shared.set_error(done->storage_error);
    } else if (command.forecast) {
        forecast(jobs, command.config);
    }
}

/// Shows the sweeps of a capture in place of those of the file before it.
void show_sweeps(Shared& shared, const std::string& path) {
    auto saved = load_sweeps(path);
    if (!saved.ok()) shared.set_error(saved.error());
    shared.update([&](JobStatus& status) {
        std::erase_if(status.sweeps, [](const auto& sweep) { return !sweep->file.empty(); });
        if (saved.ok()) status.sweeps.insert(status.sweeps.end(), saved->begin(), saved->end());
    });
}

/// Opens another profiler's or engine's file, which is read completely and never grows.
void show_imported(JobThread& jobs, const std::string& path,
                   Result<std::shared_ptr<const Snapshot>> imported) {
    if (!imported.ok()) return jobs.shared.set_error(imported.error());
    jobs.shared.recorder.show(std::move(*imported));
    jobs.showing_file = true;
    jobs.shared.update([&](JobStatus& status) { status.opened_file = path; });
}

/// Waits until the file must be read again. Returns false if following has ended. The window is not blocked.
bool wait_for_growth(Shared& shared, const std::string& path) {
    std::unique_lock lock(shared.mutex);
    if (shared.must_yield()) return false;
    if (shared.status.state != JobState::idle) {
        shared.status.state = JobState::idle;
        shared.status.activity = "following " + path;
        shared.wake();
    }
    return !shared.changed.wait_for(lock, follow_interval, [&] { return shared.must_yield(); });
}

void perform(JobThread& jobs, const CmdOpenFile& command) {
    Shared& shared = jobs.shared;
    if (is_rounds_file(command.path)) return show_imported(jobs, command.path, import_rounds(command.path));
    if (detect_timeline_format(command.path) != TimelineFormat::none)
        return show_imported(jobs, command.path, import_timeline(command.path));
    auto file = CaptureFollower::open(command.path, default_preload_limit);
    if (!file.ok()) return shared.set_error(file.error());
    FileLoader shown(command.path, (*file)->stored());
    bool announced = false;
    const auto show = [&] {
        shared.recorder.show(shown.snapshot());
        if (std::exchange(announced, true)) return;
        jobs.showing_file = true;
        show_sweeps(shared, command.path);
        shared.update([&](JobStatus& status) { status.opened_file = command.path; });
    };
    // Shows the rows read so far while the rest of a large file is read.
    const auto go_on = [&] {
        if (shown.publication_due()) show();
        const std::lock_guard lock(shared.mutex);
        return !shared.must_yield();
    };
    Status read = (*file)->poll(shown, go_on);
    if (read.ok()) show();
    while (read.ok() && (*file)->live() && wait_for_growth(shared, command.path)) {
        read = (*file)->poll(shown, go_on);
        if (shown.has_new_records()) show();
    }
    if (!read.ok()) shared.set_error(read.error());
}

/// Passes records on with ids that continue those of the window's capture.
class LaterIds final : public RecordSink {
  public:
    LaterIds(RecordSink& next, RowIds& ids) : next_(next), ids_(ids), first_(ids) {}
    void push(Record record) override {
        storage::shift_ids(record, first_, ids_);
        next_.push(std::move(record));
    }

  private:
    RecordSink& next_;
    RowIds& ids_;
    const RowIds first_;
};

void perform(JobThread& jobs, const CmdWatchServer& command) {
    Shared& shared = jobs.shared;
    const auto config = watch_config(command, first_watched_vocabulary + jobs.host.ids().run);
    if (!config.ok()) return shared.set_error(config.error());
    leave_file(jobs);
    shared.update([](JobStatus& status) {
        if (status.state == JobState::loading) status.state = JobState::running;
    });
    LaterIds sink(shared.recorder, jobs.host.ids());
    const auto done = watch(*config, sink, job_hooks(shared, watching_activity));
    if (!done.ok()) return shared.set_error(done.error());
    say_notes(done->rounds.notes);
    if (!done->ended.empty() && !shared.gate.cancelled()) shared.set_error(done->ended);
}

void perform(JobThread& jobs, const CmdSweep& command) {
    auto done = run_window_sweep(command.request, job_hooks(jobs.shared, sweeping_activity));
    if (!done.ok()) return jobs.shared.set_error(done.error());
    jobs.shared.update(
        [&](JobStatus& status) { status.sweeps.insert(status.sweeps.begin(), std::move(*done)); });
}

/// Shows the settings of a search in place of those that it showed before.
void show_found(Shared& shared, SweepReport found, std::shared_ptr<const SweepReport>& shown) {
    auto report = std::make_shared<const SweepReport>(std::move(found));
    shared.update([&](JobStatus& status) {
        std::erase(status.sweeps, shown);
        status.sweeps.insert(status.sweeps.begin(), report);
    });
    shown = std::move(report);
    shared.wake();
}

void perform(JobThread& jobs, const CmdFindFastest& command) {
    Shared& shared = jobs.shared;
    FindFastestConfig config;
    config.run = command.config;
    std::shared_ptr<const SweepReport> shown;
    FindFastestHooks hooks;
    static_cast<JobHooks&>(hooks) = job_hooks(shared, "");
    hooks.on_step = [&](FindStep step) { shared.update([&](JobStatus& status) { status.finding = step; }); };
    hooks.on_settings = [&](SweepReport found) { show_found(shared, std::move(found), shown); };
    auto found = find_fastest(config, shared.gate, hooks);
    shared.update([](JobStatus& status) { status.finding.reset(); });
    if (!found.ok()) return shared.set_error(found.error());
    show_found(shared, std::move(*found), shown);
}

void perform(JobThread& jobs, const CmdReplaySetting& command) {
    leave_file(jobs);
    const Status done = replay_setting(command.setting, jobs.host.ids(), jobs.shared.recorder,
                                       job_hooks(jobs.shared, replaying_activity));
    if (!done.ok()) jobs.shared.set_error(done.error());
}

void perform(JobThread& jobs, const CmdWhatIf& command) {
    Shared& shared = jobs.shared;
    const auto keep = [&](const WhatIf& wanted, std::shared_ptr<const Snapshot> drafted) {
        shared.update([&](JobStatus& status) { status.what_ifs.push_back({wanted, drafted}); });
        shared.wake();
    };
    const std::shared_ptr<const Snapshot> shown = find_capture(shared, command.wanted.source);
    const Status done = what_if(command.wanted, *shown, keep, job_hooks(shared, replaying_activity));
    if (!done.ok()) shared.set_error(done.error());
}

void perform(JobThread& jobs, const CmdMeasureKernels& command) {
    auto measured = measure_kernels(command.settings, job_hooks(jobs.shared, "measuring "));
    if (!measured.ok()) return jobs.shared.set_error(measured.error());
    jobs.shared.update([&](JobStatus& status) {
        status.kernels = std::make_shared<const KernelReport>(std::move(*measured));
    });
}

/// Sets what the window must know of the machine and of the installed files.
void describe_choices(Shared& shared) {
    WindowChoices found = list_window_choices();
    shared.update([&](JobStatus& status) { static_cast<WindowChoices&>(status) = std::move(found); });
    shared.wake();
}

}  // namespace

/// Implementation with one job thread that executes runs, opening and saving in order. Gate commands take
/// effect immediately.
class JobController final : public Controller {
  public:
    explicit JobController(std::function<void()> wake)
        : shared_(std::move(wake)), thread_([this] { work(); }) {}

    ~JobController() override {
        {
            const std::lock_guard lock(shared_.mutex);
            shared_.stop = true;
            shared_.queue.clear();
        }
        shared_.gate.cancel();
        shared_.changed.notify_all();
        thread_.join();
    }

    void submit(const Commands& commands) override {
        const auto take_one = [this](const auto& command) {
            if constexpr (std::is_constructible_v<Job, decltype(command)>)
                replace_job(command);
            else
                take(command);
        };
        for (const Command& command : commands) std::visit(take_one, command);
    }
    std::shared_ptr<const Snapshot> snapshot() const override { return shared_.recorder.snapshot(); }
    JobStatus status() const override {
        const std::lock_guard lock(shared_.mutex);
        JobStatus now = shared_.status;
        if (now.state == JobState::running && shared_.gate.holding()) {
            now.state = JobState::held;
            now.hold_reason = shared_.gate.reason();
            now.hold_point = shared_.gate.point();
        }
        return now;
    }

  private:
    // Cancels the current job and clears the queue: a new command replaces older ones. Call with the mutex
    // held.
    void cancel_all() {
        shared_.queue.clear();
        after_start_.clear();
        shared_.status.state = busy_ ? JobState::stopping : JobState::idle;
        if (busy_) shared_.gate.cancel();
    }
    void replace_job(Job job) {
        {
            const std::lock_guard lock(shared_.mutex);
            cancel_all();
            // They were opened to compare with the file before.
            if (std::holds_alternative<CmdOpenFile>(job)) shared_.status.others.clear();
            shared_.queue.push_back(std::move(job));
            if (!busy_) shared_.status.state = JobState::loading;
        }
        shared_.changed.notify_all();
    }
    // A start resets the gate when the job begins, so later gate commands are stored and applied after the
    // reset.
    void post_to_gate(std::function<void(DebugGate&)> act) {
        const std::lock_guard lock(shared_.mutex);
        if (shared_.queue.empty())
            act(shared_.gate);
        else
            after_start_.push_back(std::move(act));
    }
    void take(const CmdSaveCopy& command) {
        shared_.update([](JobStatus& status) { status.error.clear(); });
        run_in_background([this, path = command.path, snapshot = find_capture(shared_, command.source)] {
            save_copy(shared_, *snapshot, path);
        });
    }
    void take(const CmdAddNote& command) {
        run_in_background([this, note = command.note] { keep_round_note(shared_, note); });
    }
    void take(const CmdOpenOverlay& command) {
        run_in_background([this, path = command.path] { open_overlay(shared_, path); });
    }
    void take(const CmdOpenOther& command) {
        run_in_background([this, path = command.path] { open_other(shared_, path); });
    }
    void take(const CmdCompare& command) {
        shared_.update([](JobStatus& status) { status.comparing = true; });
        run_in_background([this, choice = command.choice] { compare(shared_, choice); });
    }
    void take(const CmdCheck& command) {
        run_in_background([this, values = command.values, number = ++checks_] {
            if (number != checks_) return;  // the user has typed more
            auto report = std::make_shared<const FormCheck>(check_forms(values));
            shared_.update([&](JobStatus& status) { status.checked = std::move(report); });
        });
    }
    void take(const CmdStop&) {
        const std::lock_guard lock(shared_.mutex);
        cancel_all();
    }
    void take(const CmdPause&) {
        post_to_gate([](DebugGate& gate) { gate.pause(); });
    }
    void take(const CmdResume&) {
        post_to_gate([](DebugGate& gate) { gate.resume(); });
    }
    void take(const CmdStepPhase&) {
        post_to_gate([](DebugGate& gate) { gate.step(StepGranularity::phase); });
    }
    void take(const CmdStepLevel&) {
        post_to_gate([](DebugGate& gate) { gate.step(StepGranularity::level); });
    }
    void take(const CmdStepRound&) {
        post_to_gate([](DebugGate& gate) { gate.step(StepGranularity::round); });
    }
    void take(const CmdWatch& command) {
        post_to_gate([id = command.prompt_id](DebugGate& gate) { gate.watch(id); });
    }
    void take(const CmdBreakpoints& command) {
        shared_.gate.set_breakpoints({command.rejection_depth, command.out_of_vocabulary, command.slow_phase,
                                      command.end_of_text, command.text, command.round, command.token_id,
                                      command.step_ms});
    }

    /// Runs `work` on a separate thread after earlier requests, so that neither runs nor the window wait for
    /// it.
    void run_in_background(std::function<void()> work) {
        const std::lock_guard lock(background_mutex_);
        background_ = std::jthread([this, work = std::move(work), before = std::move(background_)]() mutable {
            if (before.joinable()) before.join();
            work();
            shared_.wake();
        });
    }

    void work() {
        JobThread jobs{shared_};
        describe_choices(shared_);
        while (true) {
            std::unique_lock lock(shared_.mutex);
            shared_.changed.wait(lock, [this] { return shared_.stop || !shared_.queue.empty(); });
            if (shared_.stop) return;
            const Job job = std::move(shared_.queue.front());
            shared_.queue.pop_front();
            busy_ = true;
            shared_.gate.reset();
            for (const auto& act : std::exchange(after_start_, {})) act(shared_.gate);
            shared_.status.error.clear();
            shared_.status.state = JobState::loading;
            lock.unlock();
            std::visit([&](const auto& command) { perform(jobs, command); }, job);
            lock.lock();
            busy_ = false;
            shared_.status.state = shared_.queue.empty() ? JobState::idle : JobState::loading;
            shared_.status.activity.clear();
            shared_.status.progress = -1;
            lock.unlock();
            shared_.wake();
        }
    }

    Shared shared_;
    // With the mutex of `shared_`:
    std::vector<std::function<void(DebugGate&)>> after_start_;
    bool busy_ = false;  ///< the job thread executes a job

    std::atomic<int> checks_ = 0;  ///< of forms so far
    std::mutex background_mutex_;
    std::jthread background_;
    std::thread thread_;  ///< last member: starts after the others are constructed
};

std::unique_ptr<Controller> make_controller(std::function<void()> wake) {
    return std::make_unique<JobController>(std::move(wake));
}

}  // namespace draftscope
