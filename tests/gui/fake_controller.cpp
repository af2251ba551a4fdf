#include "tests/gui/fake_controller.h"

#include <fmt/format.h>

namespace draftscope::test {

FakeController::FakeController() {
    status_.capability_line = "CPU 2 cores, AVX2 + VNNI, 18.4 GB/s  ·  no GPU (CUDA off): CPU times only";
    status_.default_model = "/models/SmolLM2-135M-Instruct.Q4_1.gguf";
    status_.heads = {{"full", "Full head", "reference", 0x999999, true, ""},
                     {"fr-spec:v=8192", "FR-Spec", "FR-Spec, 2025", 0xE69F00, true, ""},
                     {"slimspec:rank=72", "SlimSpec", "SlimSpec", 0x009E73, false,
                      "no weights file: run draftscope fit slimspec"},
                     {"coral",
                      "CORAL",
                      "CORAL",
                      0xCC79A7,
                      true,
                      "",
                      {{"eagle2", "no weights file for eagle2: run tools/make_head_artefacts.sh eagle2"}}}};
    status_.drafters = {{"eagle2", "EAGLE-2", true, ""},
                        {"ngram", "Prompt lookup", true, ""},
                        {"none", "none (autoregressive)", true, ""}};
    status_.rules = {{"match", "the target's own text"}, {"typical", "lossy", true, true}};
}

void FakeController::submit(const Commands& commands) {
    for (const Command& command : commands) {
        if (const auto* forms = std::get_if<CmdCheck>(&command)) {
            auto checked = std::make_shared<FormCheck>(FormCheck{forms->values});
            if (check) check(*checked);
            status_.checked = std::move(checked);
            continue;
        }
        received.push_back(command);
        if (const auto* start_command = std::get_if<CmdStart>(&command)) start(start_command->config);
        if (const auto* open_command = std::get_if<CmdOpenFile>(&command)) open(open_command->path);
        if (const auto* other = std::get_if<CmdOpenOther>(&command)) open_other(other->path);
        if (const auto* wanted = std::get_if<CmdCompare>(&command)) compare(wanted->choice);
        if (const auto* save = std::get_if<CmdSaveCopy>(&command)) save_copy(save->path);
        if (const auto* added = std::get_if<CmdAddNote>(&command)) add_note(added->note);
        if (!run_ || run_->ended()) continue;
        if (std::holds_alternative<CmdPause>(command)) {
            status_.state = JobState::held;
            status_.hold_reason = "paused";
        }
        if (std::holds_alternative<CmdResume>(command)) status_.state = JobState::running;
        if (std::holds_alternative<CmdStop>(command)) run_->end(capture_, RunEnd::cancelled);
        if (std::holds_alternative<CmdStepRound>(command)) step(-1);
        if (std::holds_alternative<CmdStepLevel>(command)) step_level();
        if (std::holds_alternative<CmdStepPhase>(command)) step(0);
        publish();
    }
}

void FakeController::start(const RunConfig& config) {
    if (run_ && !run_->ended()) return;
    runs.push_back(config);
    SyntheticOptions options;
    options.run_id = next_run_++;
    options.seed = static_cast<std::uint64_t>(options.run_id) + 6;
    options.head = config.head;
    options.drafter = config.drafter;
    run_ = std::make_unique<SyntheticRun>(options);
    run_->begin(capture_);
    status_.state = JobState::running;
    status_.activity = "decoding";
    status_.config = config;
    status_.opened_file.clear();
    status_.error.clear();
    publish();
}

void FakeController::open(const std::string& path) {
    if (!path.ends_with(".dscope")) {
        status_.error = path + ": not a capture file (wrong application id)";
        return;
    }
    SyntheticOptions options{.seed = 99, .category = "stored"};
    auto stored = *synthetic_snapshot(12, options);
    stored.source = path;
    snapshot_ = std::make_shared<const Snapshot>(std::move(stored));
    status_.others.clear();
    status_.opened_file = path;
    status_.error.clear();
}

void FakeController::save_copy(const std::string& path) {
    status_.error.clear();
    if (!path.ends_with(".dscope")) {
        status_.error = path + ": can't be written: no space left on device";
        return;
    }
    status_.saved_file = path;
    ++status_.saved_files;
}

void FakeController::open_other(const std::string& path) {
    SyntheticOptions options{.seed = 98, .head = "slimspec:rank=72", .category = "stored"};
    auto stored = *synthetic_snapshot(12, options);
    stored.source = path;
    if (path.find("tier1") != std::string::npos) stored.runs.front().tier = "T1";
    status_.others.push_back(std::make_shared<const Snapshot>(std::move(stored)));
}

void FakeController::add_note(const NoteRow& note) {
    capture_.apply(note);
    auto noted = *snapshot_;
    noted.notes.push_back(note);
    snapshot_ = std::make_shared<const Snapshot>(std::move(noted));
}

void FakeController::compare(const CompareChoice& choice) {
    const auto of = [&](const CompareSide& side) -> const Snapshot& {
        for (const auto& other : status_.others)
            if (other->source == side.source) return *other;
        return *snapshot_;
    };
    status_.comparison =
        std::make_shared<const CompareReport>(make_compare_report(choice, of(choice.a), of(choice.b)));
}

void FakeController::step_level() {
    const bool ends = next_level_ >= SyntheticOptions().levels;
    step(ends ? -1 : next_level_);
    next_level_ = ends ? 0 : next_level_ + 1;
}

void FakeController::step(int level) {
    status_.state = JobState::held;
    status_.hold_reason = "paused";
    if (level < 0) {
        run_->advance(capture_);
        status_.hold_point = {};
        status_.hold_point.kind = HoldPoint::Kind::after_round;
        status_.hold_point.round = run_->rounds();
        return;
    }
    LiveRound live = run_->live_round(level);
    status_.hold_point = live.at;
    capture_.apply(live);
}

void FakeController::advance(int rounds) {
    for (int i = 0; i < rounds && run_ && status_.state == JobState::running && run_->advance(capture_); ++i)
        continue;
    publish();
}

void FakeController::add_loss(const std::string& kind, std::int64_t count) {
    LossRow loss{.run_id = next_run_ - 1, .kind = kind, .count = count};
    capture_.apply(loss);
    publish();
}

void FakeController::publish() {
    if (run_ && run_->ended()) {
        status_.state = JobState::idle;
        status_.activity = "";
        status_.hold_reason.clear();
    }
    snapshot_ = std::make_shared<const Snapshot>(capture_.snapshot(++version_));
}

}  // namespace draftscope::test
