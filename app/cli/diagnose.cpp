#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/cli/job.h"
#include "app/cli/options.h"
#include "app/cli/version.h"
#include "app/jobs/diagnose/diagnose_job.h"
#include "base/fields.h"

namespace draftscope::cli {
namespace {

using nlohmann::json;

struct DiagnoseArguments {
    DiagnoseConfig config;
    JobOutput output;
};

constexpr auto other_value_fields = DS_FIELDS(OtherValue, option, value, fault);
constexpr auto reading_fields =
    join(as(list_of(other_value_fields), DS_FIELDS(ReadingResult, changes)),
         DS_FIELDS(ReadingResult, drafter), as(estimate_json, DS_FIELDS(ReadingResult, tau, expected, gain)));
constexpr auto other_prompts_fields =
    join(DS_FIELDS(OtherPrompts, what), as(estimate_json, DS_FIELDS(OtherPrompts, tau, gain)));
constexpr auto diagnose_fields = join(DS_FIELDS(DiagnoseReport, drafter, source, tree, precision,
                                                conversations, tokens, verdict, same, untested, seconds),
                                      as(list_of(other_prompts_fields), DS_FIELDS(DiagnoseReport, prompts)));

std::vector<double> rates(const std::vector<DepthAcceptance>& depths) {
    std::vector<double> out;
    for (const DepthAcceptance& depth : depths) out.push_back(depth.rate());
    return out;
}

/// Returns the text of a reading's parting from the other engine.
std::string parting(const std::optional<int>& depth) {
    if (!depth) return "";
    return *depth == 0 ? "agrees" : fmt::format("parts at depth {}", *depth);
}

json diagnosis_json(const DiagnoseReport& report) {
    json out = write_fields(diagnose_fields, report);
    out["version"] = version;
    out["readings"] = json::array();
    for (const ReadingResult& one : report.readings) {
        json reading = write_fields(reading_fields, one);
        reading["acceptance_by_depth"] = rates(one.depths);
        if (one.parts) reading["parts_at_depth"] = *one.parts;
        out["readings"].push_back(std::move(reading));
    }
    out["given"] = report.given;
    out["fits"] = report.fits ? json(*report.fits) : json();
    if (!report.engine.empty()) out["engine_acceptance_by_depth"] = rates(report.engine);
    return out;
}

std::string rates_text(const std::vector<DepthAcceptance>& depths) {
    std::string out;
    for (const double rate : rates(depths)) out += fmt::format("{}{:.2f}", out.empty() ? "" : " ", rate);
    return out;
}

void print_diagnosis(const DiagnoseReport& report) {
    print("{} along {} conversations of {}, {} tokens, {}, {}\n\n", report.drafter, report.conversations,
          report.source, report.tokens, report.tree, report.precision);
    std::vector<std::vector<std::string>> rows;
    constexpr std::size_t shown = 12;
    for (std::size_t i = 0; i < report.readings.size(); ++i) {
        const ReadingResult& one = report.readings[i];
        if (i >= shown && i != report.given) continue;
        rows.push_back({one.name(), with_interval(one.tau, 2), with_interval(one.expected, 2),
                        i == report.given ? "-" : with_interval(one.gain, 2), rates_text(one.depths)});
        if (!report.engine.empty()) rows.back().push_back(parting(one.parts));
    }
    std::vector<std::string> header = {"reading", "tau", "expected tokens", "of tau as given", "by depth"};
    if (!report.engine.empty()) {
        header.emplace_back("the engine");
        rows.push_back({"the engine's rounds", "", "", "", rates_text(report.engine), ""});
    }
    print("{}", format_table(header, rows));
    if (report.readings.size() > shown)
        print("{} readings in all; --json has every one\n", report.readings.size());
    for (const OtherPrompts& one : report.prompts)
        print("With {}: tau {}, {} of that with the template\n", one.what, with_interval(one.tau, 2),
              with_interval(one.gain, 2));
    if (!report.same.empty()) print("No difference: {}\n", fmt::format("{}", fmt::join(report.same, ", ")));
    for (const std::string& line : report.untested) print("Not tested: {}\n", line);
    print("\n{}\n", report.verdict);
    if (report.fits) {
        const ReadingResult& best = report.readings[*report.fits];
        std::string options = fmt::format("--drafter {}", best.drafter);
        for (const OtherValue& change : best.changes)
            if (change.option == precision_option) options += " --precision " + change.value;
        print("Run it so: draftscope run {}\n", options);
    }
}

}  // namespace

void add_diagnose(CLI::App& program, Action& action) {
    auto options = std::make_shared<DiagnoseArguments>();
    DiagnoseConfig& config = options->config;
    RunConfig& run = config.target;
    run.max_new = 0;
    CLI::App* command = program.add_subcommand(
        "diagnose",
        "Find out how a drafter's checkpoint has to be read: replay every reading on a few texts");
    command->footer("Example: draftscope diagnose --drafter eagle3 --recording demo.recording");
    command->add_option("--drafter", config.drafter, "NAME[:PATH[,KEY=VALUE...]]")->required();
    CLI::Option* recording = command->add_option("--recording,--trace", config.recording,
                                                 "replay along this recording (default: decode the prompts, "
                                                 "which also tests other feature layers and prompts)");
    command->add_option(
        "--rounds", config.rounds,
        "capture of another engine's rounds with this drafter and these prompts, as import and "
        "watch write it: says where its acceptance and each reading's part");
    command
        ->add_option("--prompts", run.prompts_file, "prompts that the target decodes: JSONL or a JSON array")
        ->excludes(recording);
    command->add_option("--limit", run.limit, "conversations to replay (0 = 24), evenly from the tasks");
    add_model_option(*command, run.model);
    command->add_option("--max-new", run.max_new,
                        "tokens of each text (0 = 32, or as long as the longest text of --rounds)");
    command->add_option("--tree", config.tree,
                        "chain=N (default: chain=3, or as long as the drafts of --rounds)");
    add_shown(*command, "--precision", run.precision,
              "f32, bf16, int8, int4 or auto: as recorded, else bf16");
    add_threads_option(*command, run.threads);
    add_template_options(*command, run);
    add_output_options(*command, options->output);
    command->callback([options, &action] {
        action = [options] {
            return run_job(
                options->output,
                [&](const JobHooks& hooks, DebugGate&) { return run_diagnose(options->config, hooks); },
                diagnosis_json, print_diagnosis);
        };
    });
}

}  // namespace draftscope::cli
