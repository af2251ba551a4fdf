#include <CLI/CLI.hpp>
#include <memory>

#include "app/cli/cli.h"
#include "app/cli/job.h"
#include "app/cli/options.h"
#include "app/cli/shard_option.h"
#include "app/cli/version.h"
#include "app/jobs/replay/record_job.h"
#include "base/fields.h"

namespace draftscope::cli {
namespace {

using nlohmann::json;

struct RecordArguments {
    RecordConfig config;
    JobOutput output;
    bool no_times = false;
    std::string shard;
};

json report_json(const RecordReport& done, const RecordConfig& config) {
    const RecordingInfo& info = done.info;
    json times = json::object();
    for (const auto& [rows, ns] : info.verify_ns) times[std::to_string(rows)] = ns;
    const auto given_fields = DS_FIELDS(GivenAgreement, file, tokens, agreed, largest_gap);
    json out = write_fields(join(DS_FIELDS(RecordingInfo, precision, aux_layers, rows, complete),
                                 field("template", &RecordingInfo::template_switches)),
                            info);
    out.update(write_fields(DS_FIELDS(RecordReport, generated, notes, seconds), done));
    out.update(write_fields(DS_FIELDS(Sampling, temperature, seed), info.sampling));
    out.update({{"version", version},
                {"trace", config.out},
                {"shard", shard_json(config.run.shard)},
                {"target", info.target.name},
                {"prompts", info.prompts.size()},
                {"left_out", info.skipped},
                {"given", info.given ? write_fields(given_fields, *info.given) : json()},
                {"verify_ns", std::move(times)}});
    return out;
}

void print_report(const RecordReport& done, const std::string& folder) {
    const RecordingInfo& info = done.info;
    print("{}: {} prompts, {} rows, {} of them generated in {:.1f} s{}\n", folder, info.prompts.size(),
          info.rows, done.generated, done.seconds,
          info.complete ? "" : "  (cancelled: the decoded part is kept)");
    if (info.verify_ns.empty()) return;
    print("verification, ms by rows:");
    for (const auto& [rows, ns] : info.verify_ns) print("  {}: {:.2f}", rows, milliseconds(ns));
    print("\n");
}

Result<int> do_record(RecordArguments& options) {
    options.config.times = !options.no_times;
    options.config.source = std::string("draftscope ") + version;
    RunConfig& run = options.config.run;
    DS_TRY(check_sampling_used(run, {}));
    DS_TRY(choose_prompt_shard(options.shard, run));
    DS_TRY(expand_path("--out", run.shard, options.config.out));
    const std::string& folder = options.config.out;
    return run_job(
        options.output, [&](const JobHooks& hooks, DebugGate&) { return run_record(options.config, hooks); },
        [&](const RecordReport& done) { return report_json(done, options.config); },
        [&](const RecordReport& done) { print_report(done, folder); },
        [](const RecordReport& done) { return done.info.complete ? 0 : 130; });
}

}  // namespace

void add_record(CLI::App& program, Action& action) {
    auto options = std::make_shared<RecordArguments>();
    RunConfig& run = options->config.run;
    CLI::App* command = program.add_subcommand("record", "Record the target's decode, for replay and fit");
    command->alias("trace");
    command->footer(
        "Example: draftscope record --prompts assets/prompts/spec_bench_half.jsonl --limit 12 --balanced "
        "--out demo.recording\n"
        "         draftscope record --ids answer.json --model my-model.gguf --out theirs.recording");
    add_prompt_options(*command, run);
    add_shard_option(*command, options->shard, "--out");
    auto* ids = command->add_option(
        "--ids", options->config.ids,
        "file of another engine's rounds, or a capture: its prompts and committed tokens are recorded as if "
        "the target had chosen them");
    command->add_option("--out", options->config.out, "folder to write")->required();
    command->add_flag("--overwrite", options->config.overwrite, "replace an existing recording");
    add_model_option(*command, run.model);
    add_sampling_options(*command, run);
    add_shown(*command, "--batch", options->config.batch,
              "prompts decoded in lockstep; every text stays the same");
    command->add_option(
        "--aux", options->config.aux,
        "layers whose input streams are recorded for EAGLE-3, as 2,15,27, or none (default: 2, L/2, L-3, "
        "as EAGLE-3 reads them; spread evenly over targets of fewer than six layers)");
    add_shown(*command, "--precision", run.precision, "f32, bf16, int8, int4 or auto");
    add_threads_option(*command, run.threads);
    command->add_flag("--ignore-eos", run.ignore_eos, "continue past the end of text");
    add_template_options(*command, run);
    command->add_flag("--no-times", options->no_times, "do not measure verification times");
    for (const char* other : {"--prompt", "--prompts", "--shard", "--temperature", "--top-p", "--top-k",
                              "--seed", "--max-new", "--ignore-eos", "--raw", "--template", "--system"})
        ids->excludes(command->get_option(other));
    add_output_options(*command, options->output);
    command->callback([options, &action] { action = [options] { return do_record(*options); }; });
}

}  // namespace draftscope::cli
