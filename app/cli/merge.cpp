#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "app/cli/cli.h"
#include "app/jobs/replay/replay_job.h"
#include "app/jobs/run/pool.h"
#include "app/jobs/sweep/sweep_job.h"
#include "stats/comparable.h"
#include "storage/capture_file.h"

namespace draftscope::cli {
namespace {

struct MergeArguments {
    std::string out;
    std::vector<std::string> files;
    std::string profile;
    bool pool = false;
};

struct KnownRun {
    std::size_t file = 0;  ///< index in the list of files
    RunRow run;
};

/// Returns the number of runs. Checks each against the first: a file must not mix targets, tiers or machines
/// in its tables.
Result<std::size_t> count_mergeable(const std::vector<std::string>& files) {
    std::vector<KnownRun> runs;
    for (std::size_t i = 0; i < files.size(); ++i) {
        const std::string& file = files[i];
        DS_ASSIGN(const std::vector<RunRow> rows, read_runs(file));
        for (const RunRow& run : rows) {
            for (const KnownRun& known : runs) {
                if (known.file != i && known.run.started_utc == run.started_utc &&
                    known.run.name == run.name && known.run.config_json == run.config_json)
                    return bad_input("{}: its run {} ({}, {}) is also in {}; name each shard once", file,
                                     run.id, run.name, run.started_utc, files[known.file]);
            }
            if (!runs.empty()) {
                const std::string forbidden = separating_text(run_differences(runs[0].run, run));
                if (!forbidden.empty())
                    return bad_input(
                        "{} and {} can't be merged: their runs differ in {}, and the tables would mix them; "
                        "keep separate files (draftscope compare --force compares them)",
                        files[runs[0].file], file, forbidden);
            }
            if (run.ended == RunEnd::live)
                return bad_input(
                    "{}: its run {} has no end: it is being written, or was interrupted; wait, or run "
                    "draftscope check --repair {} first",
                    file, run.id, file);
            runs.push_back({i, run});
        }
    }
    return runs.size();
}

Result<int> do_pool(const MergeArguments& options) {
    const auto print_written = [&](const Result<std::size_t>& pooled, const char* what) -> Result<int> {
        DS_TRY(pooled);
        std::fprintf(stderr, "wrote %s: %zu %s of %zu shards\n", options.out.c_str(), *pooled, what,
                     options.files.size());
        return 0;
    };
    std::error_code error;
    if (std::filesystem::is_directory(options.files.front(), error))
        return print_written(pool_recordings(options.out, options.files), "conversations");
    DS_ASSIGN(const bool sweep, is_sweep_file(options.files.front()));
    if (sweep) return print_written(pool_sweeps(options.out, options.files, options.profile), "settings");
    DS_ASSIGN(const PoolReport done, pool_captures(options.out, options.files));
    std::fprintf(stderr, "wrote %s: %zu run%s of %zu parts\n", options.out.c_str(), done.runs,
                 done.runs == 1 ? "" : "s", done.parts);
    return 0;
}

Result<int> do_merge(const MergeArguments& options) {
    if (options.pool) return do_pool(options);
    DS_ASSIGN(const std::size_t runs, count_mergeable(options.files));
    DS_TRY(merge_captures(options.out, options.files));
    std::fprintf(stderr, "wrote %s: %zu runs of %zu files\n", options.out.c_str(), runs,
                 options.files.size());
    return 0;
}

}  // namespace

void add_merge(CLI::App& program, Action& action) {
    auto options = std::make_shared<MergeArguments>();
    CLI::App* command = program.add_subcommand("merge", "Merge captures into one file");
    command->footer(
        "Example: draftscope merge --pool all.dscope shard1.dscope shard2.dscope\nRefuses to mix targets, "
        "tiers or machines, or synthetic with real runs. --pool names the shard that is missing.");
    command->add_flag("--pool", options->pool,
                      "join the shards of a run, bench, sweep or recording to one, as if it had not been "
                      "divided; they need equal "
                      "settings");
    command->add_option("--profile", options->profile,
                        "with --pool, of sweeps: the profile that they were swept with");
    command->add_option("out", options->out, "new capture file")->required();
    command->add_option("files", options->files, "captures to merge, in this order")->required();
    command->callback([options, &action] { action = [options] { return do_merge(*options); }; });
}

}  // namespace draftscope::cli
