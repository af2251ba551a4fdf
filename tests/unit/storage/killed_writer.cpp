#include "killed_writer.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "base/rng.h"
#include "random_capture.h"
#include "storage/capture_file.h"

namespace draftscope::testing {

namespace {

/// Writes everything and closes. Reports the number of acknowledged steps through the pipe.
[[noreturn]] void record(const std::string& path, const std::vector<Record>& records, int pipe_end) {
    auto writer = CaptureWriter::create(path, false);
    if (!writer.ok()) _exit(1);
    std::int32_t steps = 0;
    for (std::size_t i = 0; i < records.size(); ++i) {
        steps += std::holds_alternative<StepRecord>(records[i]) ? 1 : 0;
        (*writer)->push(records[i]);
        if (i % 23 != 22 && i + 1 != records.size()) continue;
        if (!(*writer)->flush().ok()) _exit(2);
        if (write(pipe_end, &steps, sizeof steps) != sizeof steps) _exit(3);
    }
    if (!(*writer)->close().ok()) _exit(4);
    for (;;) pause();
}

std::int32_t kill_recording(const std::string& path, const std::vector<Record>& records, Rng& rng) {
    int ends[2];
    if (pipe(ends) != 0) return -1;
    const int flushes = (static_cast<int>(records.size()) + 22) / 23;
    // One in three is killed in the last transaction, while indexes are built or the log is merged.
    const bool at_end = rng.below(3) == 0;
    const int after = at_end ? flushes : 1 + static_cast<int>(rng.below(static_cast<std::uint32_t>(flushes)));
    const std::uint32_t delay_us = rng.below(at_end ? 30'000 : 3'000);
    const pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        record(path, records, ends[1]);
    }
    close(ends[1]);
    std::int32_t acknowledged = 0, steps = 0;
    for (int i = 0; i < after && read(ends[0], &steps, sizeof steps) == sizeof steps; ++i)
        acknowledged = steps;
    usleep(delay_us);  // so that the kill occurs during the next operations
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFSIGNALED(status)) acknowledged = -1;
    while (read(ends[0], &steps, sizeof steps) == sizeof steps) acknowledged = steps;
    close(ends[0]);
    return acknowledged;
}

std::string check_left(const std::string& path, KillOutcome& outcome) {
    const auto before = load_capture(path);
    if (!before.ok()) return before.error().message;
    outcome.recovered = static_cast<std::int32_t>((*before)->steps.size());
    if (outcome.recovered < outcome.acknowledged) return "steps that were acknowledged are not in the file";
    outcome.ended = !(*before)->runs.empty() && (*before)->runs[0].ended == RunEnd::ok;
    const auto found = check_capture(path);
    if (!found.ok()) return found.error().message;
    if (!outcome.ended && found->findings.size() != 1)
        return fmt::format("{} findings where one was to be expected", found->findings.size());
    for (const CheckFinding& finding : found->findings)
        if (finding.what.find(outcome.ended ? "indexes are missing" : "has no end") == std::string::npos)
            return finding.what;
    return {};
}

std::string check_repaired(const std::string& path, const KillOutcome& outcome) {
    for (int i = 0; i < 2; ++i) {  // the second repair changes nothing
        const Status repaired = repair_capture(path);
        if (!repaired.ok()) return repaired.error().message;
    }
    const auto report = check_capture(path);
    if (!report.ok()) return report.error().message;
    if (!report->findings.empty()) return "after the repair: " + report->findings[0].what;
    if (std::filesystem::exists(path + "-wal") || std::filesystem::exists(path + "-shm"))
        return "the repair left the log behind";
    const auto loaded = load_capture(path);
    if (!loaded.ok()) return loaded.error().message;
    const Snapshot& after = **loaded;
    if (static_cast<std::int32_t>(after.steps.size()) != outcome.recovered)
        return "the repair changed the number of steps";
    if (after.runs.empty()) return {};
    if (after.runs[0].ended != (outcome.ended ? RunEnd::ok : RunEnd::recovered))
        return "the run does not end as it did";
    if (!after.steps.empty() && after.run_end_ns[0] < after.steps.back().row.end_ns)
        return "the run ends before its last step";
    return {};
}

}  // namespace

KillOutcome kill_writer(const std::string& path, std::uint64_t seed) {
    Rng rng(seed);
    const int steps = 40 + static_cast<int>(rng.below(200));
    const std::vector<Record> records = RandomCapture(seed, {1, 2, steps, 1, true}).records();
    KillOutcome outcome;
    outcome.acknowledged = kill_recording(path, records, rng);
    if (outcome.acknowledged < 0) {
        outcome.violation = "the child ended before it was killed";
        return outcome;
    }
    outcome.violation = check_left(path, outcome);
    if (outcome.violation.empty()) outcome.violation = check_repaired(path, outcome);
    return outcome;
}

}  // namespace draftscope::testing
